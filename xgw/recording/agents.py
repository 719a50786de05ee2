"""What an agent's turn records beside what every turn does: its queue, its calls, its tools.

Each method hands over one unit of work and returns at once.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from xgw import clock
from xgw.errors import ApiError, conflict, not_found
from xgw.recording import (
    attempts,
    checkpoints,
    compaction,
    messages,
    runs,
    sessions,
    tools,
    turns,
)
from xgw.recording.facts import (
    AttemptFacts,
    CompactionEnd,
    CompactionStart,
    Kept,
    MessageFacts,
    RunFacts,
    Scope,
    ToolEnd,
    ToolStart,
    TurnFacts,
)
from xgw.recording.pending import Checkpoint, Decision, Progress
from xgw.recording.recorder import Recorder
from xgw.recording.requests import Said, add_said
from xgw.store.payloads import Stored
from xgw.store.transaction import Transaction
from xgw.store.writer import Ticket

SESSION_BUSY = "session_busy"

Then = Callable[[bool | ApiError], None]
"""Called after a commit: whether the run is under way now, or waits for a person; or a refusal."""


class AgentRecord:
    """The record of agents' turns."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def begin(
        self,
        turn: TurnFacts,
        message: MessageFacts,
        bodies: Iterable[Stored],
    ) -> Ticket:
        """A turn begins at once. Its ticket fails if another one of the session runs, or the
        session is gone."""

        def work(tx: Transaction) -> None:
            _check_session(tx, turn.scope)
            _check_free(tx, turn.scope)
            turns.open_turn(tx, turn)
            messages.add_messages(tx, turn.scope, [message], turn.started_at)
            checkpoints.save(tx, turn.scope, Checkpoint(), turn.started_at)

        return self._recorder.submit_part(work, bodies, turn.scope.turn_id, opens=True)

    def queue(self, turn: TurnFacts, bodies: Iterable[Stored]) -> Ticket:
        """A turn waits until its session is free; its ticket fails if that is gone."""

        def work(tx: Transaction) -> None:
            _check_session(tx, turn.scope)
            turns.queue_turn(tx, turn)

        return self._recorder.submit_part(work, bodies, turn.scope.turn_id, opens=True)

    def start(
        self,
        scope: Scope,
        message: MessageFacts,
        snapshot: Stored | None,
        at: datetime.datetime,
    ) -> Ticket:
        """A queued turn begins, of an agent as it is in `snapshot` (None: it is gone); its ticket
        fails if another one runs, or it was cancelled."""
        owner = self._recorder.owner
        key, bodies = (None, []) if snapshot is None else (snapshot.hash, [snapshot])

        def work(tx: Transaction) -> None:
            _check_free(tx, scope)
            turns.start_queued(tx, scope, owner, key, at)
            messages.add_messages(tx, scope, [message], at)
            checkpoints.save(tx, scope, Checkpoint(), at)

        return self._recorder.submit_part(work, bodies, scope.turn_id)

    def settle(self, scope: Scope, snapshot: Stored) -> Ticket:
        """The turn's agent with all its tools, now that they are known; nothing was asked yet."""

        def work(tx: Transaction) -> None:
            tx.change("turns", scope.turn_id, {"config_snapshot": snapshot.hash})

        return self._recorder.submit_part(work, [snapshot], scope.turn_id)

    def call(
        self,
        scope: Scope,
        attempt: AttemptFacts,
        answered: Sequence[str],
        bodies: Iterable[Stored],
    ) -> Ticket:
        """The model is asked; `answered` are the calls whose results it gets with that."""

        def work(tx: Transaction) -> None:
            if answered:
                size = attempt.input_tokens, attempt.context_window
                tools.send_results(tx, scope, list(answered), size, attempt.started_at)
            attempts.start_attempt(tx, scope, attempt)

        return self._recorder.submit_part(work, bodies, scope.turn_id, attempt=attempt)

    def start_tools(
        self,
        scope: Scope,
        above: str,
        starts: Sequence[ToolStart],
        at: datetime.datetime,
        under: str | None = None,
    ) -> Ticket:
        """Tools begin together; `above` is the step that they stand under.

        `under` is that of the handoff in which they do, None for the turn's own agent.
        """

        def work(tx: Transaction) -> None:
            for start in starts:
                tools.start_tool(tx, scope, start, at, parent_step_id=above)
            checkpoints.begin_tasks(tx, scope, under, starts, at)

        return self._recorder.submit_part(work, (), scope.turn_id)

    def end_tool(
        self,
        scope: Scope,
        end: ToolEnd,
        said: Sequence[Said],
        progress: Progress,
        bodies: Iterable[Stored],
        kept: Kept | None = None,
    ) -> Ticket:
        """A tool ended; `said` are the results that can be told by now, in order of the calls.

        `kept` is what it changed beside the history.
        """

        def work(tx: Transaction) -> None:
            tools.end_tool(tx, scope, end)
            if kept is not None:
                _keep(tx, scope, kept, end.ended_at)
            add_said(tx, scope, said, end.ended_at)
            checkpoints.update(tx, scope, progress, end.ended_at)

        return self._recorder.submit_part(work, bodies, scope.turn_id)

    # -- later runs, and people ----------------------------------------------------------------

    def decide(
        self, scope: Scope, call_id: str, asked_by: str | None, decision: Decision, then: Then
    ) -> Ticket:
        """A person decides about a call that waits, or is refused as `runs.decide` does it."""

        def work(tx: Transaction) -> None:
            settled: bool | ApiError
            try:
                owner = self._recorder.owner
                settled = runs.decide(tx, scope, call_id, asked_by, decision, owner, clock.now())
            except ApiError as refusal:  # before anything was written
                settled = refusal
            tx.after_commit.append(partial(then, settled))

        return self._recorder.submit_part(work, (), scope.turn_id)

    def resume(self, paused: Scope, run: RunFacts, checkpoint: Checkpoint, then: Then) -> Ticket:
        """A run goes on in the place of a paused one; refused if that is over."""

        def work(tx: Transaction) -> None:
            at = clock.now()
            try:
                runs.hand_over(tx, paused, at)
            except ApiError as refusal:  # before anything was written
                tx.after_commit.append(partial(then, refusal))
                return
            runs.open_run(tx, run, at)
            sessions.resume(tx, run.scope, at)
            tx.after_commit.append(partial(then, _set_out(tx, run.scope, checkpoint, at)))

        return self._recorder.submit_part(work, (), run.scope.turn_id)

    def rerun(
        self, run: RunFacts, message: MessageFacts | None, checkpoint: Checkpoint, then: Then
    ) -> Ticket:
        """An ended turn runs once more; its ticket fails if another one of the session runs."""

        def work(tx: Transaction) -> None:
            at = clock.now()
            _check_free(tx, run.scope)
            turns.reopen_for_run(tx, run.scope, at)
            runs.open_run(tx, run, at)
            messages.add_messages(tx, run.scope, [message] if message is not None else [], at)
            tx.after_commit.append(partial(then, _set_out(tx, run.scope, checkpoint, at)))

        return self._recorder.submit_part(work, (), run.scope.turn_id, opens=True)

    # -- compactions ---------------------------------------------------------------------------

    def start_compaction(
        self, scope: Scope, start: CompactionStart, bodies: Iterable[Stored]
    ) -> Ticket:
        """The context is to become shorter."""

        def work(tx: Transaction) -> None:
            compaction.start_compaction(tx, scope, start)

        return self._recorder.submit_part(work, bodies, scope.turn_id)

    def end_compaction(self, scope: Scope, end: CompactionEnd, bodies: Iterable[Stored]) -> Ticket:
        """It is shorter."""

        def work(tx: Transaction) -> None:
            compaction.end_compaction(tx, scope, end)

        return self._recorder.submit_part(work, bodies, scope.turn_id)

    def break_off_compaction(
        self, scope: Scope, step_id: str, fault: tuple[str, str] | None, latency_ms: int
    ) -> Ticket:
        """It stays as it was; `fault` is the type and text of an error, None for a cancel."""
        at = clock.now()

        def work(tx: Transaction) -> None:
            compaction.break_off(tx, scope, step_id, fault, latency_ms, at)

        return self._recorder.submit_part(work, (), scope.turn_id)


