"""What is new in a request that resends its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw.recording.elements import SYSTEM_ROLES, text_of
from xgw.store.payloads import fold


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
