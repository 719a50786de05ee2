"""A store that a test fills row by row, and the statements that reading it takes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from xgw import clock, ids
from xgw.events import Envelope
from xgw.store import migrations
from xgw.store.database import Store
from xgw.store.payloads import PayloadRow, Shelf
from xgw.store.transaction import Transaction

NOON = datetime(2026, 1, 2, 12)


def at(minutes: float) -> datetime:
    """A moment so many minutes after noon."""
    return NOON + timedelta(minutes=minutes)


class FilledStore:
    """Rows go straight in; what a test does not care about has a plain value."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "xgw.db")
        migrations.migrate(self.store)
        self._connection = self.store.open_writer()
        self._transaction = Transaction(self._connection)

    def close(self) -> None:
        self._connection.close()
        self.store.close()

    def session(self, key: str | None = None, start: float = 0, **columns: Any) -> str:
        id = ids.mint("sess")
        row = {
            "id": id,
            "session_key": key or id,
            "project_id": "default",
            "kind": "chat",
            "status": "active",
            "source": "metadata",
            "created_at": at(start),
            "updated_at": at(start),
            "last_turn_at": at(start),
        }
        return self._insert("sessions", row | columns)

    def turn(self, session: str | None = None, start: float = 0, **columns: Any) -> str:
        id = ids.mint("turn")
        row = {
            "id": id,
            "project_id": "default",
            "session_id": session,
            "endpoint": "chat.completions",
            "turn_index": 0,
            "status": "success",
            "trace_id": ids.trace_id_of(id),
            "started_at": at(start),
            "ended_at": at(start + 1),
            "created_at": at(start),
            "updated_at": at(start),
        }
        return self._insert("turns", row | columns)

    def run(self, turn: str, start: float = 0, **columns: Any) -> str:
        row = {
            "id": ids.mint("run"),
            "turn_id": turn,
            "run_index": 0,
            "status": "success",
            "kind": "first",
            "started_at": at(start),
        }
        return self._insert("runs", row | columns)

    def step(self, run: str, turn: str, start: float = 0, **columns: Any) -> str:
        id = ids.mint("step")
        row = {
            "id": id,
            "run_id": run,
            "turn_id": turn,
            "step_index": 0,
            "step_type": "llm_call",
            "attempt": 1,
            "attempt_reason": "initial",
            "status": "success",
            "trace_id": ids.trace_id_of(turn),
            "observation_id": ids.observation_id_of(id),
            "started_at": at(start),
            "ended_at": at(start + 1),
        }
        return self._insert("steps", row | columns)

    def call(self, session: str | None = None, start: float = 0, **columns: Any) -> str:
        """A turn of one run with one model call, whose columns these are; its step's id."""
        index = self._connection.execute("SELECT count(*) FROM turns").fetchone()[0]
        project = columns.pop("project_id", "default")
        agent = columns.pop("agent_name", None)
        status = "success" if columns.get("status") == "running" else columns.get("status")
        turn = self.turn(
            session,
            start,
            turn_index=index if session else 0,
            project_id=project,
            agent_name=agent,
            status=status or "success",
        )
        return self.step(self.run(turn, start), turn, start, session_id=session, **columns)

    def message(self, session: str, turn: str, index: int, **columns: Any) -> str:
        row = {
            "id": ids.mint("msg"),
            "session_id": session,
            "turn_id": turn,
            "message_index": index,
            "kind": "message",
            "role": "user",
            "created_at": at(index),
        }
        return self._insert("messages", row | columns)

    def request(self, turn: str | None = None, start: float = 0, **columns: Any) -> str:
        row = {
            "id": ids.mint("req"),
            "project_id": "default",
            "turn_id": turn,
            "method": "POST",
            "status_code": 200,
            "started_at": at(start),
            "ended_at": at(start + 1),
        }
        return self._insert("request_logs", row | columns)

    def change(self, table: str, id: str, **columns: Any) -> None:
        """A row that is there already has these values now."""
        sets = ", ".join(f"{name} = ?" for name in columns)
        values = tuple(clock.to_db(v) if isinstance(v, datetime) else v for v in columns.values())
        self._transaction.execute(f"UPDATE {table} SET {sets} WHERE id = ?", (*values, id))

    def body(self, content: Any) -> str:
        """The hash of a body: bytes as they are, anything else as JSON."""
        raw = content if isinstance(content, bytes) else orjson.dumps(content)
        stored = Shelf().request(raw)
        self._transaction.insert_payloads(stored.rows)
        return stored.hash

    def keep_rows(self, rows: Iterable[PayloadRow]) -> None:
        """The rows of bodies."""
        self._transaction.insert_payloads(rows)

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """All that is filled in meanwhile is one transaction: for much of it."""
        self._connection.execute("BEGIN")
        yield
        self._connection.execute("COMMIT")

    def envelope(self, type: str, session: str | None = None, **payload: Any) -> Envelope:
        """An event that is not stored yet."""
        return Envelope(None, type, at(0), "default", session, None, None, None, payload)

    def text(self, text: str) -> str | None:
        """What a column holds for a text, whatever its length."""
        return self._transaction.text_column(text)

    def json(self, value: Any) -> str | None:
        """What a JSON column holds for a value with texts of any length."""
        return self._transaction.json_column(value)

    def event(self, type: str, session: str | None = None, **payload: Any) -> int:
        """A stored event's `seq`; nobody is told of it."""
        return self.keep(self.envelope(type, session, **payload))

    def keep(self, envelope: Envelope) -> int:
        """Store an event; nobody is told of it."""
        transaction = Transaction(self._connection)
        tell(transaction, envelope)
        seq = transaction.write()[-1].seq
        assert seq is not None
        return seq

    def forget(self, hash: str) -> None:
        """Delete a body, as pruning does."""
        self._transaction.execute("DELETE FROM payloads WHERE hash = packed_hash(?)", (hash,))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else can write meanwhile."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    def explain(self, statement: tuple[str, list[Any]]) -> str:
        """How SQLite would answer a statement."""
        text, params = statement
        rows = self.store.sql(f"EXPLAIN QUERY PLAN {text}", tuple(params))
        return "\n".join(row[3] for row in rows)

    def _insert(self, table: str, row: dict[str, Any]) -> str:
        self._transaction.insert(table, row)
        return str(row["id"])


