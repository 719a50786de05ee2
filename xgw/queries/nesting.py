"""Which step of a run was made for which: how deep each stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


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