def _check_session(tx: Transaction, scope: Scope) -> None:
    """ApiError 404 if the session was deleted meanwhile."""
    if sessions.row_of(tx, scope) is None:
        raise session_gone(scope.session_id)


def _check_free(tx: Transaction, scope: Scope) -> None:
    """ApiError 409 if another turn of the session is under way; the database has the last word."""
    if tx.one("SELECT 1 FROM turns WHERE exclusive_key = ?", (scope.session_id,)):
        raise conflict("another turn of the session has just begun", code=SESSION_BUSY)


def session_gone(session_id: str | None) -> ApiError:
    """What whoever is in a session is told that someone deletes: 404."""
    return not_found(f"session {session_id} was deleted meanwhile", code="session_not_found")


def _set_out(tx: Transaction, scope: Scope, checkpoint: Checkpoint, at: datetime.datetime) -> bool:
    """Where a run begins; False if it waits for a person first, because calls are undecided."""
    kept = checkpoints.save(tx, scope, checkpoint, at)
    if not checkpoint.undecided:
        return True
    tools.request_approvals(tx, scope, kept, at)
    runs.await_decisions(tx, scope, kept, at)
    return False


def _keep(tx: Transaction, scope: Scope, kept: Kept, at: datetime.datetime) -> None:
    if kept.working_memory is not None and scope.session_id is not None:
        changes = {"working_memory": kept.working_memory}
        sessions.change_session(tx, scope.project_id, scope.session_id, changes, at)
    if kept.planner_state is not None:
        runs.change_plan(tx, scope, kept.planner_state, at)
