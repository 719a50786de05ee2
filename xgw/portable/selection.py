"""What an export takes that names no single thing: what a list has, or all there is to read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from xgw import clock
from xgw.frozen import frozen
from xgw.portable.chosen import Root
from xgw.queries import listed
from xgw.queries.filters import NONE, QUERY, Filters
from xgw.queries.language import STATUSES
from xgw.store.database import Store

LISTS = ("sessions", "turns", "requests")

_KINDS = {"sessions": "session", "turns": "turn", "requests": "request", "loose": "request"}
_EVERYTHING = (
    ("sessions", Filters().and_also("status", *STATUSES)),
    ("turns", Filters().and_also("session_id", NONE)),
    ("loose", Filters()),
)
"""Lists that have all there is between them, each thing once."""


@frozen
class Selection:
    """Everything that fits, the newest first, each time it is gone through as it is then.

    `of` is the list, None for whatever there is; `given` its filters as names and texts, `filters`
    the same parsed; `project` bounds all of it, None is all of them.
    """

    store: Store
    of: str | None = None
    given: tuple[tuple[str, str], ...] = ()
    filters: Filters = Filters()
    project: str | None = None

    @property
    def is_everything(self) -> bool:
        """Whether nothing in the store is left out."""
        return self.of is None and self.project is None

    def __iter__(self) -> Iterator[Root]:
        for noun, filters in self._parts():
            ids = listed.list_ids(self.store, noun, filters, self.project)
            yield from (Root(_KINDS[noun], id) for id in ids)

    def count(self, until: float) -> tuple[int, bool]:
        """How many there are, and whether that is all: not where counting took until then."""
        total = 0
        for noun, filters in self._parts():
            number = listed.count(self.store, noun, filters, self.project)
            if number is None:
                ids = listed.list_ids(self.store, noun, filters, self.project)
                seen = itertools.takewhile(lambda _: clock.monotonic() < until, ids)
                return total + sum(1 for _ in seen), clock.monotonic() < until
            total += number
        return total, True

    def told(self) -> dict[str, Any] | None:
        """As a bundle tells how its rows were found; None for everything."""
        told: dict[str, Any] = {} if self.of is None else {"of": self.of}
        where: dict[str, list[str]] = {}
        for name, text in self.given:
            if name == QUERY:
                told["q"] = text
            else:
                where.setdefault(name, []).append(text)
        if where:
            told["where"] = where
        if self.project is not None:
            told["project"] = self.project
        return told or None

    def _parts(self) -> tuple[tuple[str, Filters], ...]:
        return _EVERYTHING if self.of is None else ((self.of, self.filters),)
