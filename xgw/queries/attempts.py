"""Which attempts belong to one model call: rows of `llm_call` steps, put together.

A step knows the number of its attempt but not its call, and calls of one run may be under way side
by side. An attempt follows the one before it, of the same model asked for, once that has ended.
"""

from __future__ import annotations

from collections.abc import Iterable

from xgw.queries.pages import Row

COLUMNS = ("id", "run_id", "attempt", "model_requested", "started_at", "ended_at", "step_index")
"""What is looked at; rows may have more."""


def grouped(steps: Iterable[Row]) -> list[list[Row]]:
    """The calls of one run in the order of their beginning, each with its attempts in order."""
    calls: list[list[Row]] = []
    for step in sorted(steps, key=lambda row: row["step_index"]):
        call = _call_of(calls, step) if (step["attempt"] or 1) > 1 else None
        if call is None:
            calls.append([step])
        else:
            call.append(step)
    return calls


def of_same_call(step_id: str, steps: Iterable[Row]) -> list[Row]:
    """The attempts of the call to which one of these steps belongs, itself among them."""
    calls = grouped(steps)
    return next((call for call in calls if any(row["id"] == step_id for row in call)), [])


def _call_of(calls: list[list[Row]], step: Row) -> list[Row] | None:
    """The call that goes on with this attempt: of several, the one that ended last."""
    fitting = [call for call in calls if _may_follow(call[-1], step)]
    return max(fitting, key=lambda call: call[-1]["ended_at"], default=None)


def _may_follow(last: Row, step: Row) -> bool:
    return (
        last["attempt"] == step["attempt"] - 1
        and last["model_requested"] == step["model_requested"]
        and last["ended_at"] is not None
        and last["ended_at"] <= step["started_at"]
    )
