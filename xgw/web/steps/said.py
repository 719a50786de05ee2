"""What a message of a request or an answer holds: texts, other parts, tools asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from xgw.queries.wording import media_words
from xgw.web.words import json_text

_REASONING = ("reasoning_content", "reasoning", "thinking")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a content: `kind` is text, reasoning, media (which is named alone) or json."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that was asked for; `arguments` set out as JSON where they are that."""

    id: str
    name: str
    arguments: str
    is_valid: bool
    is_incomplete: bool = False


def parts_of(content: Any) -> tuple[Part, ...]:
    """The pieces of a content, in order: a text, an array of parts, or whatever else was there."""
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (Part("text", content),)
    if isinstance(content, list):
        return tuple(_part(entry) for entry in content)
    return (Part("json", json_text(content)),)


def reasoning_of(message: Mapping[str, Any]) -> str:
    """What the model thought, in whichever field the provider has it."""
    found = (message.get(name) for name in _REASONING)
    return next((text for text in found if isinstance(text, str) and text), "")


def calls_of(message: Mapping[str, Any], broken: Collection[str] = ()) -> tuple[ToolCall, ...]:
    """The tools that a message asks for; `broken` are ids of those whose arguments broke off."""
    asked = message.get("tool_calls")
    listed = [call for call in asked if isinstance(call, dict)] if isinstance(asked, list) else []
    if isinstance(message.get("function_call"), dict):
        listed.append({"function": message["function_call"]})
    return tuple(_call(call, broken) for call in listed)


def _call(call: Mapping[str, Any], broken: Collection[str]) -> ToolCall:
    nested = call.get("function") or call.get("custom")
    called: Mapping[str, Any] = nested if isinstance(nested, dict) else call
    id = str(call.get("id") or call.get("tool_call_id") or "")
    arguments = called.get("arguments")
    is_free = arguments is None and "input" in called  # a custom tool takes any text
    text, is_valid = _set_out(called.get("input") if is_free else arguments)
    return ToolCall(id, str(called.get("name") or ""), text, is_valid or is_free, id in broken)


def _set_out(arguments: Any) -> tuple[str, bool]:
    """As JSON on several lines, and whether it is JSON."""
    if arguments is None or arguments == "":
        return "", True
    if not isinstance(arguments, str):
        return json_text(arguments), True
    try:
        orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments, False
    return json_text(arguments), True


def _part(entry: Any) -> Part:
    if isinstance(entry, str):
        return Part("text", entry)
    if not isinstance(entry, dict):
        return Part("json", json_text(entry))
    kind = str(entry.get("type") or "")
    if isinstance(entry.get("text"), str):
        return Part("text", entry["text"])
    if "thinking" in kind and isinstance(entry.get("thinking"), str):
        return Part("reasoning", entry["thinking"])
    if (media := media_words(entry)) is not None:
        return Part("media", ": ".join(media))
    return Part("json", json_text(entry))
