"""Sessions, turns, runs and messages: the rows they begin, change and end with, and their events.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from typing import Any

from xgw.events import Envelope
from xgw.recording.facts import MessageFacts, Scope, SessionFacts, TurnEnd, TurnFacts
from xgw.recording.lifecycle import STATUS_OF_CAUSE
from xgw.recording.moves import apply, emit, error_payload, next_index
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
        "status": "active",
        "source": session.source,
        "metadata": session.metadata,
        "created_at": at,
        "updated_at": at,
    }
    tx.insert("sessions", row)
    payload = {
        "session_key": session.session_key,
        "kind": session.kind,
        "agent": None,
        "model": session.model,
        "mode": None,
        "tools": None,
        "context_window": None,
        "budget": None,
        "source": session.source,
    }
    tx.emit(
        Envelope(
            None, "session.created", at, session.project_id, session.id, None, None, None, payload
        )
    )


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
    tx.emit(
        Envelope(None, "session.updated", at, project_id, session_id, None, None, None, changed)
    )


def open_turn(tx: Transaction, turn: TurnFacts) -> None:
    """A turn, its first run, and the session's counters; `turn.started`, `run.started`."""
    scope, at = turn.scope, turn.started_at
    index = next_index(tx, "turn_count", scope.session_id)
    if scope.session_id is not None:
        tx.execute(
            "UPDATE sessions SET last_turn_at = ?, updated_at = ?, active_turn_id = ? WHERE id = ?",
            (at, at, scope.turn_id, scope.session_id),
        )
    tx.insert(
        "turns",
        {
            "id": scope.turn_id,
            "project_id": scope.project_id,
            "session_id": scope.session_id,
            "task_id": scope.task_id,
            "turn_key": turn.turn_key,
            "parent_turn_id": turn.parent_turn_id,
            "agent_name": turn.agent_name,
            "endpoint": turn.endpoint,
            "turn_index": index,
            "user_input": turn.user_input,
            "input_payload": turn.input_payload,
            "status": "running",
            "trace_id": scope.trace_id,
            "started_at": at,
            "config_snapshot": turn.config_snapshot,
            "metadata": turn.metadata,
            "created_at": at,
            "updated_at": at,
        },
    )
    emit(tx, scope, "turn.started", at, {**_turn_head(tx, scope), "started_at": _text(at)})
    tx.insert(
        "runs",
        {
            "id": scope.run_id,
            "turn_id": scope.turn_id,
            "run_index": 0,
            "status": "running",
            "kind": "first",
            "owner": turn.owner,
            "heartbeat_at": at,
            "started_at": at,
        },
    )
    emit(tx, scope, "run.started", at, _run_payload("first", "running"))


def reopen_turn(
    tx: Transaction, scope: Scope, cause: str, owner: str | None, at: datetime.datetime
) -> None:
    """An ended gateway turn and its run go on: `turn.updated` with the cause, `run.updated`."""
    cleared = {"ended_by": None, "error_type": None, "error_message": None, "ended_at": None}
    apply(tx, "turn", scope.turn_id, "running", {**cleared, "updated_at": at}, reopen=cause)
    head = _turn_head(tx, scope)
    emit(tx, scope, "turn.updated", at, {**head, "status": "running", "cause": cause})
    changes = {**cleared, "owner": owner, "heartbeat_at": at}
    apply(tx, "run", scope.run_id, "running", changes, reopen=cause)
    emit(tx, scope, "run.updated", at, _run_payload("first", "running", cause))
    _set_active(tx, scope, at)


def continue_run(
    tx: Transaction, scope: Scope, cause: str, owner: str | None, at: datetime.datetime
) -> None:
    """A run that waited for tools goes on."""
    apply(tx, "run", scope.run_id, "running", {"owner": owner, "heartbeat_at": at})
    emit(tx, scope, "run.updated", at, _run_payload("first", "running", cause))
    _set_active(tx, scope, at)


def wait_for_tools(tx: Transaction, scope: Scope, end: TurnEnd) -> None:
    """The model asked for tools and their results are awaited; the turn stays open.

    `end` is what the turn has so far: its answer, and its time at work.
    """
    at = end.ended_at
    apply(tx, "run", scope.run_id, "waiting_tool", {"busy_ms": end.busy_ms, "heartbeat_at": at})
    changes = {"busy_ms": end.busy_ms, "updated_at": at, **_finals(end)}
    tx.update("turns", changes, {"id": scope.turn_id})
    emit(tx, scope, "run.updated", at, _run_payload("first", "waiting_tool", "tool_calls"))


def end_turn(tx: Transaction, scope: Scope, end: TurnEnd) -> None:
    """A turn and its run end: `run.completed`, `turn.completed` with the turn's totals."""
    status, at = STATUS_OF_CAUSE[end.ended_by], end.ended_at
    started = tx.one("SELECT started_at FROM turns WHERE id = ?", (scope.turn_id,))
    latency = _elapsed_ms(started[0], at) if started and started[0] else None
    cause = {
        "ended_by": end.ended_by,
        "error_type": end.error_type,
        "error_message": end.error_message,
        "ended_at": at,
        "latency_ms": latency,
        "busy_ms": end.busy_ms if end.busy_ms is not None else latency,
    }
    apply(tx, "run", scope.run_id, status, cause)
    emit(tx, scope, "run.completed", at, _run_payload("first", status, end.ended_by))
    finals: dict[str, Any] = {"finish_reason": end.finish_reason, **_finals(end)}
    apply(tx, "turn", scope.turn_id, status, {**cause, **finals, "updated_at": at})
    if scope.session_id is not None:
        _leave_session(tx, scope, at)
    emit(tx, scope, "turn.completed", at, _turn_totals(tx, scope))


