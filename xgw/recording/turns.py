"""Turns and runs: the rows they begin, change and end with, and their events.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from typing import Any

from xgw import clock
from xgw.recording import sessions
from xgw.recording.checkpoints import Json
from xgw.recording.facts import LimitFacts, Scope, TurnEnd, TurnFacts
from xgw.recording.lifecycle import STATUS_OF_CAUSE
from xgw.recording.moves import apply, emit, error_payload
from xgw.recording.runs import elapsed_ms, payload_of
from xgw.store.transaction import Transaction

TOTALS = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "total_tokens",
    "cost_usd",
    "usage_source",
    "llm_calls",
    "tool_calls",
    "attempts",
)
FINALS = ("final_output", "final_provider_name", "final_model")
READ_AT_END = ("turn_index", "user_input", "exclusive_key", *FINALS, *TOTALS)
CLEARED = {
    "ended_by": None,
    "error_type": None,
    "error_message": None,
    "ended_at": None,
    "latency_ms": None,
}
SHOWN_AT_END = ("status", "ended_by", *FINALS, "finish_reason", "latency_ms", *TOTALS)


def open_turn(tx: Transaction, turn: TurnFacts) -> None:
    """A turn, its first run, and the session's counters; `turn.started`, `run.started`."""
    scope, at = turn.scope, turn.started_at
    index = sessions.enter(tx, scope, at)
    own = {"exclusive_key": scope.session_id} if turn.is_exclusive else {}
    tx.hold("turns", {**_row(tx, turn, index), "status": "running", "started_at": at, **own})
    head = _head(scope, index, turn.user_input, clock.to_rfc3339(at))
    emit(tx, scope, "turn.started", at, head)
    tx.hold("runs", {**_run(turn), "status": "running", "started_at": at})
    emit(tx, scope, "run.started", at, payload_of(scope, "running"))


def queue_turn(tx: Transaction, turn: TurnFacts) -> None:
    """A turn that waits until its session is free; `turn.queued`. `started_at` is when it came."""
    scope, at = turn.scope, turn.started_at
    index = sessions.enter_queue(tx, scope, at)
    tx.hold("turns", {**_row(tx, turn, index), "status": "queued", "queued_at": at})
    emit(tx, scope, "turn.queued", at, _head(scope, index, turn.user_input, None))
    tx.hold("runs", {**_run(turn), "status": "queued"})


def start_queued(
    tx: Transaction, scope: Scope, owner: str, snapshot: str | None, at: datetime.datetime
) -> None:
    """A queued turn's time has come: `turn.started`, `run.started`. Only one a session can run."""
    own = {"exclusive_key": scope.session_id, "config_snapshot": snapshot}
    apply(tx, "turn", scope.turn_id, "running", {"started_at": at, "updated_at": at, **own})
    emit(tx, scope, "turn.started", at, _turn_head(tx, scope))
    changes = {"owner": owner, "heartbeat_at": at, "started_at": at}
    apply(tx, "run", scope.run_id, "running", changes)
    emit(tx, scope, "run.started", at, payload_of(scope, "running"))
    sessions.resume(tx, scope, at)


def _row(tx: Transaction, turn: TurnFacts, index: int) -> dict[str, Any]:
    """The columns that a turn begins with, whatever its status."""
    scope, at = turn.scope, turn.started_at
    parent_id, metadata = None, turn.metadata
    if turn.parent is not None:
        parent_id = _find_parent(tx, scope, turn.parent)
        if parent_id is None:
            metadata = {**(metadata or {}), "parent_turn_id": turn.parent}
    return {
        "id": scope.turn_id,
        "project_id": scope.project_id,
        "session_id": scope.session_id,
        "task_id": scope.task_id,
        "turn_key": turn.turn_key,
        "parent_turn_id": parent_id,
        "agent_name": turn.agent_name,
        "endpoint": turn.endpoint,
        "turn_index": index,
        "user_input": tx.text_column(turn.user_input, plain=index == 0),
        "input_payload": turn.input_payload,
        "trace_id": scope.trace_id,
        "llm_calls": 0,
        "tool_calls": 0,
        "attempts": 0,
        "config_snapshot": turn.config_snapshot,
        "metadata": metadata,
        "created_at": at,
        "updated_at": at,
    }


def _run(turn: TurnFacts) -> dict[str, Any]:
    """The columns that a turn's first run begins with."""
    return {
        "id": turn.scope.run_id,
        "turn_id": turn.scope.turn_id,
        "run_index": 0,
        "kind": "first",
        "overrides": turn.overrides,
        "owner": turn.owner,
        "heartbeat_at": turn.started_at,
    }


