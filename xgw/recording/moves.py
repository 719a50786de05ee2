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


def emit(
    tx: Transaction,
    scope: Scope,
    type: str,
    at: datetime.datetime,
    payload: dict[str, Any],
    step_id: str | None = None,
) -> None:
    """An event under a turn's identifiers."""
    run_id = None if type.startswith("turn.") else scope.run_id
    session_id, turn_id = scope.session_id, scope.turn_id
    tx.emit(type, at, scope.project_id, payload, session_id, turn_id, run_id, step_id)


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
    if not tx.move(table, row_id, legal_before(noun, new, reopen), {"status": new, **changes}):
        row = tx.row(table, row_id)
        raise IllegalMove(noun, row_id, row.get("status") if row else None, new)


def step_head(
    tx: Transaction,
    scope: Scope,
    step_id: str,
    step_type: str,
    at: datetime.datetime,
) -> dict[str, Any]:
    """The columns that every step begins with."""
    return {
        "id": step_id,
        "run_id": scope.run_id,
        "turn_id": scope.turn_id,
        "session_id": scope.session_id,
        "step_index": _next_index(tx, scope.run_id),
        "step_type": step_type,
        "status": "running",
        "trace_id": scope.trace_id,
        "observation_id": ids.observation_id_of(step_id),
        "started_at": at,
    }


def _next_index(tx: Transaction, run_id: str) -> int:
    if tx.is_new("runs", run_id):
        return tx.number("steps", run_id)
    row = tx.one("SELECT coalesce(max(step_index) + 1, 0) FROM steps WHERE run_id = ?", (run_id,))
    return row[0] if row else 0


def error_payload(error_type: str | None, message: str | None) -> dict[str, Any] | None:
    """An error as events show it."""
    return None if error_type is None else {"type": error_type, "message": message}
