"""A conversation as a page shows it: messages, calls of a model and calls of tools, in order.

A step and the messages that came of it are one entry, which begins when the step does and changes
as it goes on: so an entry is added once, by the event of its beginning, and redrawn from then on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xgw.config import handoff_name
from xgw.queries import wording
from xgw.queries.runs import COMPACTION
from xgw.web.live.streams import Growth

Row = Mapping[str, Any]
NOTHING_GROWS = Growth()
Grows = Callable[[Row], Growth]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that was asked for: `arguments` as sent, `is_valid` whether they are JSON."""

    tool_call_id: str
    name: str
    arguments: str
    is_valid: bool = True
    is_incomplete: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a conversation; `id` is its element's.

    `kind`: `message` (one that no step brought: user, system), `call` (of a model, with the
    messages of its answer and the texts that still grow), `tool` (with `call`, what was asked for,
    and the messages of its result), `compaction` (its step has what it tells). `within` names the
    agent that a task was handed over to, whose entry this is; "" for the turn's own.
    """

    id: str
    kind: str
    messages: tuple[Row, ...]
    step: Row | None = None
    growth: Growth = NOTHING_GROWS
    call: Call | None = None
    unanswered: tuple[Call, ...] = ()
    within: str = ""


def entries_of(
    messages: Sequence[Row],
    steps: Sequence[Row],
    grows: Grows,
    among: Iterable[Row] | None = None,
) -> dict[str, list[Entry]]:
    """The entries of each turn, by its id; `grows` says how a step under way does.

    `among` are all steps of these turns, where `steps` are some of them. The call that makes a
    summary is a part of its compaction.
    """
    all_steps = {step["id"]: step for step in (steps if among is None else among)}
    by_step: dict[str, list[Row]] = defaultdict(list)
    known = {step["id"] for step in steps}
    for message in messages:
        if message["step_id"] in known:
            by_step[message["step_id"]].append(message)
    calls = {call.tool_call_id: call for message in messages for call in calls_of(message)}
    answered = frozenset(s["tool_call_id"] for s in steps if s["step_type"] != "llm_call")
    placed: dict[str, list[tuple[Any, Entry]]] = defaultdict(list)
    latest: dict[str, Any] = {}
    for message in messages:
        # Times of older stores may be known to the second alone: what follows is never earlier.
        turn_id, at = message["turn_id"], message["created_at"]
        latest[turn_id] = at = max(at, latest.get(turn_id, at))
        if message["step_id"] not in known:
            entry = _message(message, answered)
            placed[turn_id].append(((at, 0, message["message_index"]), entry))
    for number, step in enumerate(steps):
        above = all_steps.get(step["parent_step_id"] or "")
        if above is not None and above["name"] == COMPACTION:
            continue
        entry = _step(step, by_step[step["id"]], grows(step), calls, answered)
        entry = replace(entry, within=_within(step, all_steps))
        placed[step["turn_id"]].append(((step["started_at"], 1, number), entry))
    return {
        turn_id: [entry for _, entry in sorted(found, key=lambda pair: pair[0])]
        for turn_id, found in placed.items()
    }


def partner_of(step: Row) -> str:
    """The agent that a handoff hands its task over to; "" for any other step."""
    if step["step_type"] != "handoff":
        return ""
    return str(step["name"] or "").removeprefix(handoff_name(""))


def _within(step: Row, steps: Mapping[str, Row]) -> str:
    """The agent of the nearest handoff above a step."""
    above = steps.get(step["parent_step_id"] or "")
    while above is not None:
        if partner := partner_of(above):
            return partner
        above = steps.get(above["parent_step_id"] or "")
    return ""


def calls_of(message: Row) -> list[Call]:
    """The tools that an assistant's message asks for, in any of the shapes that providers have."""
    found = message["tool_calls"]
    return (
        [_call(asked) for asked in found if isinstance(asked, dict)]
        if isinstance(found, list)
        else []
    )


def _call(asked: Mapping[str, Any]) -> Call:
    nested = asked.get("function")
    function: Mapping[str, Any] = nested if isinstance(nested, dict) else asked
    arguments = function.get("arguments")
    return Call(
        str(asked.get("tool_call_id") or asked.get("id") or ""),
        str(function.get("name") or ""),
        arguments if isinstance(arguments, str) else wording.json_words(arguments),
        asked.get("arguments_json_valid") is not False,
        bool(asked.get("incomplete")),
    )


def _message(message: Row, answered: frozenset[str | None]) -> Entry:
    return Entry(
        f"message-{message['id']}",
        "message",
        (message,),
        unanswered=tuple(c for c in calls_of(message) if c.tool_call_id not in answered),
    )


def _step(
    step: Row,
    messages: list[Row],
    growth: Growth,
    calls: Mapping[str, Call],
    answered: frozenset[str | None],
) -> Entry:
    """`unanswered`: calls that no step of a tool stands for, so that they are shown here."""
    if step["step_type"] == "llm_call":
        asked = (call for message in messages for call in calls_of(message))
        left = tuple(call for call in asked if call.tool_call_id not in answered)
        return Entry(f"step-{step['id']}", "call", tuple(messages), step, growth, None, left)
    if step["name"] == COMPACTION and step["step_type"] == "memory_write":
        return Entry(f"step-{step['id']}", "compaction", tuple(messages), step)
    call = calls.get(step["tool_call_id"] or "") or _call_of(step)
    return Entry(f"step-{step['id']}", "tool", tuple(messages), step, call=call)


def _call_of(step: Row) -> Call:
    """What a step tells of its call, where the message that asked for it is not shown."""
    arguments = (step.get("metadata") or {}).get("arguments")
    return Call(step["tool_call_id"] or "", step["name"] or "", str(arguments or ""))