def _find_parent(tx: Transaction, scope: Scope, ref: str) -> str | None:
    """The turn with this id, else with this key in the session, else the only one in the project.

    It may have been queued just before this one: nowhere but in the transaction is it surely there.
    """
    project = scope.project_id
    by_id = "SELECT id FROM turns WHERE id = ? AND project_id = ?"
    here = "SELECT id FROM turns WHERE turn_key = ? AND session_id = ? AND project_id = ?"
    row = tx.one(by_id, (ref, project)) or tx.one(here, (ref, scope.session_id, project))
    if row is not None:
        return str(row[0])
    anywhere = "SELECT id FROM turns WHERE turn_key = ? AND project_id = ? LIMIT 2"
    rows = tx.execute(anywhere, (ref, project)).fetchall()
    return rows[0][0] if len(rows) == 1 else None


def reopen_turn(
    tx: Transaction, scope: Scope, cause: str, owner: str | None, at: datetime.datetime
) -> None:
    """An ended gateway turn and its run go on: `turn.updated` with the cause, `run.updated`."""
    _reopen(tx, scope, cause, {}, at)
    changes = {**CLEARED, "owner": owner, "heartbeat_at": at}
    apply(tx, "run", scope.run_id, "running", changes, reopen=cause)
    emit(tx, scope, "run.updated", at, payload_of(scope, "running", cause))
    sessions.resume(tx, scope, at)


def reopen_for_run(tx: Transaction, scope: Scope, at: datetime.datetime) -> None:
    """An ended agent's turn is open again for a new run: `turn.updated`. Only one a session can."""
    row = tx.row("turns", scope.turn_id)
    began = row.get("started_at") if row is not None else None
    begins = {} if began is not None else {"started_at": at}  # it was cancelled while it waited
    _reopen(tx, scope, "rerun", {"exclusive_key": scope.session_id, **begins}, at)
    sessions.resume(tx, scope, at)


def _reopen(
    tx: Transaction, scope: Scope, cause: str, changes: dict[str, Any], at: datetime.datetime
) -> None:
    changes = {**CLEARED, "finish_reason": None, **changes, "updated_at": at}
    apply(tx, "turn", scope.turn_id, "running", changes, reopen=cause)
    head = _turn_head(tx, scope)
    emit(tx, scope, "turn.updated", at, {**head, "status": "running", "cause": cause})


def wait_for_tools(
    tx: Transaction, scope: Scope, end: TurnEnd, checkpoint: Json | None = None
) -> None:
    """The model asked for tools and their results are awaited; the turn stays open.

    `end` is what the turn has so far: its answer, and its time at work. With a `checkpoint` it is
    an agent's, and a person is awaited.
    """
    at = end.ended_at
    apply(tx, "run", scope.run_id, "waiting_tool", {"busy_ms": end.busy_ms, "heartbeat_at": at})
    keep_so_far(tx, scope, end)
    if checkpoint is None:
        emit(tx, scope, "run.updated", at, payload_of(scope, "waiting_tool", "tool_calls"))
        return
    told = payload_of(scope, "waiting_tool", "approval", checkpoint["at"])
    emit(tx, scope, "run.updated", at, told)


def keep_so_far(tx: Transaction, scope: Scope, end: TurnEnd) -> None:
    """What an open turn has so far: its answer, and its time at work."""
    busy_ms, columns = _busy_in_all(tx, scope, end.busy_ms), _columns(tx, _finals(tx, scope, end))
    changes = {"busy_ms": busy_ms, "updated_at": end.ended_at, **columns}
    tx.change("turns", scope.turn_id, changes)


def reach_limit(tx: Transaction, scope: Scope, reached: LimitFacts, at: datetime.datetime) -> None:
    """`limit.reached`: the turn ends because of it."""
    payload = {"limit": reached.limit, "value": reached.value, "max": reached.max}
    emit(tx, scope, "limit.reached", at, payload)


