"""What is new in a request that resends its history, and how its elements become messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw import ids
from xgw.recording.facts import MessageFacts
from xgw.store.payloads import Shelf, Stored, fold

SYSTEM_ROLES = ("system", "developer")
LARGE_PART = 65536


@dataclass(frozen=True, slots=True)
class History:
    """What later requests are compared with: how many elements, one hash over all, the prompts'."""

    count: int
    fold: bytes
    system: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request's elements with their hashes; `tail` is where the new part begins."""

    elements: Sequence[dict[str, Any]]
    hashes: Sequence[bytes]
    tail: int

    def user_input(self) -> str | None:
        """The text of the last user element; None without one."""
        for element in reversed(self.elements):
            if element.get("role") == "user":
                return text_of(element.get("content"))
        return None

    def tool_call_ids(self) -> list[str]:
        """The calls that the new part brings results for, in order."""
        return [
            element["tool_call_id"]
            for element in self.elements[self.tail :]
            if element.get("role") == "tool" and isinstance(element.get("tool_call_id"), str)
        ]

    def has_user_tail(self) -> bool:
        """Whether the new part holds a user message."""
        return any(element.get("role") == "user" for element in self.elements[self.tail :])

    def history(self, before: History | None) -> History:
        """What the session's next request is compared with; `before` is what this one was.

        Without a system prompt of its own, the last one recorded stays the one to compare with.
        """
        system = frozenset(
            digest
            for element, digest in zip(self.elements, self.hashes, strict=True)
            if is_system(element)
        )
        if not system and before is not None:
            system = before.system
        return History(len(self.hashes), fold(self.hashes), system)

    def compare(self, before: History | None) -> str | None:
        """`appended` if the previous request's elements are a prefix of these, else `rewritten`."""
        if before is None:
            return None
        same = len(self.hashes) >= before.count and fold(self.hashes[: before.count]) == before.fold
        return "appended" if same else "rewritten"

    def new_positions(self, before: History | None, *, whole: bool) -> list[int]:
        """The elements that become messages: the new part, and a system prompt not seen last time.

        `whole` takes everything: the first request of a session.
        """
        if whole:
            return list(range(len(self.elements)))
        known = before.system if before is not None else frozenset()
        prompts = [
            position
            for position in range(self.tail)
            if is_system(self.elements[position]) and self.hashes[position] not in known
        ]
        return prompts + list(range(self.tail, len(self.elements)))


def read_conversation(elements: Sequence[dict[str, Any]], hashes: Sequence[bytes]) -> Conversation:
    """Find the new part: everything after the last assistant element."""
    tail = 0
    for position in range(len(elements) - 1, -1, -1):
        if elements[position].get("role") == "assistant":
            tail = position + 1
            break
    return Conversation(elements, hashes, tail)


def is_system(element: Mapping[str, Any]) -> bool:
    """Whether an element is a system prompt; roles come from clients and may be anything."""
    return element.get("role") in SYSTEM_ROLES


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
    known = ("role", "content", "tool_calls", "tool_call_id", "name")
    return {k: v for k, v in element.items() if k not in known and v not in (None, "")}


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
