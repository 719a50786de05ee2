"""Runs of a turn: those after the first, and how one waits, is interrupted and goes on.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

from xgw import clock
from xgw.errors import conflict, not_found
from xgw.recording import checkpoints, sessions
from xgw.recording.checkpoints import Json
from xgw.recording.facts import RunFacts, Scope
from xgw.recording.moves import apply, emit
from xgw.recording.pending import UNDECIDED, Checkpoint, Decision, PendingCall, Place
from xgw.store.transaction import Transaction

SHOWN_CALLS = 10
"""So many of the calls that wait are named where another one was meant."""


def open_run(tx: Transaction, run: RunFacts, at: datetime.datetime) -> None:
    """A run of a turn that has some already: `run.started`."""
    scope = run.scope
    row = {
        "id": scope.run_id,
        "turn_id": scope.turn_id,
        "run_index": scope.run_index,
        "status": "running",
        "kind": scope.run_kind,
        "from_run_id": scope.from_run_id,
        "from_step_id": run.from_step_id,
        "overrides": run.overrides,
        "owner": run.owner,
        "heartbeat_at": at,
        "started_at": at,
        "metadata": {"kept_upto": run.kept_upto},
        "planner_state": _plan_of(tx, scope),
    }
    tx.insert("runs", row)
    emit(tx, scope, "run.started", at, payload_of(scope, "running"))


def _plan_of(tx: Transaction, scope: Scope) -> Any:
    """The plan that a resumed run goes on with; a re-run makes one of its own."""
    before = tx.row("runs", scope.from_run_id or "") if scope.run_kind == "resume" else None
    return None if before is None else before.get("planner_state")


def continue_run(
    tx: Transaction, scope: Scope, cause: str, owner: str | None, at: datetime.datetime
) -> None:
    """A run that waited for tools goes on."""
    apply(tx, "run", scope.run_id, "running", {"owner": owner, "heartbeat_at": at})
    emit(tx, scope, "run.updated", at, payload_of(scope, "running", cause))
    sessions.resume(tx, scope, at)


def await_decisions(tx: Transaction, scope: Scope, checkpoint: Json, at: datetime.datetime) -> None:
    """A run that has just begun waits for a person before it goes on with its calls."""
    apply(tx, "run", scope.run_id, "waiting_tool", {"heartbeat_at": at})
    reasons = {checkpoints.reason_of(one) for one in checkpoints.list_undecided(checkpoint)}
    told = payload_of(scope, "waiting_tool", max(reasons), checkpoint["at"])
    emit(tx, scope, "run.updated", at, told)


def pause_run(
    tx: Transaction, scope: Scope, checkpoint: Checkpoint, reason: str, at: datetime.datetime
) -> None:
    """An agent's run was interrupted; its turn stays open, and its session is held."""
    apply(tx, "run", scope.run_id, "paused", {"busy_ms": checkpoint.busy_ms})
    kept = checkpoints.save(tx, scope, checkpoint, at, upto=checkpoint.messages_upto)
    emit(tx, scope, "run.updated", at, payload_of(scope, "paused", reason, kept["at"]))


def change_plan(tx: Transaction, scope: Scope, plan: dict[str, Any], at: datetime.datetime) -> None:
    """The plan of a run is another one; `run.updated` has it."""
    tx.change("runs", scope.run_id, {"planner_state": plan, "heartbeat_at": at})
    emit(
        tx,
        scope,
        "run.updated",
        at,
        {**payload_of(scope, "running", "plan"), "planner_state": plan},
    )


def decide(
    tx: Transaction,
    scope: Scope,
    call_id: str,
    asked_by: str | None,
    decision: Decision,
    owner: str,
    at: datetime.datetime,
) -> bool:
    """A person decides about one of the calls that wait: `tool.approval_decided`.

    True if it was the last one, and the run goes on. ApiError as `find_waiting` has it, 409
    `run_not_waiting`.
    """
    row = tx.row("runs", scope.run_id)
    status = row.get("status") if row is not None else "gone"
    if status != "waiting_tool":
        message = f"run {scope.run_id} does not wait for a decision: it is {status}"
        raise conflict(message, code="run_not_waiting")
    kept = checkpoints.read(tx, scope.run_id)
    one, place = find_waiting(kept, call_id, asked_by)
    told = {"tool_call_id": call_id, "name": one.call.name, **decision.to_json()}
    if place.agents:
        told["agent_name"] = place.agents[-1]
    emit(tx, scope, "tool.approval_decided", at, {"arguments": None, **told}, place.step_id)
    decision = replace(decision, was_unknown=one.state == "outcome_unknown")
    decided = replace(one, state="open", decision=decision)
    after = kept.changed(lambda other, _: decided if other is one else other)
    checkpoints.save(tx, scope, after, at, upto=kept.messages_upto)
    if after.undecided:
        return False
    continue_run(tx, scope, "decided", owner, at)
    return True


def find_waiting(kept: Checkpoint, call_id: str, asked_by: str | None) -> tuple[PendingCall, Place]:
    """The call that a person decides about, and where it stands; `asked_by` is the step of the
    answer that asked for it, for where two agents wait with calls of the same id.

    ApiError 404 `call_not_found`, 409 `already_decided` or `call_ambiguous`.
    """
    named = [
        (one, place)
        for one, place in kept.calls()
        if one.id == call_id and asked_by in (None, place.step_id)
    ]
    waiting = [(one, place) for one, place in named if one.state in UNDECIDED]
    if len(waiting) > 1:
        steps = " or ".join(str(place.step_id) for _, place in waiting)
        message = f"{len(waiting)} calls that wait are {call_id[:256]!r}: step_id has to tell which"
        raise conflict(f"{message}, {steps}", code="call_ambiguous")
    if waiting:
        return waiting[0]
    if named:
        raise conflict(f"call {call_id} has been decided about already", code="already_decided")
    there = ", ".join(one.id[:256] for one in kept.undecided[:SHOWN_CALLS])
    message = f"of those that wait for a decision none is {call_id[:256]!r}: there is {there}"
    raise not_found(message, code="call_not_found", param="tool_call_id")


def hand_over(tx: Transaction, scope: Scope, at: datetime.datetime) -> None:
    """A paused run ends, because another one goes on from its checkpoint."""
    row = tx.row("runs", scope.run_id)
    started = row.get("started_at") if row is not None else None
    changes = {"ended_by": "resumed", "ended_at": at, "latency_ms": elapsed_ms(started, at)}
    apply(tx, "run", scope.run_id, "cancelled", changes)
    emit(tx, scope, "run.completed", at, payload_of(scope, "cancelled", "resumed"))


def payload_of(
    scope: Scope, status: str, reason: str | None = None, checkpoint_at: str | None = None
) -> dict[str, Any]:
    """A run as events show it."""
    return {
        "run_index": scope.run_index,
        "kind": scope.run_kind,
        "from": scope.from_run_id,
        "status": status,
        "reason": reason,
        "checkpoint_at": checkpoint_at,
    }


def elapsed_ms(started: str | None, at: datetime.datetime) -> int | None:
    """The time since a moment as the store has it; None since none."""
    if started is None:
        return None
    return max(0, round((at - clock.from_db(started)).total_seconds() * 1000))