def end_turn(tx: Transaction, scope: Scope, end: TurnEnd) -> None:
    """A turn and its run end: `run.completed`, `turn.completed` with the turn's totals."""
    status, at = STATUS_OF_CAUSE[end.ended_by], end.ended_at
    so_far = tx.row("turns", scope.turn_id)
    known = {**so_far.plain(READ_AT_END), "started_at": so_far.get("started_at")} if so_far else {}
    for name in ("user_input", "final_output"):
        known[name] = tx.text_in(known.get(name))
    latency = elapsed_ms(known.get("started_at"), at)
    busy = end.busy_ms if end.busy_ms is not None else latency
    cause: dict[str, Any] = {
        "ended_by": end.ended_by,
        "error_type": end.error_type,
        "error_message": end.error_message,
        "ended_at": at,
        "latency_ms": latency,
        "busy_ms": busy,
    }
    own = {"latency_ms": _run_latency(tx, scope, at)} if scope.run_index else {}
    apply(tx, "run", scope.run_id, status, {**cause, **own})
    emit(tx, scope, "run.completed", at, payload_of(scope, status, end.ended_by))
    finals: dict[str, Any] = {"finish_reason": end.finish_reason, **_finals(tx, scope, end)}
    cause["busy_ms"] = _busy_in_all(tx, scope, busy)
    columns = _columns(tx, finals)
    if known.pop("exclusive_key", None) is not None:
        columns = {**columns, "exclusive_key": None}
    apply(tx, "turn", scope.turn_id, status, {**cause, **columns, "updated_at": at})
    session_tokens = sessions.leave(tx, scope, at)
    shown = {**known, **cause, **finals, "status": status}
    emit(tx, scope, "turn.completed", at, _completed_payload(scope, shown, session_tokens))


def _run_latency(tx: Transaction, scope: Scope, at: datetime.datetime) -> int | None:
    """The first run takes as long as its turn, a later one has a start of its own."""
    row = tx.one("SELECT started_at FROM runs WHERE id = ?", (scope.run_id,))
    return elapsed_ms(row[0], at) if row is not None else None


def _busy_in_all(tx: Transaction, scope: Scope, busy_ms: int | None) -> int | None:
    """The time at work of all runs of a turn, of which this is the newest."""
    if not scope.run_index:
        return busy_ms
    others = "SELECT sum(busy_ms) FROM runs WHERE turn_id = ? AND id <> ?"
    row = tx.one(others, (scope.turn_id, scope.run_id))
    known = [ms for ms in (row[0] if row else None, busy_ms) if ms is not None]
    return sum(known) if known else None


def _finals(tx: Transaction, scope: Scope, end: TurnEnd) -> dict[str, Any]:
    """What the turn answers; an earlier run's success stands until there is a newer one."""
    if end.keep_final or (STATUS_OF_CAUSE[end.ended_by] != "success" and _succeeded(tx, scope)):
        return {}
    return {
        "final_output": end.final_output,
        "final_provider_name": end.final_provider_name,
        "final_provider_id": end.final_provider_name,
        "final_model": end.final_model,
    }


def _succeeded(tx: Transaction, scope: Scope) -> bool:
    """Whether an earlier run of the turn succeeded."""
    others = "SELECT 1 FROM runs WHERE turn_id = ? AND id <> ? AND status = 'success'"
    return bool(scope.run_index) and tx.one(others, (scope.turn_id, scope.run_id)) is not None


def _columns(tx: Transaction, finals: dict[str, Any]) -> dict[str, Any]:
    """The finals as the turn's row has them: a long output is a payload."""
    if "final_output" not in finals:
        return finals
    return {**finals, "final_output": tx.text_column(finals["final_output"])}


def _turn_head(tx: Transaction, scope: Scope) -> dict[str, Any]:
    row = tx.row("turns", scope.turn_id)
    assert row is not None
    user_input = tx.text_in(row.get("user_input"))
    return _head(scope, row.get("turn_index"), user_input, _rfc3339(row.get("started_at")))


def _head(
    scope: Scope, index: int | None, user_input: str | None, started_at: str | None
) -> dict[str, Any]:
    return {
        "turn_id": scope.turn_id,
        "session_id": scope.session_id,
        "task_id": scope.task_id,
        "turn_index": index,
        "user_input": user_input,
        "started_at": started_at,
        "completed_at": None,
    }


def _completed_payload(
    scope: Scope, turn: dict[str, Any], session_tokens: int | None
) -> dict[str, Any]:
    head = _head(
        scope, turn.get("turn_index"), turn.get("user_input"), _rfc3339(turn.get("started_at"))
    )
    return {
        **head,
        "completed_at": clock.to_rfc3339(turn["ended_at"]),
        **dict(zip(SHOWN_AT_END, map(turn.get, SHOWN_AT_END), strict=True)),
        "error": error_payload(turn["error_type"], turn["error_message"]),
        "session_total_tokens": session_tokens,
    }


def _rfc3339(text: str | None) -> str | None:
    return None if text is None else text.replace(" ", "T") + "Z"
