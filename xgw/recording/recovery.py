"""Work whose owner is gone: at start-up and every few seconds it is closed as it stands.

An agent's run is paused: it can be resumed from its checkpoint.
"""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import peewee

from xgw import clock, ids
from xgw.recording import (
    attempts,
    checkpoints,
    messages,
    owner,
    runs,
    tools,
    turns,
    unanswered,
)
from xgw.recording.facts import (
    AttemptEnd,
    AttemptFacts,
    MessageFacts,
    RequestFacts,
    Scope,
    ToolEnd,
    TurnEnd,
)
from xgw.store.database import Store
from xgw.store.digits import packed_id
from xgw.store.transaction import Transaction
from xgw.store.writer import Ticket, Writer
from xgw.values import Usage

log = logging.getLogger("xgw.recording")

EVERY_SECONDS = 5.0
MESSAGE = "the process that ran it ended before it was complete"

OPEN_RUNS = (
    "SELECT r.owner, t.endpoint, t.project_id, t.session_id, t.id, r.id, t.trace_id, t.task_id, "
    "r.run_index, r.kind, r.from_run_id FROM runs r JOIN turns t ON t.id = r.turn_id "
    "WHERE r.status = 'running'"
)
OPEN_STEPS = (
    "SELECT id, step_type, attempt, provider_name, model, model_requested, started_at, "
    "partial_output, tool_call_id, attempt_reason, context_tokens, "
    "json_extract(metadata, '$.side'), parent_step_id FROM steps "
    "WHERE run_id = ? AND status = 'running'"
)
# The index of running steps leads to them: there are few.
OPEN_COMPACTIONS = (
    "SELECT r.owner, t.project_id, t.session_id, t.id, r.id, t.trace_id, t.task_id, r.run_index, "
    "r.kind, r.from_run_id FROM steps s JOIN runs r ON r.id = s.run_id "
    "JOIN turns t ON t.id = r.turn_id "
    "WHERE s.status = 'running' AND s.step_type = 'memory_write' "
    "AND r.status IN ('success', 'error', 'cancelled')"
)

WENT_ON = "SELECT max(at) FROM events WHERE turn_id = ? AND run_id = ? AND type = 'run.updated'"


class Recovery:
    """Reconciles open runs by owner; one thread looks every 5 s."""

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xgw-recovery", daemon=True)

    def start(self) -> None:
        """Reconcile now, then keep looking."""
        self.reconcile()
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2)

    def reconcile(self) -> list[Ticket]:
        """Close the running runs of owners that are gone, pause agents' ones, and close compactions
        in runs that are over: one unit each."""
        units = [_closing_unit(row) for row in self._orphans(OPEN_RUNS)]
        units += [_compaction_unit(row) for row in self._orphans(OPEN_COMPACTIONS)]
        return [self._writer.submit(unit) for unit in units]

    def _orphans(self, statement: str) -> list[tuple[Any, ...]]:
        own = owner.own()
        found = self._store.sql(statement)
        return [row for row in found if row[0] != own and not owner.is_alive(row[0])]

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_SECONDS):
            if self._writer.down:
                continue
            try:
                self.reconcile()
            except peewee.DatabaseError as error:
                log.warning("open work could not be looked at: %s", error)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why open work is closed as it stands; `status` is that of the model calls in it."""

    ended_by: str
    status: str
    error_type: str | None = None
    message: str | None = None


CRASH = Cause("crash", "error", "interrupted", MESSAGE)
USER_CANCEL = Cause("user_cancel", "cancelled")


def _closing_unit(row: tuple[Any, ...]) -> Any:
    was, endpoint, *columns = row
    scope = Scope(*columns)
    close = close_open_work if endpoint is not None else _pause

    def work(tx: Transaction) -> None:
        running = "SELECT 1 FROM runs WHERE id = ? AND status = 'running' AND owner IS ?"
        if tx.one(running, (scope.run_id, was)):
            close(tx, scope, CRASH, _last_sign_of_life(tx, scope))

    return work


def _compaction_unit(row: tuple[Any, ...]) -> Any:
    """A compaction that someone asked for broke off in a run that was over: nothing changed."""
    scope = Scope(*row[1:])

    def work(tx: Transaction) -> None:
        _end_steps(tx, scope, CRASH, _last_sign_of_life(tx, scope), None)

    return work


def close_open_work(
    tx: Transaction, scope: Scope, cause: Cause, ended_at: datetime.datetime
) -> None:
    """End the open steps of a run that nobody works on any more, then the run and its turn."""
    kept = checkpoints.read(tx, scope.run_id)
    reason = cause.message or "it was cancelled"
    unanswered.drop_inside(tx, scope, kept, reason, ended_at)
    busy_ms = kept.busy_ms if kept.at is not None else _busy_so_far(tx, scope, ended_at)
    end = _end_steps(tx, scope, cause, ended_at, busy_ms)
    unanswered.answer_all(tx, scope, kept, reason, ended_at)
    turns.end_turn(tx, scope, end)


def _busy_so_far(tx: Transaction, scope: Scope, ended_at: datetime.datetime) -> int | None:
    """Milliseconds of work of a run without a checkpoint: what it had done when it last waited or
    ended, and since it went on. None if it never waited: all of its time."""
    row = tx.one("SELECT busy_ms, status FROM runs WHERE id = ?", (scope.run_id,))
    before: int | None
    before, status = row or (None, None)
    if before is None or status != "running":
        return before
    row = tx.one(WENT_ON, (packed_id(scope.turn_id, "turn"), packed_id(scope.run_id, "run")))
    if row is None or row[0] is None:
        return before
    since = ended_at - clock.from_microseconds(row[0])
    return before + max(0, round(since.total_seconds() * 1000))


def _pause(tx: Transaction, scope: Scope, cause: Cause, ended_at: datetime.datetime) -> None:
    """An agent's run was interrupted: what had arrived is kept, and it can go on from there."""
    checkpoint = unanswered.interrupted(tx, scope)
    end = _end_steps(tx, scope, cause, ended_at, checkpoint.busy_ms)
    turns.keep_so_far(tx, scope, end)
    runs.pause_run(tx, scope, checkpoint, cause.ended_by, ended_at)


