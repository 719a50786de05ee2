"""What a unit of work may do inside the writer's transaction: rows in, events out."""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from xgw import clock
from xgw.events import TEXTS, Envelope, cut_texts
from xgw.store.layouts import laid_out
from xgw.store.pins import Kept
from xgw.store.rows import REFERENCE, PayloadRow, digest, is_long, key_named, opened, put
from xgw.store.templates import take_out_texts

Row = Mapping[str, Any]

PAYLOAD_COLUMNS = ("hash", "size", "codec", "data")
EVENT_COLUMNS = (
    "type",
    "at",
    "project_id",
    "session_id",
    "turn_id",
    "run_id",
    "step_id",
    "payload",
)
MOST_IN_EVENTS = 65536
"""Length up to which an event's text is kept whole: reading a page of events takes no more."""

# Few sizes, so that SQLite has each statement compiled.
SIZES = (64, 32, 16, 8, 4, 2, 1)

_statements: dict[tuple[Any, ...], str] = {}


def _json_text(value: Any) -> str:
    return orjson.dumps(value).decode()


# sqlite3 looks adapters up in C, for these types alone: cheaper than a look at every value.
sqlite3.register_adapter(datetime.datetime, clock.to_db)
sqlite3.register_adapter(dict, _json_text)
sqlite3.register_adapter(list, _json_text)


class _Event(NamedTuple):
    type: str
    at: datetime.datetime
    project_id: str
    session_id: str | None
    turn_id: str | None
    run_id: str | None
    step_id: str | None
    payload: dict[str, Any]
    texts: dict[str, str]


class Transaction:
    """One open write transaction. Times and JSON values may be given as Python has them.

    `after_commit` holds functions that the writer calls once the commit has succeeded.
    """

    def __init__(self, connection: sqlite3.Connection, kept: Kept | None = None) -> None:
        self._connection = connection
        self._kept = kept or Kept()
        self._there: set[str] = set()
        self._events: list[_Event] = []
        self._written: list[Envelope] = []
        self.after_commit: list[Callable[[], None]] = []

    def insert(self, table: str, row: Row) -> None:
        """One new row."""
        self._connection.execute(_insert("INSERT", table, tuple(row), 1), tuple(row.values()))

    def insert_many(self, table: str, rows: Sequence[Row]) -> None:
        """New rows of the same columns."""
        if rows:
            self._insert_all("INSERT", table, tuple(rows[0]), [tuple(row.values()) for row in rows])

    def update(self, table: str, changes: Row, where: Row) -> int:
        """Change the rows whose columns equal `where`; returns how many."""
        key = (table, tuple(changes), tuple(where))
        statement = _statements.get(key)
        if statement is None:
            sets = ", ".join(f"{name} = ?" for name in changes)
            tests = " AND ".join(f"{name} = ?" for name in where)
            statement = _statements[key] = f"UPDATE {table} SET {sets} WHERE {tests}"
        values = (*changes.values(), *where.values())
        return self._connection.execute(statement, values).rowcount

    def execute(self, statement: str, params: Iterable[Any] = ()) -> sqlite3.Cursor:
        """Any other statement."""
        return self._connection.execute(statement, tuple(params))

    def execute_named(self, statement: str, params: dict[str, Any]) -> sqlite3.Cursor:
        """Any other statement, its parameters by name."""
        return self._connection.execute(statement, params)

    def one(self, statement: str, params: Iterable[Any] = ()) -> tuple[Any, ...] | None:
        """The first row, or None."""
        row: tuple[Any, ...] | None = self.execute(statement, params).fetchone()
        return row

    def insert_payloads(self, rows: Sequence[PayloadRow]) -> None:
        """Payload rows; those already there stay."""
        self._insert_all("INSERT OR IGNORE", "payloads", PAYLOAD_COLUMNS, rows)
        self._there.update(row[0] for row in rows)

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
        return REFERENCE + self.keep(orjson.dumps(text))

    def json_column(self, value: Any) -> str | None:
        """What a JSON column holds for a value: likewise, if there are long texts in it."""
        if value is None:
            return None
        content = orjson.dumps(value)
        if take_out_texts(content) is None:
            return content.decode()
        return _json_text(REFERENCE + self.keep(content))

    def text_in(self, column: str | None) -> str | None:
        """The text that a column holds, or whose payload it names."""
        key = key_named(column)
        if key is None:
            return column
        row = self.one("SELECT codec, data FROM payloads WHERE hash = ?", (key,))
        text: str | None = orjson.loads(opened(*row)) if row else None
        return text

    def _has(self, key: str) -> bool:
        if key in self._there:
            return True
        if self._kept.sweeping:
            return False
        if self.one("SELECT 1 FROM payloads WHERE hash = ?", (key,)) is None:
            return False
        self._there.add(key)
        return True

    def _insert_all(
        self, verb: str, table: str, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]
    ) -> None:
        """Many rows in one statement: each step of SQLite lets other threads run in between."""
        at = 0
        while at < len(rows):
            count = next(size for size in SIZES if size <= len(rows) - at)
            values = [value for row in rows[at : at + count] for value in row]
            self._connection.execute(_insert(verb, table, columns, count), values)
            at += count

    def emit(
        self,
        type: str,
        at: datetime.datetime,
        project_id: str,
        payload: dict[str, Any],
        *,
        session_id: str | None = None,
        turn_id: str | None = None,
        run_id: str | None = None,
        step_id: str | None = None,
    ) -> None:
        """An event of this transaction; its texts are cut at 4 KiB."""
        cut, texts = cut_texts(payload), _texts_to_keep(payload)
        self._events.append(
            _Event(type, at, project_id, session_id, turn_id, run_id, step_id, cut, texts)
        )

    def write_events(self) -> list[Envelope]:
        """Write the events, in order; returns all that were written, with their `seq`.

        That is the last thing to do, and before it only for what has to come after them in the
        store. The write lock is held, so the numbers that they get follow on one another.
        """
        events, self._events = self._events, []
        if not events:
            return self._written
        rows = [(*event[:-2], self._as_stored(event)) for event in events]
        self._insert_all("INSERT", "events", EVENT_COLUMNS, rows)
        last = self._connection.execute("SELECT last_insert_rowid()").fetchone()[0]
        first = last - len(events) + 1
        self._written += [Envelope(seq, *event[:-1]) for seq, event in enumerate(events, first)]
        return self._written

    def _as_stored(self, event: _Event) -> str:
        """The payload with references to its long texts, whole: other rows have the same ones."""
        payload = event.payload
        if event.texts:
            texts = event.texts.items()
            payload = payload | {n: {"payload": self.keep(orjson.dumps(t))} for n, t in texts}
        return _json_text(laid_out(payload, event.turn_id, event.session_id))


def _texts_to_keep(payload: dict[str, Any]) -> dict[str, str]:
    texts = ((name, payload.get(name)) for name in TEXTS)
    return {
        name: text
        for name, text in texts
        if text is not None and is_long(text) and len(text) <= MOST_IN_EVENTS
    }


def _insert(verb: str, table: str, columns: tuple[str, ...], rows: int) -> str:
    statement = _statements.get((verb, table, columns, rows))
    if statement is None:
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        values = ", ".join([f"({marks})"] * rows)
        statement = f"{verb} INTO {table} ({names}) VALUES {values}"
        _statements[verb, table, columns, rows] = statement
    return statement
