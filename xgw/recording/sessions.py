"""Sessions: the rows that begin and wake, and which of their turns is the active one.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from typing import Any

import orjson

from xgw.recording.facts import Scope, SessionFacts
from xgw.store.transaction import Transaction


def open_session(tx: Transaction, session: SessionFacts, at: datetime.datetime) -> None:
    """A session's row and `session.created`."""
    row = {
        "id": session.id,
        "session_key": session.session_key,
        "project_id": session.project_id,
        "org_id": session.org_id,
        "api_key_id": session.api_key_id,
        "end_user_id": session.end_user_id,
        "task_id": session.task_id,
        "kind": session.kind,
        "model": session.model,
        "title": session.title,
        "status": "active",
        "source": session.source,
        "metadata": session.metadata,
        "budget": session.budget,
        "created_at": at,
        "updated_at": at,
    }
    tx.insert("sessions", row)
    payload = {
        "session_key": session.session_key,
        "kind": session.kind,
        "title": session.title,
        "agent": None,
        "model": session.model,
        "mode": None,
        "tools": None,
        "context_window": None,
        "budget": session.budget,
        "source": session.source,
    }
    tx.emit("session.created", at, session.project_id, payload, session_id=session.id)


def wake_session(
    tx: Transaction,
    project_id: str,
    session_id: str,
    changes: dict[str, Any],
    at: datetime.datetime,
) -> None:
    """Traffic makes a closed session active again; a task or user it names is taken over."""
    row = tx.one("SELECT status, task_id, end_user_id FROM sessions WHERE id = ?", (session_id,))
    if row is None:
        return
    now = {"status": row[0], "task_id": row[1], "end_user_id": row[2]}
    wanted = {**changes, **({"status": "active"} if row[0] == "closed" else {})}
    changed = {k: v for k, v in wanted.items() if v is not None and now.get(k) != v}
    if not changed:
        return
    tx.update("sessions", {**changed, "updated_at": at}, {"id": session_id})
    tx.emit("session.updated", at, project_id, changed, session_id=session_id)


def change_session(
    tx: Transaction,
    project_id: str,
    session_id: str,
    changes: dict[str, Any],
    at: datetime.datetime,
) -> None:
    """Columns that someone wants changed; `session.updated` has those that were different."""
    if not changes:
        return
    row = tx.one(f"SELECT {', '.join(changes)} FROM sessions WHERE id = ?", (session_id,))
    if row is None:
        return
    before = dict(zip(changes, row, strict=True))
    changed = {name: new for name, new in changes.items() if _differs(before[name], new)}
    if not changed:
        return
    tx.update("sessions", {**changed, "updated_at": at}, {"id": session_id})
    tx.emit("session.updated", at, project_id, changed, session_id=session_id)


def _differs(stored: Any, new: Any) -> bool:
    """Whether a column holds something else; JSON values are kept as text."""
    if isinstance(new, dict):
        return stored is None or orjson.loads(stored) != new
    return bool(stored != new)


def enter(tx: Transaction, scope: Scope, at: datetime.datetime) -> int:
    """A turn begins in its session, if it has one; returns the turn's index there."""
    if scope.session_id is None:
        return 0
    row = tx.one(
        "UPDATE sessions SET turn_count = turn_count + 1, last_turn_at = ?, updated_at = ?, "
        "active_turn_id = ? WHERE id = ? RETURNING turn_count",
        (at, at, scope.turn_id, scope.session_id),
    )
    return int(row[0]) - 1 if row else 0


def resume(tx: Transaction, scope: Scope, at: datetime.datetime) -> None:
    """A turn goes on: it is the active one again."""
    if scope.session_id is not None:
        changes = {"active_turn_id": scope.turn_id, "last_turn_at": at, "updated_at": at}
        tx.update("sessions", changes, {"id": scope.session_id})


def leave(tx: Transaction, scope: Scope, at: datetime.datetime) -> int | None:
    """A turn ended: the last started open one is active now. Returns the session's tokens."""
    if scope.session_id is None:
        return None
    row = tx.one(
        "UPDATE sessions SET updated_at = ?, active_turn_id = CASE WHEN active_turn_id = ? THEN "
        "(SELECT id FROM turns WHERE session_id = ? AND status = 'running' "
        "ORDER BY turn_index DESC LIMIT 1) ELSE active_turn_id END "
        "WHERE id = ? RETURNING total_tokens",
        (at, scope.turn_id, scope.session_id, scope.session_id),
    )
    return row[0] if row else None


def next_message_index(tx: Transaction, session_id: str, count: int) -> int:
    """The first of `count` message indexes, taken in this transaction."""
    row = tx.one(
        "UPDATE sessions SET message_count = message_count + ? WHERE id = ? "
        "RETURNING message_count",
        (count, session_id),
    )
    return int(row[0]) - count if row else 0
