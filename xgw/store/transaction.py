"""What a unit of work may do inside the writer's transaction: rows in, events out."""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from xgw import clock
from xgw.events import Envelope, cut_texts

Row = Mapping[str, Any]

INSERT_PAYLOAD = "INSERT OR IGNORE INTO payloads (hash, size, codec, data) VALUES (?, ?, ?, ?)"
INSERT_EVENT = (
    "INSERT INTO events (type, at, project_id, session_id, turn_id, run_id, step_id, payload) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)

_statements: dict[tuple[Any, ...], str] = {}


class Transaction:
    """One open write transaction; `events` are published after the commit, in order.

    `after_commit` holds functions that the writer calls once the commit has succeeded.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.events: list[Envelope] = []
        self.after_commit: list[Callable[[], None]] = []

    def insert(self, table: str, row: Row) -> None:
        """One new row."""
        columns = tuple(row)
        statement = _statements.get((table, columns))
        if statement is None:
            names, marks = ", ".join(columns), ", ".join("?" * len(columns))
            statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
            _statements[table, columns] = statement
        self._connection.execute(statement, [to_sql(value) for value in row.values()])

    def update(self, table: str, changes: Row, where: Row) -> int:
        """Change the rows whose columns equal `where`; returns how many."""
        key = (table, tuple(changes), tuple(where))
        statement = _statements.get(key)
        if statement is None:
            sets = ", ".join(f"{name} = ?" for name in changes)
            tests = " AND ".join(f"{name} = ?" for name in where)
            statement = _statements[key] = f"UPDATE {table} SET {sets} WHERE {tests}"
        values = [to_sql(value) for value in (*changes.values(), *where.values())]
        return self._connection.execute(statement, values).rowcount

    def execute(self, statement: str, params: Iterable[Any] = ()) -> sqlite3.Cursor:
        """Any other statement."""
        return self._connection.execute(statement, [to_sql(value) for value in params])

    def one(self, statement: str, params: Iterable[Any] = ()) -> tuple[Any, ...] | None:
        """The first row, or None."""
        row: tuple[Any, ...] | None = self.execute(statement, params).fetchone()
        return row

    def insert_payloads(self, rows: Iterable[tuple[str, int, str, bytes]]) -> None:
        """Payload rows; those already there stay."""
        self._connection.executemany(INSERT_PAYLOAD, rows)

    def emit(self, envelope: Envelope) -> None:
        """Write an event; its `seq` is taken here."""
        payload = cut_texts(envelope.payload)
        cursor = self._connection.execute(
            INSERT_EVENT,
            (
                envelope.type,
                clock.to_db(envelope.at),
                envelope.project_id,
                envelope.session_id,
                envelope.turn_id,
                envelope.run_id,
                envelope.step_id,
                orjson.dumps(payload).decode(),
            ),
        )
        seq = cursor.lastrowid
        assert seq is not None
        self.events.append(
            Envelope(
                seq,
                envelope.type,
                envelope.at,
                envelope.project_id,
                envelope.session_id,
                envelope.turn_id,
                envelope.run_id,
                envelope.step_id,
                payload,
            )
        )


def to_sql(value: Any) -> Any:
    """A Python value as SQLite keeps it."""
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    if isinstance(value, datetime.datetime):
        return clock.to_db(value)
    return orjson.dumps(value).decode()
