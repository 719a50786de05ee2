"""Compactions: their step, what they took out of the context, what is told instead.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from itertools import islice
from typing import Any

from xgw.recording import owner, sessions
from xgw.recording.facts import CompactionEnd, CompactionStart, Scope
from xgw.recording.moves import apply, emit, error_payload, step_head
from xgw.store.transaction import Transaction

NAME = "compaction"
MARKED_AT_ONCE = 500


def start_compaction(tx: Transaction, scope: Scope, start: CompactionStart) -> None:
    """Its step begins. The run may be over: then its owner is whose work this is now."""
    tx.change("runs", scope.run_id, {"owner": owner.own(), "heartbeat_at": start.started_at})
    parent, agent_name = start.under or (None, None)
    row = {
        **step_head(tx, scope, start.step_id, "memory_write", start.started_at),
        "name": NAME,
        "parent_step_id": parent,
        "input_payload": start.input_payload,
        "metadata": {"side": "server", "trigger": start.trigger},
    }
    tx.hold("steps", row)
    payload = {
        "step_type": "memory_write",
        "name": NAME,
        "provider_name": None,
        "model": None,
        "tool_call_id": None,
        "arguments": None,
        **({"agent_name": agent_name, "parent_step_id": parent} if parent else {}),
    }
    emit(tx, scope, "step.started", start.started_at, payload, start.step_id)


def end_compaction(tx: Transaction, scope: Scope, end: CompactionEnd) -> None:
    """All of it at once: its step, the messages, the session; `context.compacted`."""
    changes = {
        "output_payload": end.output_payload,
        "latency_ms": end.latency_ms,
        "ended_at": end.ended_at,
    }
    _end_step(tx, scope, end.step_id, "success", changes, output=end.output)
    if not end.is_apart:
        _mark(tx, end)
    payload = {
        "before_tokens": end.before_tokens,
        "after_tokens": end.after_tokens,
        "trigger": end.trigger,
        "strategy": end.strategy,
        "compacted_message_ids": list(end.message_ids),
        "summary": end.summary,
        "reason": end.reason,
    }
    emit(tx, scope, "context.compacted", end.ended_at, payload, end.step_id)
    if scope.session_id is None or end.is_apart:
        return
    changed = {"session_summary": end.summary}
    sessions.change_session(tx, scope.project_id, scope.session_id, changed, end.ended_at)
    row = sessions.row_of(tx, scope)
    if row is not None and end.after_tokens is not None:
        row.set({"context_tokens": end.after_tokens})


def break_off(
    tx: Transaction,
    scope: Scope,
    step_id: str,
    fault: tuple[str, str] | None,
    latency_ms: int,
    at: datetime.datetime,
) -> None:
    """A compaction that came to nothing: it was cancelled, or failed with this type and text."""
    error_type, message = fault or (None, None)
    _end_step(
        tx,
        scope,
        step_id,
        "cancelled" if fault is None else "error",
        {"latency_ms": latency_ms, "ended_at": at},
        error=(error_type, message),
    )


def _end_step(
    tx: Transaction,
    scope: Scope,
    step_id: str,
    status: str,
    changes: dict[str, Any],
    *,
    error: tuple[str | None, str | None] = (None, None),
    output: str | None = None,
) -> None:
    error_type, message = error
    fault = {"error_type": error_type, "error_message": message}
    apply(tx, "step", step_id, status, {**changes, **fault})
    payload = {
        "status": status,
        "success": status == "success",
        "output": output,
        "error": error_payload(error_type, message),
        "latency_ms": changes["latency_ms"],
        "tool_call_id": None,
    }
    emit(tx, scope, "step.completed", changes["ended_at"], payload, step_id)


def _mark(tx: Transaction, end: CompactionEnd) -> None:
    """The messages stay in the history; the context is without them from now on."""
    left = iter(end.message_ids)
    while ids := list(islice(left, MARKED_AT_ONCE)):
        marks = ", ".join("?" * len(ids))
        statement = f"UPDATE messages SET compacted_by_step_id = ? WHERE id IN ({marks})"
        tx.execute(statement, (end.step_id, *ids))