def _finals(end: TurnEnd) -> dict[str, Any]:
    if end.keep_final:
        return {}
    return {
        "final_output": end.final_output,
        "final_provider_name": end.final_provider_name,
        "final_provider_id": end.final_provider_name,
        "final_model": end.final_model,
    }


def _leave_session(tx: Transaction, scope: Scope, at: datetime.datetime) -> None:
    """`active_turn_id` becomes the last started turn that is still open."""
    tx.execute(
        "UPDATE sessions SET active_turn_id = (SELECT id FROM turns WHERE session_id = ? "
        "AND status = 'running' ORDER BY turn_index DESC LIMIT 1), updated_at = ? "
        "WHERE id = ? AND active_turn_id = ?",
        (scope.session_id, at, scope.session_id, scope.turn_id),
    )


def _set_active(tx: Transaction, scope: Scope, at: datetime.datetime) -> None:
    if scope.session_id is not None:
        changes = {"active_turn_id": scope.turn_id, "last_turn_at": at, "updated_at": at}
        tx.update("sessions", changes, {"id": scope.session_id})


def add_message(
    tx: Transaction,
    scope: Scope,
    message: MessageFacts,
    at: datetime.datetime,
    step_id: str | None = None,
) -> None:
    """One item of the history: `message.added`."""
    if scope.session_id is not None:
        index = next_index(tx, "message_count", scope.session_id)
    else:
        row = tx.one(
            "SELECT coalesce(max(message_index) + 1, 0) FROM messages WHERE turn_id = ?",
            (scope.turn_id,),
        )
        index = row[0] if row else 0
    tx.insert(
        "messages",
        {
            "id": message.id,
            "session_id": scope.session_id,
            "turn_id": scope.turn_id,
            "run_id": scope.run_id,
            "step_id": step_id,
            "message_index": index,
            "kind": message.kind,
            "role": message.role,
            "content": message.content,
            "parts": message.parts,
            "tool_calls": message.tool_calls,
            "tool_call_id": message.tool_call_id,
            "name": message.name,
            "token_count": message.token_count,
            "token_source": message.token_source,
            "metadata": message.metadata,
            "created_at": at,
        },
    )
    payload = {
        "message_id": message.id,
        "kind": message.kind,
        "role": message.role,
        "token_count": message.token_count,
        "tool_call_id": message.tool_call_id,
        "text": message.content,
    }
    emit(tx, scope, "message.added", at, payload, step_id)


def _run_payload(kind: str, status: str, reason: str | None = None) -> dict[str, Any]:
    return {
        "run_index": 0,
        "kind": kind,
        "from": None,
        "status": status,
        "reason": reason,
        "checkpoint_at": None,
    }


def _turn_head(tx: Transaction, scope: Scope) -> dict[str, Any]:
    row = tx.one(
        "SELECT turn_index, user_input, started_at FROM turns WHERE id = ?", (scope.turn_id,)
    )
    assert row is not None
    return {
        "turn_id": scope.turn_id,
        "session_id": scope.session_id,
        "task_id": scope.task_id,
        "turn_index": row[0],
        "user_input": row[1],
        "started_at": _rfc3339(row[2]),
        "completed_at": None,
    }


def _turn_totals(tx: Transaction, scope: Scope) -> dict[str, Any]:
    names = (
        "status, ended_by, final_output, final_provider_name, final_model, finish_reason, "
        "latency_ms, input_tokens, output_tokens, cached_tokens, total_tokens, cost_usd, "
        "usage_source, "
        "llm_calls, tool_calls, attempts, error_type, error_message, ended_at"
    )
    row = tx.one(f"SELECT {names} FROM turns WHERE id = ?", (scope.turn_id,))
    assert row is not None
    columns = dict(zip(names.split(", "), row, strict=True))
    session = tx.one("SELECT total_tokens FROM sessions WHERE id = ?", (scope.session_id,))
    error = error_payload(columns.pop("error_type"), columns.pop("error_message"))
    ended = _rfc3339(columns.pop("ended_at"))
    return {
        **_turn_head(tx, scope),
        "completed_at": ended,
        **columns,
        "error": error,
        "session_total_tokens": session[0] if session else None,
    }


def _elapsed_ms(started: str, at: datetime.datetime) -> int:
    begun = datetime.datetime.fromisoformat(started)
    return max(0, round((at - begun).total_seconds() * 1000))


def _text(at: datetime.datetime) -> str:
    return at.isoformat(timespec="microseconds") + "Z"


def _rfc3339(text: str | None) -> str | None:
    return None if text is None else text.replace(" ", "T") + "Z"
