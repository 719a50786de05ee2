"""An export's rows and bodies, laid out on the disk: looked up by what they are in.

The rows of a source come table by table; a reader wants a turn with all that belongs to it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import orjson

from xgw.portable.chosen import TABLES
from xgw.portable.source import Source

Row = dict[str, Any]

_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE rows (tab TEXT, owner TEXT, place, row BLOB, loose_in TEXT);
CREATE TABLE bodies (hash TEXT PRIMARY KEY, at INTEGER) WITHOUT ROWID;
BEGIN;
"""
_OWNERS = {
    "turns": "session_id",
    "runs": "turn_id",
    "steps": "run_id",
    "messages": "turn_id",
    "request_logs": "turn_id",
    "events": "turn_id",
}
_PLACES = {"turns": "turn_index", "runs": "run_index", "steps": "step_index", "events": "seq"}
_PLACES |= {"messages": "message_index"}


class Shelf:
    """Rows by the row that they are in (`""` for what is in none), and bodies by their hash."""

    def __init__(self, source: Source) -> None:
        self.head = source.head()
        self.counts: dict[str, int] = {}
        self._spool = source.spool
        self._connection = sqlite3.connect("", isolation_level=None)
        self._connection.executescript(_SCHEMA)
        for table in TABLES:
            self._put(table, source)
        self._connection.execute("CREATE INDEX owned ON rows (tab, owner, place)")
        self._connection.execute(
            "CREATE INDEX loose ON rows (loose_in, place) WHERE loose_in IS NOT NULL"
        )
        self.agents = source.agents()
        self._index()
        self.tail = source.tail()

    def rows(self, table: str, owner: str | None = None) -> Iterator[Row]:
        """The rows of a table that are in `owner`, in their order; all of them without one."""
        where = "" if owner is None else " AND owner = ?"
        query = f"SELECT row FROM rows WHERE tab = ?{where} ORDER BY place, rowid"
        given = (table,) if owner is None else (table, owner)
        yield from self._read(query, given)

    def of_no_turn(self, session_id: str) -> Iterator[Row]:
        """The messages of a session that have no turn, in their order."""
        query = "SELECT row FROM rows WHERE loose_in = ? ORDER BY place, rowid"
        yield from self._read(query, (session_id,))

    def body(self, hash: str | None) -> bytes | None:
        """A body's content; None where it is not there: left out, gone, or never recorded."""
        if hash is None:
            return None
        found = self._connection.execute("SELECT at FROM bodies WHERE hash = ?", (hash,)).fetchone()
        return None if found is None else self._content(found[0])

    def text(self, hash: str | None) -> str | None:
        """A body's content as text, what is none of it shown as such."""
        content = self.body(hash)
        return None if content is None else content.decode("utf-8", "replace")

    def close(self) -> None:
        """Forget everything."""
        self._connection.close()

    def _put(self, table: str, source: Source) -> None:
        owner, place = _OWNERS.get(table, ""), _PLACES.get(table, "id")
        count = 0
        for row in source.rows(table):
            count += 1
            is_loose = table == "messages" and not row.get(owner)
            loose_in = row.get("session_id") if is_loose else None
            values = (table, row.get(owner) or "", row[place], _spelled(row), loose_in)
            self._connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", values)
        self.counts[table] = count

    def _read(self, query: str, values: tuple[str, ...]) -> Iterator[Row]:
        for (row,) in self._connection.execute(query, values):
            yield orjson.loads(row) if isinstance(row, bytes) else json.loads(row)

    def _index(self) -> None:
        self._spool.seek(0)
        at = 0
        for line in self._spool:
            hash = orjson.loads(line)["hash"]
            self._connection.execute("INSERT OR IGNORE INTO bodies VALUES (?, ?)", (hash, at))
            at += len(line)

    def _content(self, at: int) -> bytes | None:
        self._spool.seek(at)
        told = orjson.loads(self._spool.readline())
        if "text" in told:
            return str(told["text"]).encode()
        if "base64" in told:
            return base64.b64decode(told["base64"])
        if "parts" not in told:
            return None
        pieces = (p.encode() if isinstance(p, str) else self.body(p["ref"]) for p in told["parts"])
        return b"".join(piece or b"" for piece in pieces)


@contextlib.contextmanager
def shelved(source: Source) -> Iterator[Shelf]:
    """All that a source tells, to look things up in."""
    shelf = Shelf(source)
    try:
        yield shelf
    finally:
        shelf.close()


def _spelled(row: Row) -> bytes | str:
    try:
        return orjson.dumps(row)
    except TypeError:  # half of a surrogate pair
        return json.dumps(row)
