"""Which step of a run was made for which: how deep each stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def in_tree_order(steps: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Steps in the order in which they began, but what was done under a handoff or a compaction
    stands right below that."""
    listed = list(steps)
    by_id = {step["id"]: step for step in listed}
    below: dict[str, list[Mapping[str, Any]]] = {}
    top = []
    for step in listed:
        above = by_id.get(step["parent_step_id"] or "")
        if above is not None and _holds(above, by_id):
            below.setdefault(above["id"], []).append(step)
        else:
            top.append(step)
    found: list[Mapping[str, Any]] = []
    left = top[::-1]
    while left:
        step = left.pop()
        found.append(step)
        left += below.get(step["id"], [])[::-1]
    return found


def _holds(step: Mapping[str, Any], by_id: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether what was done for a step stands below it: it, or one above it, is no model call."""
    above = by_id.get(step["parent_step_id"] or "")
    return step["step_type"] != "llm_call" or (above is not None and _holds(above, by_id))


def depths_of(steps: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The depth of each step by its id, of steps in the order in which they began.

    A model call of the turn itself is at 0, what it asked for at 1; under a handoff the calls of
    the other agent are at 2, what they asked for at 3, and so on.
    """
    found: dict[str, int] = {}
    for step in steps:
        usual = 0 if step["step_type"] == "llm_call" else 1
        above = found.get(step["parent_step_id"] or "")
        found[step["id"]] = usual if above is None else above + 1
    return found
