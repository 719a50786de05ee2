"""Streamed answers: the way to the first token, and sixteen streams at their pace."""

from __future__ import annotations

from bench.figures import Figure, Limit, Rounds, percentile
from bench.load import Calls
from bench.setting import Setting, median

STREAMS = 16
PACE_MS = 5.0
"""200 tokens a second."""


def measure_first_token(setting: Setting) -> list[Figure]:
    """From the request to the first token in the client's hands."""
    answers_at_once = Calls(0, setting.scale.first_tokens, model="bench-3x0", stream=True)
    with setting.serving() as server:
        rounds = setting.side_by_side(server, answers_at_once)
    both = Rounds()
    for one in rounds:
        both.add(median(one.direct.first_tokens), median(one.through.first_tokens))
    return [
        Figure(
            "first token, 1 client: added median",
            both.differences(),
            "ms",
            Limit(2.0, 0.7),
            *both.words("ms"),
        )
    ]


def measure_streams(setting: Setting) -> list[Figure]:
    """Sixteen streams at once: do they keep their pace, and how late is each token."""
    tokens = setting.scale.stream_tokens
    calls = Calls(
        0,
        STREAMS,
        clients=STREAMS,
        model=f"bench-{tokens}x{PACE_MS:g}",
        stream=True,
        spread_ms=10 * PACE_MS,
    )
    with setting.serving() as server:
        rounds = setting.side_by_side(server, calls)
    rates, late = Rounds(), Rounds()
    for one in rounds:
        rates.add(median(one.direct.rates), median(one.through.rates))
        late.add(percentile(one.direct.transits, 0.99), percentile(one.through.transits, 0.99))
    spent = [1e6 * one.cpu / len(one.through.transits) for one in rounds]
    name = f"{STREAMS} streams of {1000 / PACE_MS:.0f} tokens/s"
    return [
        Figure(
            f"{name}: throughput",
            rates.shares(),
            "%",
            Limit(99, at_least=True),
            *rates.words("/s"),
        ),
        Figure(
            f"{name}: added transit p99",
            late.differences(),
            "ms",
            Limit(3.0, 1.0),
            *late.words("ms"),
        ),
        Figure(f"{name}: CPU a token", spent, "µs", Limit(100, 75)),
    ]
