"""How the elements of a conversation, as they went over the wire, become messages."""

from __future__ import annotations

from typing import Any

from xgw import ids
from xgw.recording.facts import MessageFacts
from xgw.store.payloads import Shelf, Stored

SYSTEM_ROLES = ("system", "developer")
LARGE_PART = 65536

_USUAL = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})


def text_of(content: Any) -> str | None:
    """The plain text of a content value; None if it holds none."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [
            part["text"]
            for part in content
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        ]
        return "\n".join(texts) if texts else None
    return None


def message_of(
    element: dict[str, Any],
    shelf: Shelf,
    bodies: list[Stored],
    *,
    tokens: int | None = None,
    history: bool = False,
) -> MessageFacts:
    """One element as a message; large parts (images) go to the payloads and leave a reference."""
    role = element.get("role")
    content = element.get("content")
    extra = _beyond_text(element)
    parts: Any = content if isinstance(content, list) else None
    if extra:
        parts = {"content": parts, **extra} if parts is not None else extra
    tool_call_id = element.get("tool_call_id")
    name = element.get("name")
    return MessageFacts(
        id=ids.mint("msg"),
        kind="tool_result" if role == "tool" else "message",
        role=_role(role),
        content=text_of(content),
        parts=_shelved(parts, shelf, bodies) if parts is not None else None,
        tool_calls=_calls_of(element),
        tool_call_id=tool_call_id if isinstance(tool_call_id, str) else None,
        name=name if isinstance(name, str) else None,
        token_count=tokens,
        token_source=None if tokens is None else "estimated",
        metadata={"history": True} if history else None,
    )


def answer_message(
    message: dict[str, Any],
    shelf: Shelf,
    bodies: list[Stored],
    *,
    tokens: int | None,
    token_source: str | None,
    partial: bool,
) -> MessageFacts | None:
    """The assistant's message of an answer; None if it says nothing at all."""
    extra = _beyond_text(message)
    content = message.get("content")
    text = text_of(content)
    if not text and not extra and not message.get("tool_calls"):
        return None
    parts: Any = content if isinstance(content, list) else None
    if extra:
        parts = {"content": parts, **extra} if parts is not None else extra
    return MessageFacts(
        id=ids.mint("msg"),
        kind="message",
        role="assistant",
        content=text,
        parts=_shelved(parts, shelf, bodies) if parts is not None else None,
        tool_calls=_calls_of(message),
        token_count=tokens,
        token_source=token_source if tokens is not None else None,
        metadata={"partial": True} if partial else None,
    )


def _beyond_text(element: dict[str, Any]) -> dict[str, Any]:
    """Reasoning, refusal and whatever else an element carries beside its text."""
    if element.keys() <= _USUAL:
        return {}
    return {k: v for k, v in element.items() if k not in _USUAL and v not in (None, "")}


def _calls_of(element: dict[str, Any]) -> Any:
    """The tool calls of an element, where they are what they should be."""
    calls = element.get("tool_calls")
    return calls if isinstance(calls, list) else None


def _role(role: Any) -> str:
    """Roles as the history knows them; `developer` is the newer spelling of `system`."""
    if role in SYSTEM_ROLES:
        return "system"
    return role if role in ("user", "assistant", "tool") else "user"


def _shelved(value: Any, shelf: Shelf, bodies: list[Stored]) -> Any:
    """The value with every long text replaced by `{"payload": hash, "size": bytes}`."""
    if isinstance(value, str):
        if len(value) < LARGE_PART:
            return value
        stored = shelf.text(value)
        bodies.append(stored)
        return {"payload": stored.hash, "size": stored.size}
    if isinstance(value, list):
        return [_shelved(entry, shelf, bodies) for entry in value]
    if isinstance(value, dict):
        return {key: _shelved(entry, shelf, bodies) for key, entry in value.items()}
    return value
