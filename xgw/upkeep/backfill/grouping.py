"""Which messages without a turn make one together: the strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import orjson

NO_USER = "with no message of a user before them"


class Said(NamedTuple):
    """A message without a turn; `place` is its index in the session, `content` the
    text itself, `column` what the store has of it."""

    session_id: str
    id: str
    place: int
    kind: str
    role: str | None
    column: str | None
    content: str | None
    tool_calls: str | None
    tool_call_id: str | None
    metadata: str | None
    at: str


Group = list[Said]
Skipped = tuple[str, int]
"""Why messages get no turn, and how many."""


def conversations(said: Sequence[Said], *, orphans: bool) -> Iterator[Group]:
    """The messages of one session; of `orphans` those that were in one conversation."""
    if not orphans:
        yield list(said)
        return
    found: dict[object, Group] = {}
    for one in said:
        told = orjson.loads(one.metadata or "{}").get("legacy", {}).get("conversation")
        found.setdefault(told if isinstance(told, str | int) else None, []).append(one)
    yield from found.values()


def one_a_session(said: Group) -> tuple[list[Group], list[Skipped]]:
    """One turn, from the first to the last message."""
    return ([said] if said else []), []


def by_user_message(said: Group) -> tuple[list[Group], list[Skipped]]:
    """Each message of a user begins a turn, which ends before the next one.

    What the system says before the first belongs to it; of others, that is an answer to nobody.
    """
    turns: list[Group] = []
    skipped: list[Skipped] = []
    for part in unbroken(said):
        starts = [number for number, one in enumerate(part) if one.role == "user"]
        if not starts:
            skipped.append((NO_USER, len(part)))
            continue
        bounds = zip(starts, [*starts[1:], len(part)], strict=True)
        first, *others = [part[start:end] for start, end in bounds]
        leading = [one for one in part[: starts[0]] if one.role == "system"]
        turns += [[*leading, *first], *others]
        if left := starts[0] - len(leading):
            skipped.append((NO_USER, left))
    return turns, skipped


Strategy = Callable[[Group], tuple[list[Group], list[Skipped]]]

STRATEGIES: dict[str, Strategy] = {"user-message": by_user_message, "session": one_a_session}


def unbroken(said: Group) -> list[Group]:
    """Parts of messages that follow on one another in the session."""
    if said and said[-1].place - said[0].place + 1 == len(said):
        return [said]
    parts: list[Group] = []
    for one in said:
        if parts and parts[-1][-1].place + 1 == one.place:
            parts[-1].append(one)
        else:
            parts.append([one])
    return parts