def tell(tx: Transaction, envelope: Envelope) -> None:
    """An event like this one, in a transaction."""
    tx.emit(
        envelope.type,
        envelope.at,
        envelope.project_id,
        envelope.payload,
        session_id=envelope.session_id,
        turn_id=envelope.turn_id,
        run_id=envelope.run_id,
        step_id=envelope.step_id,
    )


class _Listener(logging.Handler):
    def __init__(self, meanwhile: Callable[[], object] | None, number: int) -> None:
        super().__init__(logging.DEBUG)
        self.statements: list[tuple[str, list[Any]]] = []
        self._meanwhile, self._number = meanwhile, number

    def createLock(self) -> None:
        """None: what happens meanwhile may be another thread's work, with statements."""
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        statement: Any = record.msg
        if record.name != "peewee" or str(record.threadName).startswith("xgw-"):
            return
        if statement[0].lstrip().startswith(("SELECT", "WITH")):
            self.statements.append((statement[0], list(statement[1] or ())))
            if self._meanwhile is not None and len(self.statements) == self._number:
                self._meanwhile()


@contextlib.contextmanager
def selects(
    meanwhile: Callable[[], object] | None = None, number: int = 2
) -> Iterator[list[tuple[str, list[Any]]]]:
    """The SELECT statements, with their parameters, that were run inside.

    Not those of the server's own threads, which look for something now and then. `meanwhile` is
    what happens before the statement of this `number`.
    """
    log, listener = logging.getLogger("peewee"), _Listener(meanwhile, number)
    before = log.level
    log.addHandler(listener)
    log.setLevel(logging.DEBUG)
    try:
        yield listener.statements
    finally:
        log.setLevel(before)
        log.removeHandler(listener)
