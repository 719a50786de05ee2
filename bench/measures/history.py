"""A conversation that resends its history: what it takes in the store, and its added latency."""

from __future__ import annotations

from bench.asking import Conversation, Talk
from bench.figures import Figure, Limit, Rounds
from bench.setting import Setting, median

QUESTION_SIZE = 2048
EARLY = (6, 15)
LATE = 10
"""So many of the last turns are the late ones."""


def measure(setting: Setting) -> list[Figure]:
    """Bytes stored over bytes said, and the added latency of late turns over that of early ones."""
    turns = setting.scale.history_turns
    ratios, added, early, late = [], [], Rounds(), Rounds()
    with setting.serving() as server:
        for number in range(setting.rounds):
            before = server.stored_bytes()
            talk = setting.loader.converse(
                Conversation(
                    direct=setting.upstream,
                    through=server.port,
                    session_key=f"history-{number}",
                    turns=turns,
                    question_size=QUESTION_SIZE,
                    sampled=[EARLY, (turns - LATE + 1, turns)],
                )
            )
            ratios.append((server.stored_bytes() - before) / talk.content)
            for both, span in ((early, 0), (late, 1)):
                both.add(median(talk.direct[span]), median(talk.through[span]))
            added.append(_growth(talk))
    return [
        Figure(
            f"{turns:,} turns with their history: stored over said",
            ratios,
            "×",
            Limit(3),
            through=f"{talk.content / 1e6:.1f} MB said",
        ),
        Figure("turn 10: added median", early.differences(), "ms", None, *early.words("ms")),
        Figure(f"turn {turns:,}: added median", late.differences(), "ms", None, *late.words("ms")),
        Figure(f"turn {turns:,} over turn 10: added", added, "×", Limit(2)),
    ]


def _growth(talk: Talk) -> float:
    early, late = (
        median(through) - median(direct)
        for direct, through in zip(talk.direct, talk.through, strict=True)
    )
    return late / early
