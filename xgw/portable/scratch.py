"""What an export notes on its way, on the disk: a database of its own that is gone when closed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from xgw.frozen import frozen

_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE chosen (tab TEXT, key, PRIMARY KEY (tab, key)) WITHOUT ROWID;
CREATE TABLE noted (name TEXT PRIMARY KEY, hash TEXT, size INTEGER, edited) WITHOUT ROWID;
CREATE TABLE kept (hash TEXT PRIMARY KEY, content) WITHOUT ROWID;
CREATE TABLE edits (name TEXT PRIMARY KEY, told TEXT) WITHOUT ROWID;
BEGIN;
"""

Key = str | int


@frozen
class Noted:
    """A body in the bundle: its hash, None where it is not to be had, and its size in bytes.

    `edited` is whether its content is not the store's.
    """

    hash: str | None
    size: int
    edited: bool = False


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
        cursor = self._connection.execute(found, (table,))
        while rows := cursor.fetchmany(count):
            yield [row[0] for row in rows]

    def note(self, name: str, noted: Noted) -> None:
        """What became of the body, or the part of one, that has this name."""
        row = (name, noted.hash, noted.size, noted.edited)
        self._connection.execute("INSERT INTO noted VALUES (?, ?, ?, ?)", row)

    def noted(self, name: str) -> Noted | None:
        """What became of it; None if it was not met yet."""
        found = "SELECT hash, size, edited FROM noted WHERE name = ?"
        row = self._connection.execute(found, (name,)).fetchone()
        return None if row is None else Noted(row[0], row[1], bool(row[2]))

    def keep(self, hash: str, content: bytes | str | None) -> bool:
        """Keep what the bundle has under a hash: bytes, its parts as JSON, None for what the store
        has; False if it is kept already.
        """
        rows = self._connection.execute("INSERT OR IGNORE INTO kept VALUES (?, ?)", (hash, content))
        return rows.rowcount > 0

    def kept(self, hash: str) -> bytes | str | None:
        """What was kept under a hash."""
        found = "SELECT content FROM kept WHERE hash = ?"
        row = self._connection.execute(found, (hash,)).fetchone()
        return None if row is None else row[0]

    def keep_edits(self, name: str, told: str) -> None:
        """Keep how the body of this name was edited."""
        self._connection.execute("INSERT OR IGNORE INTO edits VALUES (?, ?)", (name, told))

    def edits(self, name: str) -> str:
        """How it was; nothing unless it was."""
        found = "SELECT told FROM edits WHERE name = ?"
        row = self._connection.execute(found, (name,)).fetchone()
        return "[]" if row is None else str(row[0])
