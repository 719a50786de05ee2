"""What the store still refers to: the marks of a sweep, in a temporary table on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import orjson

from xgw.store import told
from xgw.store.database import Store
from xgw.store.digits import packed_hash, whole_hash
from xgw.store.rows import leads_to

ROWS = 2000
BODIES = 200

COLUMNS = (
    ("turns", "input_payload"),
    ("turns", "config_snapshot"),
    ("steps", "input_payload"),
    ("steps", "output_payload"),
    ("request_logs", "request_payload"),
    ("request_logs", "response_body"),
)
"""Where a row names a payload by its hash."""

MARKED = "CREATE TEMP TABLE marked (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE)"
MARK = "INSERT OR IGNORE INTO temp.marked (hash) "
INSIDE = "rowid > ? AND rowid <= ?"
PARTS = f"SELECT parts FROM messages WHERE {INSIDE} AND parts LIKE '%\"payload\"%'"
# Where a column is the name of a payload, not the value itself.
NAMES = (
    ("messages", "substr(content, 2)", "substr(content, 1, 1) = char(31)"),
    ("messages", "substr(parts, 8, 32)", "substr(parts, 1, 7) = '\"\\u001f'"),
    ("turns", "substr(user_input, 2)", "substr(user_input, 1, 1) = char(31)"),
    ("turns", "substr(final_output, 2)", "substr(final_output, 1, 1) = char(31)"),
)
TOLD = f"SELECT payload FROM events WHERE {INSIDE}"
# In the order in which they were marked: what a body refers to is marked behind it.
BODIES_MARKED = (
    "SELECT p.codec, p.data FROM temp.marked m JOIN payloads p ON p.hash = m.hash "
    "WHERE m.id > ? AND m.id <= ? AND p.codec IN ('parts', 'list', 'stream')"
)
LAST_OF_NEXT = "SELECT hash FROM payloads WHERE hash > ? ORDER BY hash LIMIT 1 OFFSET ?"
UNMARKED = (
    "SELECT hash FROM payloads p WHERE hash > ? AND hash <= ? "
    "AND NOT EXISTS (SELECT 1 FROM temp.marked m WHERE m.hash = p.hash) ORDER BY hash"
)
# Texts, which no hash of xgw's own is, stand before all bytes.
FIRST, BEYOND = "", b"\xff" * 17
"""Smaller and greater than every hash."""


class Marks:
    """Marks on hashes, for one thread and a `with` block; many short statements.

    `breathe` is called between them and may raise to end the work.
    """

    def __init__(self, store: Store, breathe: Callable[[], None]) -> None:
        self._breathe = breathe
        self._connection = store.open_writer()
        self._connection.execute(MARKED)

    def __enter__(self) -> Marks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def mark(self, hashes: Iterable[str]) -> None:
        """These are needed."""
        self._connection.executemany(f"{MARK} VALUES (?)", [(packed_hash(key),) for key in hashes])

    def mark_referenced(self) -> None:
        """Everything that rows refer to, and everything that those payloads refer to."""
        for table, column in COLUMNS:
            for start, end in self._ranges(table, "rowid", ROWS):
                found = f"SELECT packed_hash({column}) FROM {table} WHERE {INSIDE}"
                named = f"{found} AND {column} IS NOT NULL"
                self._connection.execute(MARK + named, (start, end))
        for table, key, is_name in NAMES:
            for start, end in self._ranges(table, "rowid", ROWS):
                found = f"SELECT packed_hash({key}) FROM {table} WHERE {INSIDE} AND {is_name}"
                self._connection.execute(MARK + found, (start, end))
        for start, end in self._ranges("messages", "rowid", ROWS):
            for (parts,) in self._rows(PARTS, start, end):
                self.mark(_named_in(orjson.loads(parts)))
        for start, end in self._ranges("events", "rowid", ROWS):
            for (payload,) in self._rows(TOLD, start, end):
                self.mark(_named_in(told.unpacked(payload)))
        for start, end in self._ranges("temp.marked", "id", BODIES):
            for codec, data in self._rows(BODIES_MARKED, start, end):
                self.mark(leads_to(codec, data))

    def unmarked(self) -> Iterator[list[str]]:
        """Payloads without a mark, in lists that may be empty."""
        start: str | bytes = FIRST
        while start != BEYOND:
            self._breathe()
            last = self._connection.execute(LAST_OF_NEXT, (start, ROWS - 1)).fetchone()
            end = last[0] if last else BEYOND
            yield [whole_hash(row[0]) for row in self._rows(UNMARKED, start, end)]
            start = end

    def _ranges(self, table: str, key: str, size: int) -> Iterator[tuple[int, int]]:
        """Up to the last row, which may be one that came since."""
        start = 0
        while True:
            newest = self._connection.execute(f"SELECT max({key}) FROM {table}").fetchone()[0]
            if newest is None or start >= newest:
                return
            self._breathe()
            end = min(start + size, newest)
            yield start, end
            start = end

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()


def _named_in(value: Any) -> Iterator[str]:
    """The hashes of `{"payload": hash}` anywhere in a JSON value."""
    if isinstance(value, dict):
        key = value.get("payload")
        if isinstance(key, str):
            yield key
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            yield from _named_in(entry)
