"""Replay: what was recorded answers again, as an OpenAI-compatible provider."""
