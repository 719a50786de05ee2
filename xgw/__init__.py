"""xgw: a gateway for LLM applications that records what passes through it."""

from __future__ import annotations

__version__ = "0.1.0"
