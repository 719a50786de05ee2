"""What was said in a turn that had several runs: each run goes on from another one, or repeats it.

A run's row tells which (`from_run_id`), and up to which message it takes over what that one has
(`metadata.kept_upto`). What is said in others stays in the record and out of the context.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def shown_of(messages: Iterable[Row], later: Iterable[Row]) -> Iterator[Row]:
    """The messages of turns, in order, that count: of each turn those of the run that is shown.

    `later` are the runs of the turns that have several.
    """
    by_turn: dict[str, list[Row]] = {}
    for run in later:
        by_turn.setdefault(run["turn_id"], []).append(run)
    for turn_id, said in itertools.groupby(messages, lambda message: message["turn_id"]):
        runs = by_turn.get(turn_id)
        if runs is None:
            yield from said
        else:
            yield from said_in(list(said), ancestry_of(shown_run(runs), runs))


def shown_run(runs: Sequence[Row]) -> Row:
    """The run of a turn whose answer is shown: the newest successful one, else the newest."""
    in_order = sorted(runs, key=lambda run: run["run_index"])
    succeeded = [run for run in in_order if run["status"] == "success"]
    return (succeeded or in_order)[-1]


def ancestry_of(run: Row, runs: Iterable[Row]) -> list[Row]:
    """The runs that lead to one, the first of all first, the run itself last."""
    by_id = {one["id"]: one for one in runs}
    found = [run]
    while (before := by_id.get(found[-1]["from_run_id"])) is not None:
        found.append(before)
    return found[::-1]


def resumed_in(ancestry: Sequence[Row]) -> list[Row]:
    """The end of an ancestry that is one try: a run, and the resumed runs that went on from it."""
    begins = max(n for n, run in enumerate(ancestry) if not n or run["kind"] != "resume")
    return list(ancestry[begins:])


def said_in(messages: Sequence[Row], ancestry: Iterable[Row]) -> list[Row]:
    """The messages of a turn that a run has before it, and its own, as the model gets them."""
    said: list[Row] = []
    for run in ancestry:
        own = [m for m in messages if m["run_id"] == run["id"] and not is_others(m)]
        said = _taken_over(said, run, own) + own
    return said


def is_others(message: Row) -> bool:
    """Whether another agent said it, that a task was handed over to."""
    return "handoff" in (message["metadata"] or {})


def _taken_over(said: list[Row], run: Row, own: list[Row]) -> list[Row]:
    upto = (run["metadata"] or {}).get("kept_upto", -1)
    kept = [message for message in said if message["message_index"] <= upto]
    if own and own[0]["role"] == "user":  # it takes the place of the one that was asked before
        kept = [message for message in kept if message["role"] != "user"]
        return [own.pop(0), *kept]
    return kept
