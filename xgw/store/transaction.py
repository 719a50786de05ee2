"""What a unit of work may do inside the writer's transaction: rows in, events out."""

from __future__ import annotations

import datetime
import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from xgw.events import Envelope
from xgw.store.binding import json_text
from xgw.store.digits import packed_hash
from xgw.store.emitted import COLUMNS, Told, numbered, stored_again, written
from xgw.store.held import HeldRow, HeldRows
from xgw.store.pins import Kept
from xgw.store.rows import (
    PRUNED,
    REFERENCE,
    PayloadRow,
    digest,
    is_long,
    key_named,
    opened,
    packed_rows,
    put,
)
from xgw.store.templates import take_out_texts

Row = Mapping[str, Any]
NOTHING: Row = {}

PAYLOAD_COLUMNS = ("hash", "size", "codec", "data")
UNLESS_THERE = (
    " ON CONFLICT (hash) DO UPDATE SET codec = excluded.codec, data = excluded.data"
    f" WHERE payloads.codec = '{PRUNED}'"
)
# Few sizes, so that SQLite has each statement compiled; what one request brings is one statement.
SIZES = (*range(1, 17), 32, 64)
_MOST = SIZES[-1]
_LARGEST = [max(size for size in SIZES if size <= max(1, rows)) for rows in range(_MOST + 1)]
"""The size of the statement that so many rows begin with."""

_statements: dict[tuple[Any, ...], str] = {}