def _end_steps(
    tx: Transaction,
    scope: Scope,
    cause: Cause,
    ended_at: datetime.datetime,
    busy_ms: int | None,
) -> TurnEnd:
    """End the open steps of a run; how its turn would end with that."""
    final: dict[str, Any] = {}
    for step in tx.execute(OPEN_STEPS, (scope.run_id,)).fetchall():
        if step[1] != "llm_call":
            tools.end_tool(tx, scope, _end_of_tool(step, cause, ended_at))
            continue
        _end_call(tx, scope, step, cause, ended_at)
        if step[12] is None:  # an answer, not a summary
            final = {"text": step[7], "provider": step[3], "model": step[4]}
    return TurnEnd(
        cause.ended_by,
        ended_at,
        busy_ms,
        error_type=cause.error_type,
        error_message=cause.message,
        final_output=final.get("text"),
        final_provider_name=final.get("provider"),
        final_model=final.get("model"),
        keep_final=not final,
    )


def _end_of_tool(step: tuple[Any, ...], cause: Cause, ended_at: datetime.datetime) -> ToolEnd:
    """A client's result never came; a tool that ran here was interrupted, or cancelled."""
    if step[11] == "server" and cause.error_type is not None:
        status, error_type, message = cause.status, cause.error_type, cause.message
    else:
        status, error_type, message = "cancelled", "no_result", None
    began = clock.from_db(step[6])
    return ToolEnd(
        step[0],
        step[8],
        status,
        None,
        None,
        max(0, round((ended_at - began).total_seconds() * 1000)),
        ended_at,
        error_type=error_type,
        error_message=message,
    )


def _end_call(
    tx: Transaction,
    scope: Scope,
    step: tuple[Any, ...],
    cause: Cause,
    ended_at: datetime.datetime,
) -> None:
    (step_id, _, attempt, provider, model, requested, started, partial, _, reason, context, *_) = (
        step
    )
    begun = clock.from_db(started)
    log = tx.one("SELECT id FROM request_logs WHERE step_id = ?", (step_id,))
    request = RequestFacts(log[0] if log else "", "", "", "", [], None, 0, False, {})
    facts = AttemptFacts(
        step_id,
        attempt,
        reason,
        provider,
        model,
        requested,
        begun,
        request,
        parent_step_id=step[12],
    )
    latency = max(0, round((ended_at - begun).total_seconds() * 1000))
    end = AttemptEnd(
        cause.status,
        ended_at,
        latency,
        error_type=cause.error_type,
        error_message=cause.message,
        usage=Usage(),
        context_tokens=context,
        partial_output=partial,
        answered=partial is not None,
    )
    attempts.end_attempt(tx, scope, facts, end)
    if partial and step[12] is None:
        said = MessageFacts(
            ids.mint("msg"), "message", "assistant", partial, metadata={"partial": True}
        )
        messages.add_messages(tx, scope, [said], ended_at, step_id)


def _last_sign_of_life(tx: Transaction, scope: Scope) -> datetime.datetime:
    """The last moment that the record knows of: a heartbeat or an event of the turn."""
    row = tx.one(
        "SELECT (SELECT heartbeat_at FROM runs WHERE id = ?), "
        "(SELECT max(at) FROM events WHERE turn_id = ?)",
        (scope.run_id, packed_id(scope.turn_id, "turn")),
    )
    beat, told = row or (None, None)
    signs = [clock.from_db(beat)] if beat else []
    signs += [clock.from_microseconds(told)] if told else []
    return max(signs, default=clock.now())


def wait_for(tickets: Iterable[Ticket], seconds: float) -> bool:
    """Whether all of them were committed in time."""
    deadline = clock.monotonic() + seconds
    return all(ticket.wait(max(0.0, deadline - clock.monotonic())) for ticket in tickets)
