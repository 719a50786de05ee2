"""What is new in a request that resends its history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, overload

import orjson

from xgw.frozen import frozen
from xgw.recording.elements import SYSTEM_ROLES, text_of
from xgw.resent import LATEST, Hashes, Run
from xgw.store.payloads import fold


@frozen
class History:
    """What later requests are compared with: how many elements, one hash over all, the prompts'."""

    count: int
    fold: bytes
    system: frozenset[bytes]


@frozen
class Roles:
    """Who speaks in a list of elements: the last assistant and user, and every system prompt.

    They are named by their positions, -1 is none; prompts by their hashes too. `answered` is the
    last assistant that someone else speaks after.
    """

    assistant: int = -1
    user: int = -1
    system: tuple[tuple[int, bytes], ...] = ()
    answered: int = -1

    def then(
        self, elements: Sequence[dict[str, Any]], hashes: Sequence[bytes], first: int
    ) -> Roles:
        """These, and the roles of what follows from position `first` on; `hashes` are all."""
        assistant, user, system = self.assistant, self.user, list(self.system)
        answered = self.answered
        for position, element in enumerate(elements, first):
            role = element.get("role")
            if role == "assistant":
                assistant = position
                continue
            answered = assistant
            if role == "user":
                user = position
            elif role in SYSTEM_ROLES:
                system.append((position, hashes[position]))
        return Roles(assistant, user, tuple(system), answered)


class Elements(Sequence[dict[str, Any]]):
    """A conversation's elements; those of a known run are read when someone asks for them."""

    def __init__(self, run: Run | None, new: list[dict[str, Any]]) -> None:
        self._run = run
        self._new = new
        self.known = len(run) if run is not None else 0
        """How many of the first ones are known."""

    def __len__(self) -> int:
        return self.known + len(self._new)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        # Not as a sequence has it: that asks for one element more than there are.
        known = map(self.__getitem__, range(self.known))
        return chain(known, self._new) if self.known else iter(self._new)

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, at: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(at, slice):
            return [self[position] for position in range(len(self))[at]]
        if at >= self.known:
            return self._new[at - self.known]
        position = range(len(self))[at]
        if position >= self.known or self._run is None:
            return self._new[position - self.known]
        element: dict[str, Any] = orjson.loads(self._run.element(position))
        return element


@frozen
class Conversation:
    """A request's elements with their hashes, and who speaks.

    `speakers` are the roles of all; `roles` are those of the first elements, by how many these
    are: of all, and of the few counts before that.
    """

    elements: Elements
    hashes: Hashes
    speakers: Roles
    roles: dict[int, Roles]

    @property
    def tail(self) -> int:
        """Where the new part begins: after the last assistant element."""
        return self.speakers.assistant + 1

    @property
    def asked_from(self) -> int:
        """Where what is asked begins: the new part, or what stands before an answer's beginning.

        Clients put the first words of an answer into the assistant's mouth.
        """
        return self.speakers.answered + 1

    def user_input(self) -> str | None:
        """The text of the last user element; None without one."""
        position = self.speakers.user
        return None if position < 0 else text_of(self.elements[position].get("content"))

    def tool_call_ids(self) -> list[str]:
        """The calls that the new part brings results for, in order."""
        found = map(self.answers, range(self.tail, len(self.elements)))
        return [call_id for call_id in found if call_id is not None]

    def answers(self, position: int) -> str | None:
        """The call that an element is the result of; None for any other one."""
        element = self.elements[position]
        call_id = element.get("tool_call_id") if element.get("role") == "tool" else None
        return call_id if isinstance(call_id, str) else None

    def has_user_tail(self) -> bool:
        """Whether the new part holds a user message."""
        return self.speakers.user >= self.tail

    def history(self, before: History | None) -> History:
        """What the session's next request is compared with; `before` is what this one was.

        Without a system prompt of its own, the last one recorded stays the one to compare with.
        """
        system = frozenset(digest for _, digest in self.speakers.system)
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
            for position, digest in self.speakers.system
            if position < self.tail and digest not in known
        ]
        return prompts + self._asked(before) + list(range(self.tail, len(self.elements)))

    def _asked(self, before: History | None) -> list[int]:
        """What users say before an answer's beginning, unless the previous request had it too."""
        if self.tail < len(self.elements):
            return []
        has_appended = before is not None and self.compare(before) == "appended"
        first = max(self.asked_from, before.count if before and has_appended else 0)
        asked = range(first, self.speakers.user + 1)
        return [position for position in asked if self.elements[position].get("role") == "user"]


def read_conversation(
    new: list[dict[str, Any]],
    hashes: Hashes,
    run: Run | None = None,
    roles: Roles | None = None,
    *,
    goes_on: bool = True,
) -> Conversation:
    """A conversation from its elements' hashes and those elements that are not in a known run.

    `roles` are the run's. One that `goes_on` has the roles of its beginnings too: later bodies are
    compared with these.
    """
    total, known = len(hashes), len(run) if run is not None else 0
    count = max(known, total - LATEST + 1) if goes_on else total
    speakers = (roles or Roles()).then(new[: count - known], hashes, known)
    by_count = {count: speakers}
    for at in range(count, total):
        speakers = speakers.then((new[at - known],), hashes, at)
        by_count[at + 1] = speakers
    return Conversation(Elements(run, new), hashes, speakers, by_count)


def is_system(element: Mapping[str, Any]) -> bool:
    """Whether an element is a system prompt; roles come from clients and may be anything."""
    return element.get("role") in SYSTEM_ROLES