class Transaction:
    """One open write transaction. Times and JSON values may be given as Python has them.

    Rows that are made by `hold` and those found by `row` stay in memory until `write`, or until a
    statement that might need them. `after_commit` holds functions that the writer calls once the
    commit has succeeded.
    """

    def __init__(self, connection: sqlite3.Connection, kept: Kept | None = None) -> None:
        self._connection = connection
        self._kept = kept or Kept()
        self._there: set[str] = set()
        self._texts: dict[str, str] = {}
        self._text_of: dict[str, str] = {}
        self._held = HeldRows()
        self._events: list[Told] = []
        self._written: list[Envelope] = []
        self.after_commit: list[Callable[[], None]] = []

    # -- rows by their id ----------------------------------------------------------------------

    def hold(self, table: str, row: dict[str, Any]) -> None:
        """One new row, written at the end along with others. It is the transaction's from now on.

        What the file has against it is only known then.
        """
        self._held.make(table, row)

    def is_new(self, table: str, row_id: str | None) -> bool:
        """Whether the row was made here and is held: nothing in the file belongs to it."""
        row = self._held.find(table, row_id)
        return row is not None and row.is_new

    def number(self, table: str, owner: str, count: int = 1) -> int:
        """The first of `count` indexes of rows that belong to one that `is_new`."""
        return self._held.number(table, owner, count)

    def row(self, table: str, row_id: str) -> HeldRow | None:
        """A row to read and to change, held from now on; None if there is none.

        To be used before the next statement: that writes it and lets go of it.
        """
        held = self._held.find(table, row_id)
        if held is not None:
            return held
        statement = f"SELECT * FROM {table} WHERE id = ?"
        cursor = self._connection.execute(statement, (row_id,))
        values = cursor.fetchone()
        if values is None:
            return None
        names = [column[0] for column in cursor.description]
        return self._held.keep(table, dict(zip(names, values, strict=True)))

    def held(self, table: str) -> Iterator[HeldRow]:
        """The rows of a table that are held."""
        return self._held.all(table)

    def stored(self, statement: str, params: Iterable[Any]) -> list[tuple[Any, ...]]:
        """What the file has, whatever is held."""
        return self._connection.execute(statement, tuple(params)).fetchall()

    def change(self, table: str, row_id: str, changes: Row, where: Row = NOTHING) -> bool:
        """Change a row if its columns equal `where`; whether they did."""
        held = self._held.find(table, row_id)
        if held is None:
            return bool(self._update(table, changes, {"id": row_id, **where}))
        if not held.matches(where):
            return False
        held.set(changes)
        return True

    def move(self, table: str, row_id: str, olds: tuple[str, ...], changes: Row) -> bool:
        """Change a row if its `status` is one of `olds`; whether it was."""
        held = self._held.find(table, row_id)
        if held is not None:
            if held.get("status") not in olds:
                return False
            held.set(changes)
            return True
        key = (table, tuple(changes), olds)
        statement = _statements.get(key)
        if statement is None:
            sets = ", ".join(f"{name} = ?" for name in changes)
            marks = ", ".join("?" * len(olds))
            statement = f"UPDATE {table} SET {sets} WHERE id = ? AND status IN ({marks})"
            _statements[key] = statement
        values = (*changes.values(), row_id, *olds)
        return bool(self._connection.execute(statement, values).rowcount)

    # -- statements ----------------------------------------------------------------------------

    def insert(self, table: str, row: Row) -> None:
        """One new row, at once."""
        self._write_rows()
        self._connection.execute(_insert("INSERT", table, tuple(row), 1), tuple(row.values()))

    def execute(self, statement: str, params: Iterable[Any] = ()) -> sqlite3.Cursor:
        """Any other statement."""
        self._write_rows()
        return self._connection.execute(statement, tuple(params))

    def execute_all(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        """One statement for each of these; how many rows they changed in all."""
        self._write_rows()
        return self._connection.executemany(statement, rows).rowcount

    def one(self, statement: str, params: Iterable[Any] = ()) -> tuple[Any, ...] | None:
        """The first row, or None."""
        row: tuple[Any, ...] | None = self.execute(statement, params).fetchone()
        return row

    def _update(self, table: str, changes: Row, where: Row) -> int:
        key = (table, tuple(changes), tuple(where))
        statement = _statements.get(key)
        if statement is None:
            sets = ", ".join(f"{name} = ?" for name in changes)
            tests = " AND ".join(f"{name} = ?" for name in where)
            statement = _statements[key] = f"UPDATE {table} SET {sets} WHERE {tests}"
        values = (*changes.values(), *where.values())
        return self._connection.execute(statement, values).rowcount

    def _write_rows(self) -> None:
        """Write what is held; from here on the file alone tells."""
        if not self._held:
            return
        for table, new, known in self._held.take():
            for columns, alike in itertools.groupby(new, tuple):
                self.insert_all("INSERT", table, columns, [*map(dict.values, alike)])
            for row in known:
                if row.changes:
                    self._update(table, row.changes, {"id": row.values["id"]})

    # -- payloads ------------------------------------------------------------------------------

    def insert_payloads(self, rows: Sequence[PayloadRow]) -> None:
        """Payload rows; those already there stay, those that were pruned are whole again."""
        packed = packed_rows(rows, self._there)
        kept = [(packed_hash(key), size, codec, data) for key, size, codec, data in packed]
        self.insert_all("INSERT", "payloads", PAYLOAD_COLUMNS, kept, UNLESS_THERE)

    def keep(self, content: bytes) -> str:
        """The hash of a body that is in the store once this transaction is committed.

        Bodies come with the requests as a rule; where they were dropped for want of memory, what
        is said in messages and events is not.
        """
        key = digest(content).hex()
        if not self._has(key):
            rows: list[PayloadRow] = []
            put(rows, key, content, self._has)
            self.insert_payloads(rows)
            for row in rows:
                self._kept.note(row[0])
        return key

    def text_column(self, text: str | None, *, plain: bool = False) -> str | None:
        """What a column holds for a text: if it is long, the name of the payload that has it.

        `plain`: the text itself as a rule, for it is searched.
        """
        is_short = plain or not is_long(text)
        if text is None or (is_short and not text.startswith(REFERENCE)):
            return text
        return REFERENCE + self._keep_text(text)

    def json_column(self, value: Any) -> str | None:
        """What a JSON column holds for a value: likewise, if there are long texts in it."""
        if value is None:
            return None
        content = orjson.dumps(value)
        if take_out_texts(content) is None:
            return content.decode()
        return json_text(REFERENCE + self.keep(content))

    def text_in(self, column: str | None) -> str | None:
        """The text that a column holds, or whose payload it names."""
        key = key_named(column)
        if key is None:
            return column
        if key in self._text_of:
            return self._text_of[key]
        rows = self.stored("SELECT codec, data FROM payloads WHERE hash = ?", (packed_hash(key),))
        text: str | None = orjson.loads(opened(*rows[0])) if rows else None
        return text

    def _keep_text(self, text: str) -> str:
        """The hash of a text's payload: a turn's are told in its row, its messages and events."""
        key = self._texts.get(text)
        if key is None:
            key = self._texts[text] = self.keep(orjson.dumps(text))
            self._text_of[key] = text
        return key

    def _has(self, key: str) -> bool:
        if key in self._there:
            return True
        if self._kept.sweeping:
            return False
        found = self.stored("SELECT codec FROM payloads WHERE hash = ?", (packed_hash(key),))
        if not found or found[0][0] == PRUNED:
            return False
        self._there.add(key)
        return True

    def insert_all(
        self,
        verb: str,
        table: str,
        columns: tuple[str, ...],
        rows: Sequence[Iterable[Any]],
        clash: str = "",
    ) -> int:
        """Many rows in one statement: each step of SQLite lets other threads run in between.

        At once, held rows are not looked at. Returns the last one's rowid, 0 without any.
        """
        at, last, left = 0, 0, len(rows)
        while left:
            count = _LARGEST[left] if left <= _MOST else _MOST
            some = rows if count == left and not at else rows[at : at + count]
            values = [*itertools.chain.from_iterable(some)]
            cursor = self._connection.execute(_insert(verb, table, columns, count, clash), values)
            last = cursor.lastrowid or last
            at, left = at + count, left - count
        return last

    # -- events --------------------------------------------------------------------------------

    def emit(
        self,
        type: str,
        at: datetime.datetime,
        project_id: str,
        payload: dict[str, Any],
        session_id: str | None = None,
        turn_id: str | None = None,
        run_id: str | None = None,
        step_id: str | None = None,
    ) -> None:
        """An event; its payload is the transaction's from now on. Its texts are cut at 4 KiB."""
        event = (type, at, project_id, session_id, turn_id, run_id, step_id, payload)
        self._events.append(event)

    def emit_again(self, envelope: Envelope) -> None:
        """An event that was told elsewhere, under its own `seq`; it is written at once.

        Its texts stay in it: they were cut when it was told.
        """
        self.insert_all("INSERT", "events", ("seq", *COLUMNS), [stored_again(envelope)])

    def write(self) -> list[Envelope]:
        """Write rows and events, in order; returns all events that were written, with their `seq`.

        That is the last thing to do, and before it only for what has to come after them in the
        store. The write lock is held, so the numbers that they get follow on one another.
        """
        self._write_rows()
        events, self._events = self._events, []
        if not events:
            return self._written
        rows, told = zip(*[written(event, self._keep_text) for event in events], strict=True)
        last = self.insert_all("INSERT", "events", COLUMNS, rows)
        self._written += numbered(told, last - len(events) + 1)
        return self._written


def _insert(verb: str, table: str, columns: tuple[str, ...], rows: int, clash: str = "") -> str:
    statement = _statements.get((verb, table, columns, rows))
    if statement is None:
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        values = ", ".join([f"({marks})"] * rows)
        statement = f"{verb} INTO {table} ({names}) VALUES {values}{clash}"
        _statements[verb, table, columns, rows] = statement
    return statement
