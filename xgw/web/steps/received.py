"""What a step received: every choice of an answer, and how far it came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xgw.queries.step_closeup import Body
from xgw.web.steps.said import Part, ToolCall, calls_of, parts_of, reasoning_of
from xgw.web.words import json_text

Row = Mapping[str, Any]

_KNOWN = frozenset(
    {"role", "content", "refusal", "tool_calls", "function_call"}
    | {"reasoning_content", "reasoning", "thinking"}
)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the answers that were asked for; `others` are fields without a place, as JSON."""

    index: int
    parts: tuple[Part, ...]
    reasoning: str
    refusal: str
    calls: tuple[ToolCall, ...]
    finish_reason: str
    others: str

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing at all."""
        return not (self.parts or self.reasoning or self.refusal or self.calls)


@dataclass(frozen=True, slots=True)
class ReceivedView:
    """An answer; `other` is the body where it is none of a chat, `broke_off` says why it ended.

    `size` in bytes is that of the whole, of which `is_cut` says that it is not all here.
    """

    choices: tuple[Choice, ...]
    other: str
    broke_off: str
    size: int
    is_cut: bool


def view_of(step: Row, received: Body | None) -> ReceivedView:
    """The answer of a step that has one, or what had arrived of it."""
    value = received.value if received is not None else None
    choices = value.get("choices") if isinstance(value, dict) else None
    listed = [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []
    found = tuple(_choice(choice, _broken(step)) for choice in listed)
    if not found and step["partial_output"]:
        found = (_choice({"message": {"content": step["partial_output"]}}, frozenset()),)
    is_other = value is not None and not found
    return ReceivedView(
        found,
        json_text(value) if is_other else "",
        _broke_off(step) if found else "",
        received.size if received is not None else 0,
        received is not None and received.is_cut,
    )


def _choice(choice: Row, broken: frozenset[str]) -> Choice:
    nested = choice.get("message")
    message: Row = nested if isinstance(nested, dict) else choice
    others = {name: value for name, value in message.items() if name not in _KNOWN and value}
    if choice.get("logprobs"):
        others["logprobs"] = choice["logprobs"]
    refusal = message.get("refusal")
    return Choice(
        choice["index"] if isinstance(choice.get("index"), int) else 0,
        parts_of(message.get("content")),
        reasoning_of(message),
        refusal if isinstance(refusal, str) else "",
        calls_of(message, broken),
        str(choice.get("finish_reason") or ""),
        json_text(others) if others and nested is message else "",
    )


def _broken(step: Row) -> frozenset[str]:
    asked = step["tool_calls"]
    calls = asked if isinstance(asked, list) else ()
    return frozenset(str(c.get("tool_call_id")) for c in calls if c.get("incomplete"))


def _broke_off(step: Row) -> str:
    """Why an answer is not whole, in words; nothing where it is."""
    if step["status"] == "error":
        return "The answer broke off; this is what had arrived."
    if step["status"] == "cancelled":
        return "The call was cancelled; this is what had arrived."
    return {
        "length": "The answer was cut off: the limit of tokens was reached.",
        "content_filter": "The answer was stopped by the provider’s content filter.",
    }.get(step["finish_reason"] or "", "")
