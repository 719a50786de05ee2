"""Where a re-run of a turn begins: at its message, at a model call, or at one of the tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xgw.agents import lineage
from xgw.agents.lineage import Row
from xgw.errors import not_found, unprocessable
from xgw.values import ToolCall


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is to be run first; `succeeded` tells how it went before."""

    call: ToolCall
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Beginning:
    """The run that is repeated, the last of its messages that is kept, and what is done first.

    `said` tells whether anything was said in it; `calls` are those of the answer of `step_id`
    whose results are not kept.
    """

    run: Row
    kept_upto: int
    said: bool = True
    step_id: str | None = None
    calls: tuple[Call, ...] = ()


def find_beginning(runs: Sequence[Row], messages: Sequence[Row], step_id: str | None) -> Beginning:
    """Where to begin, of a turn's runs with their steps and its messages.

    Without a step that is the turn's message, in the run that is shown. ApiError 404 for a step of
    another turn, 422 for one that a run cannot begin with.
    """
    if step_id is None:
        run = lineage.shown_run(runs)
        said = lineage.said_in(messages, lineage.ancestry_of(run, runs))
        return Beginning(run, said[0]["message_index"] if said else -1, bool(said))
    owners = [one for one in runs if any(step["id"] == step_id for step in one["steps"])]
    if not owners:
        message = f"the turn has no step {step_id[:256]!r}"
        raise not_found(message, code="step_not_found", param="from_step_id")
    run = owners[0]
    ancestry = lineage.ancestry_of(run, runs)
    said = lineage.said_in(messages, ancestry)
    steps = [step for one in ancestry for step in one["steps"]]
    step = next(one for one in steps if one["id"] == step_id)
    if step["step_type"] == "llm_call" and step["parent_step_id"] is None:
        return _at_call(run, said, steps, step)
    asked = next((one for one in steps if one["id"] == step["parent_step_id"]), None)
    if asked is None or asked["step_type"] != "llm_call" or asked["parent_step_id"] is not None:
        raise _cannot(step)
    return _at_tool(run, said, steps, step, asked)


def _at_call(run: Row, said: Sequence[Row], steps: Sequence[Row], step: Row) -> Beginning:
    """Everything that was said before the first try of a model call is kept."""
    at = steps.index(step)
    while (steps[at]["attempt"] or 1) > 1 and at:
        at -= 1
    earlier = {None, *(one["id"] for one in steps[:at])}
    return Beginning(run, _last_index([m for m in said if m["step_id"] in earlier]))


def _at_tool(
    run: Row, said: Sequence[Row], steps: Sequence[Row], step: Row, asked: Row
) -> Beginning:
    """The results of the calls that were asked for before it in the same answer are kept."""
    result = next((n for n, m in enumerate(said) if m["step_id"] == step["id"]), None)
    calls = [ToolCall(**one) for one in asked["tool_calls"] or ()]
    first = next((n for n, c in enumerate(calls) if c.tool_call_id == step["tool_call_id"]), None)
    if result is None or first is None:
        raise _cannot(step)
    succeeded = {
        one["tool_call_id"]
        for one in steps
        if one["parent_step_id"] == asked["id"] and one["status"] == "success"
    }
    left = tuple(Call(call, call.tool_call_id in succeeded) for call in calls[first:])
    return Beginning(run, _last_index(said[:result]), step_id=asked["id"], calls=left)


def _last_index(kept: Sequence[Row]) -> int:
    return max((message["message_index"] for message in kept), default=-1)


def _cannot(step: Row) -> Exception:
    message = f"a run cannot begin with step {step['id']}: choose a model call or a tool call"
    return unprocessable(message, param="from_step_id")
