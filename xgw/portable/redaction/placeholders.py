"""What stands for each secret, and the account of it: what was masked, how often and where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from xgw.portable.redaction.finds import Find, Kind

Place = tuple[str, str, str]
"""Table, id and field of what a text comes from."""

_MOST_PLACES = 20


@dataclass(slots=True)
class _Entry:
    kind: Kind
    placeholder: str
    count: int = 0
    places: dict[Place, None] = field(default_factory=dict)
    more: int = 0
    last: Place | None = None


class Placeholders:
    """One placeholder for each value, the same wherever it stands; `taken` are not given again."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = frozenset(taken)
        self._entries: dict[str, _Entry] = {}
        self._numbers: dict[Kind, int] = {}

    def take(self, placeholders: Iterable[str]) -> None:
        """Do not give these."""
        self.taken |= frozenset(placeholders)

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
            number = self._numbers.get(kind, 0) + 1
            self._numbers[kind] = number
            if (placeholder := f"[{kind}-{number}]") not in self.taken:
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
