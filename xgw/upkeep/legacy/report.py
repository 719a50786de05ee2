"""What became of an older store's rows: the counts, as far as a takeover is and at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from xgw.frozen import frozen


@frozen
class Counted:
    """The rows of one older table: how many were found, copied, there already, and refused."""

    table: str
    found: int
    copied: int
    there: int
    refused: int

    @property
    def balances(self) -> bool:
        """Whether every row is accounted for."""
        return self.found == self.copied + self.there + self.refused


@frozen
class Report:
    """What became of an older store.

    `stored` are rows in the store that say that they are from there, by older table, None where
    they were not counted. `orphans` and `renamed`: messages without a session, sessions whose id
    was the key of another one. `again`: all was there before.
    """

    counts: tuple[Counted, ...]
    refusals: tuple[tuple[str, str, str], ...] = ()
    stored: Mapping[str, int] | None = None
    orphans: int = 0
    renamed: int = 0
    again: bool = False

    @property
    def balances(self) -> bool:
        """Whether every old row is accounted for, in the store too."""
        copied = {one.table: one.copied for one in self.counts}
        stored = copied if self.stored is None else self.stored
        return all(one.balances for one in self.counts) and copied == stored


@dataclass
class State:
    """How far a takeover is, as the store keeps it."""

    found: dict[str, int] = field(default_factory=dict)
    copied: dict[str, int] = field(default_factory=dict)
    there: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    orphans: int = 0
    renamed: int = 0
    rounds: int = 1
    place: dict[str, Any] = field(default_factory=dict)

    def counts(self) -> tuple[Counted, ...]:
        """By older table."""
        columns = (self.copied, self.there, self.refused)
        return tuple(
            Counted(table, found, *(column.get(table, 0) for column in columns))
            for table, found in self.found.items()
        )

    def done(self) -> int:
        """How many rows are accounted for."""
        return sum(one.copied + one.there + one.refused for one in self.counts())
