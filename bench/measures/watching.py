"""Watching live: how soon a reader of `/events` knows of what is recorded at 60 tokens a second."""

from __future__ import annotations

from dataclasses import replace

from bench.figures import Figure, Limit, Rounds, percentile
from bench.load import Calls
from bench.setting import Setting
from bench.watching import Watching

TOKENS_PER_SECOND = 60
STREAMS = 4
LIMIT = Limit(200, 120)


def measure(setting: Setting) -> list[Figure]:
    """95 % of facts and of tokens reach the reader within this time.

    A fact's time is from before its commit, so that writing it counts as well.
    """
    pace = 1000 * STREAMS / TOKENS_PER_SECOND
    tokens = TOKENS_PER_SECOND // STREAMS
    calls = Calls(
        setting.upstream,
        setting.scale.watched_streams,
        clients=STREAMS,
        model=f"bench-{tokens}x{pace:.1f}",
        stream=True,
        spread_ms=1000,
    )
    facts, texts = [], Rounds()
    with setting.serving() as server:
        through = replace(calls, port=server.port)
        for _ in range(setting.rounds):
            direct = setting.loader.call(calls)
            seen = setting.loader.watch(Watching(through))
            facts.append(percentile(seen.events, 0.95))
            texts.add(percentile(direct.transits, 0.95), percentile(seen.tokens, 0.95))
    name = f"reader of /events, {TOKENS_PER_SECOND} tokens/s"
    return [
        Figure(f"{name}: event p95", facts, "ms", LIMIT),
        Figure(f"{name}: token p95", texts.through, "ms", LIMIT, *texts.words("ms")),
    ]
