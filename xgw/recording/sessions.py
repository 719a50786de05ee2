"""Sessions: the rows that begin and wake, and which of their turns is the active one.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from typing import Any

import orjson

from xgw.recording.facts import Scope, SessionFacts
from xgw.store.held import HeldRow
from xgw.store.transaction import Transaction

# The plus sign keeps SQLite from going through all turns of the session for the few that run.
OPEN_TURNS = "SELECT id, turn_index FROM turns WHERE +session_id = ? AND status = 'running'"


def is_key_taken(tx: Transaction, project_id: str, session_key: str) -> bool:
    """Whether the project has a session of this key: another process may have opened one."""
    statement = "SELECT 1 FROM sessions WHERE session_key = ? AND project_id = ?"
    return bool(tx.stored(statement, (session_key, project_id)))


def open_session(tx: Transaction, session: SessionFacts, at: datetime.datetime) -> None:
    """A session's row and `session.created`.

    Where its key is taken by now its id is its key, and its metadata tell of the one it was to have
    as `wanted_key`: what has been said in it is kept.
    """
    key, metadata = session.session_key, session.metadata
    if key != session.id and is_key_taken(tx, session.project_id, key):
        key, metadata = session.id, {**(metadata or {}), "wanted_key": key}
    row = {
        "id": session.id,
        "session_key": key,
        "project_id": session.project_id,
        "org_id": session.org_id,
        "api_key_id": session.api_key_id,
        "end_user_id": session.end_user_id,
        "task_id": session.task_id,
        "kind": session.kind,
        "agent_name": session.agent_name,
        "mode": session.mode,
        "model": session.model,
        "title": session.title,
        "status": "active",
        "source": session.source,
        "metadata": metadata,
        "budget": session.budget,
        "turn_count": 0,
        "message_count": 0,
        "request_count": 0,
        "created_at": at,
        "updated_at": at,
    }
    tx.hold("sessions", row)
    payload = {
        "session_key": key,
        "kind": session.kind,
        "title": session.title,
        "agent": session.agent_name,
        "model": session.model,
        "mode": session.mode,
        "tools": session.tools,
        "context_window": session.context_window,
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
    row = tx.row("sessions", session_id)
    if row is None:
        return
    wanted = {**changes, **({"status": "active"} if row.get("status") == "closed" else {})}
    changed = {k: v for k, v in wanted.items() if v is not None and row.get(k) != v}
    if not changed:
        return
    row.set({**changed, "updated_at": at})
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
    row = tx.row("sessions", session_id)
    if row is None:
        return
    changed = {name: new for name, new in changes.items() if _differs(row.get(name), new)}
    if not changed:
        return
    row.set({**changed, "updated_at": at})
    tx.emit("session.updated", at, project_id, changed, session_id=session_id)


def _differs(held: Any, new: Any) -> bool:
    """Whether a column holds something else; JSON that was read is text."""
    if isinstance(new, dict) and isinstance(held, str):
        return bool(orjson.loads(held) != new)
    return bool(held != new)


def row_of(tx: Transaction, scope: Scope) -> HeldRow | None:
    """The row of the scope's session; None without one, or if it was deleted."""
    return None if scope.session_id is None else tx.row("sessions", scope.session_id)


def enter(tx: Transaction, scope: Scope, at: datetime.datetime) -> int:
    """A turn begins in its session, if it has one; returns the turn's index there."""
    row = row_of(tx, scope)
    if row is None:
        return 0
    index: int = row.get("turn_count")
    row.add({"turn_count": 1})
    row.set({"active_turn_id": scope.turn_id, "last_turn_at": at, "updated_at": at})
    return index


def enter_queue(tx: Transaction, scope: Scope, at: datetime.datetime) -> int:
    """A turn that waits for its session takes its place there; returns the turn's index."""
    row = row_of(tx, scope)
    if row is None:
        return 0
    index: int = row.get("turn_count")
    row.add({"turn_count": 1})
    row.set({"last_turn_at": at, "updated_at": at})
    return index


def resume(tx: Transaction, scope: Scope, at: datetime.datetime) -> None:
    """A turn goes on: it is the active one again."""
    row = row_of(tx, scope)
    if row is not None:
        row.set({"active_turn_id": scope.turn_id, "last_turn_at": at, "updated_at": at})


def leave(tx: Transaction, scope: Scope, at: datetime.datetime) -> int | None:
    """A turn ended: the last started open one is active now. Returns the session's tokens."""
    row = row_of(tx, scope)
    if row is None:
        return None
    row.set({"updated_at": at})
    if row.get("active_turn_id") == scope.turn_id:
        row.set({"active_turn_id": _last_open(tx, row.get("id"))})
    tokens: int | None = row.get("total_tokens")
    return tokens


def _last_open(tx: Transaction, session_id: str) -> str | None:
    """The running turn of a session that began last."""
    turns = {row.get("id"): row for row in tx.held("turns") if row.get("session_id") == session_id}
    running = {
        turn_id: row.get("turn_index")
        for turn_id, row in turns.items()
        if row.get("status") == "running"
    }
    for turn_id, index in tx.stored(OPEN_TURNS, (session_id,)):
        if turn_id not in turns:
            running[turn_id] = index
    return max(running, key=lambda turn_id: running[turn_id], default=None)


def next_message_index(tx: Transaction, scope: Scope, count: int) -> int:
    """The first of `count` message indexes, taken in this transaction."""
    row = row_of(tx, scope)
    if row is None:
        return 0
    index: int = row.get("message_count")
    row.add({"message_count": count})
    return index
