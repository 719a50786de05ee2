"""What every unit of work does: a status change, an event, an index, a step's first columns.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from typing import Any

from xgw import ids
from xgw.recording.facts import Scope
from xgw.recording.lifecycle import IllegalMove, Noun, legal_before
from xgw.store.transaction import Transaction

TABLE: dict[Noun, str] = {"turn": "turns", "run": "runs", "step": "steps"}

_statements: dict[tuple[Any, ...], str] = {}


def emit(
    tx: Transaction,
    scope: Scope,
    type: str,
    at: datetime.datetime,
    payload: dict[str, Any],
    step_id: str | None = None,
) -> None:
    """An event under a turn's identifiers."""
    tx.emit(
        type,
        at,
        scope.project_id,
        payload,
        session_id=scope.session_id,
        turn_id=scope.turn_id,
        run_id=None if type.startswith("turn.") else scope.run_id,
        step_id=step_id,
    )


def apply(
    tx: Transaction,
    noun: Noun,
    row_id: str,
    new: str,
    changes: dict[str, Any],
    *,
    reopen: str | None = None,
) -> None:
    """Move a row to another status, with the columns that change along; the one way to do it.

    Raises IllegalMove for a move that the tables lack.
    """
    table = TABLE[noun]
    olds = legal_before(noun, new, reopen)
    key = (table, tuple(changes), olds)
    statement = _statements.get(key)
    if statement is None:
        sets = ", ".join(f"{name} = ?" for name in ("status", *changes))
        legal = ", ".join(f"'{old}'" for old in olds)
        statement = f"UPDATE {table} SET {sets} WHERE id = ? AND status IN ({legal})"
        _statements[key] = statement
    if not tx.execute(statement, (new, *changes.values(), row_id)).rowcount:
        row = tx.one(f"SELECT status FROM {table} WHERE id = ?", (row_id,))
        raise IllegalMove(noun, row_id, row[0] if row else None, new)


def step_head(
    tx: Transaction,
    scope: Scope,
    step_id: str,
    step_type: str,
    at: datetime.datetime,
    *,
    first: bool = False,
) -> dict[str, Any]:
    """The columns that every step begins with; `first` in its run."""
    next_index = "SELECT coalesce(max(step_index) + 1, 0) FROM steps WHERE run_id = ?"
    row = None if first else tx.one(next_index, (scope.run_id,))
    return {
        "id": step_id,
        "run_id": scope.run_id,
        "turn_id": scope.turn_id,
        "session_id": scope.session_id,
        "step_index": row[0] if row else 0,
        "step_type": step_type,
        "status": "running",
        "trace_id": scope.trace_id,
        "observation_id": ids.observation_id_of(step_id),
        "started_at": at,
    }


def error_payload(error_type: str | None, message: str | None) -> dict[str, Any] | None:
    """An error as events show it."""
    return None if error_type is None else {"type": error_type, "message": message}
