"""What stands for each secret, and the account of it: what was masked, how often and where."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from xgw.portable.redaction.finds import Find, Kind

Place = tuple[str, str, str]
"""Table, id and field of what a text comes from."""

_MOST_PLACES = 20
_MOST_NOTICED = 10_000
_NUMBERED = re.compile(
    r"\[(?:key|secret|cookie|email|phone|card|user|pattern|private-key)-([1-9][0-9]{0,99})\]"
)


@dataclass(slots=True)
class _Entry:
    kind: Kind
    placeholder: str
    count: int = 0
    places: dict[Place, None] = field(default_factory=dict)
    more: int = 0
    last: Place | None = None


class Placeholders:
    """One placeholder for each value, the same wherever it stands; `taken` are not given again.

    What looks like one in a text, and is none of those taken, has to be noticed: a placeholder like
    it would stand for two things. Numbers are above `floor` where there are too many of these.
    """

    def __init__(self, taken: Iterable[str] = (), floor: int = 0) -> None:
        self._taken = frozenset(taken)
        self._floor = floor
        self._entries: dict[str, _Entry] = {}
        self._numbers: dict[Kind, int] = {}
        self._noticed: set[str] = set()
        self._highest = floor

    def take(self, placeholders: Iterable[str]) -> None:
        """Do not give these."""
        self._taken |= frozenset(placeholders)

    def notice(self, text: str) -> None:
        """See which placeholders stand in a text that is not masked yet."""
        for found in _NUMBERED.finditer(text):
            if found[0] in self._taken or int(found[1]) <= self._floor:
                continue
            self._highest = max(self._highest, int(found[1]))
            if len(self._noticed) < _MOST_NOTICED:
                self._noticed.add(found[0])

    @property
    def are_ambiguous(self) -> bool:
        """Whether one that was given stands in a text by itself."""
        if len(self._noticed) == _MOST_NOTICED:
            return bool(self._entries)
        return any(entry.placeholder in self._noticed for entry in self._entries.values())

    def renewed(self) -> Placeholders:
        """None was given yet, and those that were noticed are not."""
        if len(self._noticed) == _MOST_NOTICED:
            return Placeholders(self._taken, self._highest)
        return Placeholders(self._taken | self._noticed, self._floor)

    def of(self, find: Find, at: Place) -> str:
        """What is put in the place of this find, which is counted."""
        entry = self._entries.get(find.value)
        if entry is None:
            entry = _Entry(find.kind, self._next(find.kind))
            self._entries[find.value] = entry
        if find.rest:
            return ""
        entry.count += 1
        if at not in entry.places and at != entry.last:
            if len(entry.places) < _MOST_PLACES:
                entry.places[at] = None
            else:
                entry.more += 1
        entry.last = at
        return f"{find.quote}{entry.placeholder}{find.quote}"

    def report(self) -> list[dict[str, Any]]:
        """An entry for each value, in the order in which they were met, without the values."""
        return [_told(entry) for entry in self._entries.values()]

    def _next(self, kind: Kind) -> str:
        while True:
            number = self._numbers.get(kind, self._floor) + 1
            self._numbers[kind] = number
            if (placeholder := f"[{kind}-{number}]") not in self._taken:
                return placeholder


def _told(entry: _Entry) -> dict[str, Any]:
    places = [
        {"table": table, "id": identifier, "field": name}
        for table, identifier, name in entry.places
    ]
    told = {
        "kind": entry.kind,
        "placeholder": entry.placeholder,
        "count": entry.count,
        "places": places,
    }
    return {**told, "more": entry.more} if entry.more else told
