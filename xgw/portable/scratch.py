"""What an export notes on its way, on the disk: a database of its own that is gone when closed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator

_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE chosen (tab TEXT, key, PRIMARY KEY (tab, key)) WITHOUT ROWID;
CREATE TABLE noted (name TEXT PRIMARY KEY, hash TEXT, size INTEGER) WITHOUT ROWID;
BEGIN;
"""

Key = str | int


class Scratch:
    """Keys that were chosen, by table, and bodies that were written; for one thread."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect("", isolation_level=None)
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        """Forget everything."""
        self._connection.close()

    def choose(self, table: str, keys: Iterable[Key]) -> None:
        """These rows are wanted; each once."""
        rows = ((table, key) for key in keys)
        self._connection.executemany("INSERT OR IGNORE INTO chosen VALUES (?, ?)", rows)

    def chosen(self, table: str, count: int) -> Iterator[list[Key]]:
        """The wanted keys of a table in order, so many at a time."""
        found = "SELECT key FROM chosen WHERE tab = ? ORDER BY key"
        with contextlib.closing(self._connection.execute(found, (table,))) as cursor:
            while rows := cursor.fetchmany(count):
                yield [row[0] for row in rows]

    def note(self, name: str, hash: str | None, size: int) -> None:
        """The body of this name has this hash in the bundle; None where it is not to be had."""
        self._connection.execute("INSERT INTO noted VALUES (?, ?, ?)", (name, hash, size))

    def noted(self, name: str) -> tuple[str | None, int] | None:
        """Hash and size of a body that was noted."""
        found = "SELECT hash, size FROM noted WHERE name = ?"
        row: tuple[str | None, int] | None = self._connection.execute(found, (name,)).fetchone()
        return row
