"""What every unit of work does: a status change, an event, an index, a step's first columns.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from typing import Any

from xgw import ids
from xgw.events import Envelope
from xgw.recording.facts import Scope
from xgw.recording.lifecycle import IllegalMove, Noun, allows, allows_reopen
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
    run_id = None if type.startswith(("turn.", "session.")) else scope.run_id
    turn_id = None if type.startswith("session.") else scope.turn_id
    tx.emit(
        Envelope(
            None, type, at, scope.project_id, scope.session_id, turn_id, run_id, step_id, payload
        )
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
    row = tx.one(f"SELECT status FROM {table} WHERE id = ?", (row_id,))
    old = row[0] if row else None
    legal = old is not None and (
        allows_reopen(noun, old, reopen) if reopen is not None else allows(noun, old, new)
    )
    if not legal:
        raise IllegalMove(noun, row_id, old, new)
    moved = tx.update(table, {"status": new, **changes}, {"id": row_id, "status": old})
    if not moved:
        raise IllegalMove(noun, row_id, old, new)


def next_index(tx: Transaction, counter: str, session_id: str | None) -> int:
    """The next index of a session's turns or messages, taken in this transaction."""
    if session_id is None:
        return 0
    row = tx.one(
        f"UPDATE sessions SET {counter} = {counter} + 1 WHERE id = ? RETURNING {counter}",
        (session_id,),
    )
    return int(row[0]) - 1 if row else 0


def step_head(
    tx: Transaction, scope: Scope, step_id: str, step_type: str, at: datetime.datetime
) -> dict[str, Any]:
    """The columns that every step begins with."""
    row = tx.one(
        "SELECT coalesce(max(step_index) + 1, 0) FROM steps WHERE run_id = ?", (scope.run_id,)
    )
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
