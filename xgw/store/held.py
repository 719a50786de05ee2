"""Rows that a transaction holds in memory: made or read there, and written once, at its end.

A short call begins and ends in one transaction as a rule, and sixteen of them share it: so each
table gets one statement for all of them, and an index each row once, in its last state.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from xgw import clock

PARENTS_FIRST = ("sessions", "turns", "runs", "steps", "messages", "request_logs")

Values = Mapping[str, Any]


class HeldRow(msgspec.Struct, eq=False):
    """One row as it will be; `changes` is what is to be written of one that the file has."""

    values: dict[str, Any]
    changes: dict[str, Any] | None = None

    @property
    def is_new(self) -> bool:
        """Whether the file does not have it yet."""
        return self.changes is None

    def get(self, column: str) -> Any:
        """A column, as a statement would read it; None for one that nobody has set.

        JSON is what it is: text in a row that was read, a value in one that was made.
        """
        value = self.values.get(column)
        return clock.to_db(value) if isinstance(value, datetime.datetime) else value

    def plain(self, columns: Sequence[str]) -> dict[str, Any]:
        """Several columns that hold no time."""
        return dict(zip(columns, map(self.values.get, columns), strict=True))

    def set(self, changes: Values) -> None:
        """Change columns."""
        self.values.update(changes)
        if self.changes is not None:
            self.changes.update(changes)

    def add(self, amounts: Values) -> None:
        """Add to columns; None adds nothing, and to unknown it is all there is."""
        self.set({k: (self.values.get(k) or 0) + n for k, n in amounts.items() if n is not None})

    def matches(self, values: Values) -> bool:
        """Whether the row has these values."""
        return all(self.values.get(column) == value for column, value in values.items())


class HeldRows:
    """What one transaction holds, by table and id."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, HeldRow]] = {table: {} for table in PARENTS_FIRST}
        self._numbers: dict[tuple[str, str], int] = {}
        self._any = False

    def __bool__(self) -> bool:
        return self._any

    def make(self, table: str, values: dict[str, Any]) -> None:
        """A new row."""
        self._rows[table][values["id"]] = HeldRow(values)
        self._any = True

    def keep(self, table: str, values: dict[str, Any]) -> HeldRow:
        """A row that was read from the file."""
        row = self._rows[table][values["id"]] = HeldRow(values, {})
        self._any = True
        return row

    def find(self, table: str, row_id: str | None) -> HeldRow | None:
        """The row, if it is held."""
        return self._rows[table].get(row_id) if row_id is not None else None

    def all(self, table: str) -> Iterator[HeldRow]:
        """The rows of a table that are held."""
        return iter(self._rows[table].values())

    def number(self, table: str, owner: str, count: int) -> int:
        """0, and then what was counted so far: the indexes of what belongs to a new row."""
        number = self._numbers.get((table, owner), 0)
        self._numbers[table, owner] = number + count
        return number

    def take(self) -> list[tuple[str, list[dict[str, Any]], list[HeldRow]]]:
        """Everything that is held, parents first; it is the caller's to write, all at once.

        For each table the new rows' values, and the rows that the file has.
        """
        taken = []
        for table, rows in self._rows.items():
            if rows:
                new = [row.values for row in rows.values() if row.changes is None]
                known = [row for row in rows.values() if row.changes is not None]
                taken.append((table, new, known))
                rows.clear()
        self._numbers.clear()
        self._any = False
        return taken
