"""A conversation as a page shows it: messages, calls of a model and calls of tools, in order.

A step and the messages that came of it are one entry, which begins when the step does and changes
as it goes on: so an entry is added once, by the event of its beginning, and redrawn from then on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw.queries import wording
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
    and the messages of its result).
    """

    id: str
    kind: str
    messages: tuple[Row, ...]
    step: Row | None = None
    growth: Growth = NOTHING_GROWS
    call: Call | None = None
    unanswered: tuple[Call, ...] = ()


def entries_of(
    messages: Sequence[Row], steps: Sequence[Row], grows: Grows
) -> dict[str, list[Entry]]:
    """The entries of each turn, by its id; `grows` says how a step under way does."""
    by_step: dict[str, list[Row]] = defaultdict(list)
    known = {step["id"] for step in steps}
    for message in messages:
        if message["step_id"] in known:
            by_step[message["step_id"]].append(message)
    calls = {call.tool_call_id: call for message in messages for call in calls_of(message)}
    answered = frozenset(s["tool_call_id"] for s in steps if s["step_type"] != "llm_call")
    placed: dict[str, list[tuple[Any, Entry]]] = defaultdict(list)
    for message in messages:
        if message["step_id"] not in known:
            entry = _message(message, answered)
            place = (message["created_at"], 0, message["message_index"])
            placed[message["turn_id"]].append((place, entry))
    for number, step in enumerate(steps):
        entry = _step(step, by_step[step["id"]], grows(step), calls, answered)
        placed[step["turn_id"]].append(((step["started_at"], 1, number), entry))
    return {
        turn_id: [entry for _, entry in sorted(found, key=lambda pair: pair[0])]
        for turn_id, found in placed.items()
    }


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
    call = calls.get(step["tool_call_id"] or "") or _call_of(step)
    return Entry(f"step-{step['id']}", "tool", tuple(messages), step, call=call)


def _call_of(step: Row) -> Call:
    """What a step tells of its call, where the message that asked for it is not shown."""
    arguments = (step.get("metadata") or {}).get("arguments")
    return Call(step["tool_call_id"] or "", step["name"] or "", str(arguments or ""))
