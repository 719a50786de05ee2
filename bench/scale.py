"""How much is sent and stored: as a rule, with `--full`, and for a quick look (`--short`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Numbers for one round. `alternations`: how often a round goes from direct to through."""

    alternations: int = 4
    single_calls: int = 3000
    parallel_calls: int = 6400
    first_tokens: int = 1200
    stream_tokens: int = 600
    watched_streams: int = 16
    pages_turns: int = 100_000
    pages_sessions: int = 10_000
    few_turns: int = 1000
    few_sessions: int = 100
    page_reads: int = 15
    deep_pages: int = 20
    history_turns: int = 1000
    starts: int = 5
    older_sessions: int = 4000


USUAL = Scale()
FULL = Scale(pages_turns=1_000_000, pages_sessions=100_000)
SHORT = Scale(
    alternations=1,
    single_calls=20,
    parallel_calls=64,
    first_tokens=10,
    stream_tokens=20,
    watched_streams=4,
    pages_turns=120,
    pages_sessions=12,
    few_turns=24,
    few_sessions=4,
    page_reads=2,
    deep_pages=1,
    history_turns=30,
    starts=1,
    older_sessions=20,
)
