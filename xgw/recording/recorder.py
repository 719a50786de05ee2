"""The recorder: the only writer of state. It turns facts into units of work for the writer.

One request is at most: one unit when it begins, one or two for each failed attempt, one when it
ends. Each unit holds the rows and their events.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import partial

from xgw import clock
from xgw.events import Envelope
from xgw.frozen import frozen
from xgw.hub import Hub
from xgw.recording import (
    attempts,
    checkpoints,
    messages,
    owner,
    runs,
    sessions,
    tools,
    turns,
    unanswered,
)
from xgw.recording.facts import (
    AttemptEnd,
    AttemptFacts,
    LimitFacts,
    MessageFacts,
    Retry,
    Scope,
    SessionFacts,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnFacts,
)
from xgw.recording.live import LiveSteps
from xgw.recording.pending import Progress
from xgw.store.payloads import Shelf, Stored
from xgw.store.transaction import Transaction
from xgw.store.writer import ALONE, Bodies, Part, Ticket, Work, Writer

PULSE_SECONDS = 0.05
PARTIAL_EVERY = 5
PATIENT_BEATS = 4
"""How many beats may pass without live frames while readers are still woken for what went out."""

UNIT_BYTES = 2048


@frozen
class Closing:
    """A turn that ends because of something else: its open tools, then its end."""

    scope: Scope
    tools: tuple[ToolEnd, ...]
    end: TurnEnd


@frozen
class Arrived:
    """A tool's result that came back with a request: the step's end, and the message."""

    end: ToolEnd
    message: MessageFacts


@frozen
class Said:
    """A message of a step: what a tool answered, or was made to answer."""

    step_id: str
    message: MessageFacts


@frozen
class Opening:
    """What begins with a request: perhaps a session, a turn or its continuation, the first try."""

    scope: Scope
    at: datetime.datetime
    session: SessionFacts | None = None
    session_changes: dict[str, str | None] = field(default_factory=dict)
    closings: tuple[Closing, ...] = ()
    turn: TurnFacts | None = None
    reopened: str | None = None
    resumed: str | None = None
    results: tuple[Arrived, ...] = ()
    messages: tuple[MessageFacts, ...] = ()
    attempt: AttemptFacts | None = None
    context_tokens: int | None = None
    context_window: int | None = None


@frozen
class Ending:
    """What ends with a request: its last try, what the model said, and what becomes of the turn.

    `turn` is how the turn ends, or, with `waits`, what it would end with while it awaits the
    client's tools; None while other requests of the turn are under way. `progress` is an agent's:
    with `waits` a person is awaited.
    """

    scope: Scope
    attempt: AttemptFacts | None
    end: AttemptEnd | None
    failure: Retry | None = None
    messages: tuple[MessageFacts, ...] = ()
    tools: tuple[ToolStart, ...] = ()
    waits: bool = False
    turn: TurnEnd | None = None
    dropped_tools: tuple[ToolEnd, ...] = ()
    dropped_handoffs: tuple[ToolEnd, ...] = ()
    """Those of them that had handed a task over."""
    results: tuple[Said, ...] = ()
    limit: LimitFacts | None = None
    progress: Progress | None = None


class Recorder:
    """Takes facts, hands units to the writer, and keeps the steps under way."""

    def __init__(self, writer: Writer, hub: Hub, shelf: Shelf) -> None:
        self.writer = writer
        self.shelf = shelf
        self.owner = owner.own()
        self._hub = hub
        self.live = LiveSteps(hub.publish)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._pulse, name="xgw-pulse", daemon=True)

    def start(self) -> None:
        """Start the pulse: live frames every 50 ms, partial texts every 250 ms."""
        self.owner = owner.own()
        self._thread.start()

    def stop(self) -> None:
        """End the pulse."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2)

    @property
    def thread_id(self) -> int | None:
        """The pulse's native thread id, once it has started."""
        return self._thread.native_id

    def published(self, envelopes: Sequence[Envelope]) -> None:
        """What the writer calls after each commit: live frames of a step first, then its events."""
        self.live.tell(envelopes)

    # -- requests ------------------------------------------------------------------------------

    def begin(self, opening: Opening, bodies: Iterable[Stored], *, urgent: bool = True) -> Ticket:
        """A request begins: one transaction, its events in the order of events.md.

        Where its commit is only waited for together with the request's end it need not be `urgent`:
        it is written along with what is, at the latest with the pulse.
        """

        def work(tx: Transaction) -> None:
            self._open(tx, opening)

        part = Part(
            opening.scope.turn_id,
            opens=opening.turn is not None or opening.reopened is not None,
            remains=self._remains(opening),
            lost=self._expect(opening.attempt),
            apart=None
            if opening.turn is not None and opening.turn.parent
            else _apart(opening.scope),
        )
        return self._submit(work, bodies, part, _weight(opening.messages), urgent=urgent)

    def _remains(self, opening: Opening) -> Work | None:
        """What others build on even if the turn itself is dropped for want of memory."""
        if opening.session is None and not opening.closings:
            return None
        rest = Opening(
            opening.scope,
            opening.at,
            opening.session,
            opening.session_changes,
            opening.closings,
        )
        return lambda tx: self._open(tx, rest)

    def _expect(self, attempt: AttemptFacts | None) -> Callable[[], None] | None:
        """A try begins: nothing of it is told before its start. Returns what undoes it."""
        if attempt is None:
            return None
        self.live.expect(attempt.step_id)
        return partial(self.live.drop, attempt.step_id)

    def _open(self, tx: Transaction, opening: Opening) -> None:
        scope, at = opening.scope, opening.at
        if opening.session is not None:
            sessions.open_session(tx, opening.session, at)
        elif scope.session_id is not None:
            sessions.wake_session(
                tx, scope.project_id, scope.session_id, opening.session_changes, at
            )
        for closing in opening.closings:
            _close(tx, closing)
        if opening.turn is not None:
            turns.open_turn(tx, opening.turn)
        elif opening.reopened is not None:
            turns.reopen_turn(tx, scope, opening.reopened, self.owner, at)
        elif opening.resumed is not None:
            runs.continue_run(tx, scope, opening.resumed, self.owner, at)
        for arrived in opening.results:
            _arrive(tx, scope, arrived)
        messages.add_messages(tx, scope, opening.messages, at)
        if opening.results:
            call_ids = [arrived.end.tool_call_id for arrived in opening.results]
            size = opening.context_tokens, opening.context_window
            tools.send_results(tx, scope, call_ids, size, at)
        if opening.attempt is not None:
            attempts.start_attempt(tx, scope, opening.attempt)

    def fail_attempt(
        self,
        scope: Scope,
        attempt: AttemptFacts,
        end: AttemptEnd,
        retry: Retry,
        bodies: Iterable[Stored],
    ) -> Ticket:
        """An attempt failed and another one follows: `llm.error`, `step.completed`."""

        def work(tx: Transaction) -> None:
            attempts.report_failure(tx, scope, attempt, end, retry)
            attempts.end_attempt(tx, scope, attempt, end)

        lost = partial(self.live.drop, attempt.step_id)
        part = Part(scope.turn_id, lost=lost, apart=_apart(scope))
        return self._submit(work, bodies, part)

    def next_attempt(self, scope: Scope, attempt: AttemptFacts, bodies: Iterable[Stored]) -> Ticket:
        """The next try starts."""

        def work(tx: Transaction) -> None:
            attempts.start_attempt(tx, scope, attempt)

        part = Part(scope.turn_id, lost=self._expect(attempt), apart=_apart(scope))
        return self._submit(work, bodies, part)

    def finish(self, ending: Ending, bodies: Iterable[Stored]) -> Ticket:
        """A request ends: its step, what the model said, and perhaps the run and the turn."""

        def work(tx: Transaction) -> None:
            _end(tx, ending)

        part = Part(
            ending.scope.turn_id,
            closes=ending.turn is not None and not ending.waits,
            lost=partial(self.live.drop, ending.attempt.step_id) if ending.attempt else None,
            apart=_apart(ending.scope),
        )
        return self._submit(work, bodies, part, _weight(ending.messages))

    def close_turns(self, closings: Sequence[Closing]) -> Ticket:
        """Turns that end without a request of their own (their time ran out)."""

        def work(tx: Transaction) -> None:
            for closing in closings:
                _close(tx, closing)

        return self._submit(work, (), ALONE)

    def refuse(self, opening: Opening, end: TurnEnd, bodies: Iterable[Stored]) -> Ticket:
        """A request that xgw itself refused: a turn on its own that ends at once."""

        def work(tx: Transaction) -> None:
            self._open(tx, opening)
            turns.end_turn(tx, opening.scope, end)

        return self._submit(work, bodies, Part(opening.scope.turn_id, opens=True, closes=True))

    def submit_part(
        self,
        work: Work,
        bodies: Iterable[Stored],
        turn_id: str,
        *,
        opens: bool = False,
        attempt: AttemptFacts | None = None,
    ) -> Ticket:
        """Any other unit of a turn; `attempt` is the try that starts with it."""
        part = Part(turn_id, opens=opens, lost=self._expect(attempt))
        return self._submit(work, bodies, part)

    # -- shared --------------------------------------------------------------------------------

    def _submit(
        self,
        work: Work,
        bodies: Iterable[Stored],
        part: Part,
        size: int = UNIT_BYTES,
        *,
        urgent: bool = True,
    ) -> Ticket:
        held = Bodies(list({row[0]: row for body in bodies for row in body.rows}.values()))

        def unit(tx: Transaction) -> None:
            work(tx)
            if held.rows:
                kept = tuple(held.rows)
                tx.after_commit.append(lambda: self.shelf.committed(kept))

        return self.writer.submit(unit, size=size, bodies=held, part=part, urgent=urgent)

    def _pulse(self) -> None:
        beat = quiet = 0
        while not self._stopping.wait(PULSE_SECONDS):
            beat += 1
            self.writer.nudge()
            if self.writer.down:
                continue
            # Frames that wait get longer, not more.
            quiet = quiet + 1 if self._hub.busy and quiet < PATIENT_BEATS else 0
            if len(self.live) and not quiet:
                self.live.pulse()
            if beat % PARTIAL_EVERY == 0:
                self._save_partial_texts()

    def _save_partial_texts(self) -> None:
        changed = self.live.unsaved()
        if not changed:
            return
        at = clock.now()

        def work(tx: Transaction) -> None:
            for scope, step_id, text in changed:
                so_far, running = {"partial_output": _storable(text)}, {"status": "running"}
                if tx.change("steps", step_id, so_far, running):
                    tx.change("runs", scope.run_id, {"heartbeat_at": at})

        self.writer.submit(work, size=sum(len(text) for _, _, text in changed))


def _apart(scope: Scope) -> str:
    """What a unit concerns: rows of other sessions may be written before it or after."""
    return scope.session_id or scope.turn_id


def _weight(said: Iterable[MessageFacts]) -> int:
    """Memory of a unit with these messages; a text is there once, whoever else refers to it."""
    return UNIT_BYTES + sum(len(message.content or "") for message in said)


def _close(tx: Transaction, closing: Closing) -> None:
    for tool in closing.tools:
        tools.end_tool(tx, closing.scope, tool)
    turns.end_turn(tx, closing.scope, closing.end)


def _arrive(tx: Transaction, scope: Scope, arrived: Arrived) -> None:
    end = arrived.end
    if end.late:
        start = ToolStart(end.step_id, end.tool_call_id, end.name, end.arguments)
        tools.start_tool(tx, scope, start, end.ended_at, late=True)
    tools.end_tool(tx, scope, end)
    messages.add_messages(tx, scope, [arrived.message], end.ended_at, end.step_id)


def _end(tx: Transaction, ending: Ending) -> None:
    scope, attempt, end = ending.scope, ending.attempt, ending.end
    if attempt is not None and end is not None:
        if ending.failure is not None:
            attempts.report_failure(tx, scope, attempt, end, ending.failure)
        attempts.end_attempt(tx, scope, attempt, end)
        if end.tool_calls and end.status == "success":
            tools.request_tools(tx, scope, attempt.step_id, end.tool_calls, end.ended_at)
        messages.add_messages(tx, scope, ending.messages, end.ended_at, attempt.step_id)
        for tool in ending.tools:
            tools.start_tool(tx, scope, tool, end.ended_at, parent_step_id=attempt.step_id)
    kept = None
    if ending.progress is not None and (ended := end or ending.turn) is not None:
        kept = checkpoints.update(tx, scope, ending.progress, ended.ended_at)
    if ending.dropped_handoffs:
        unanswered.drop_tasks(tx, scope, ending.dropped_handoffs)
    for tool_end in ending.dropped_tools:
        tools.end_tool(tx, scope, tool_end)
    if ending.turn is not None:
        add_said(tx, scope, ending.results, ending.turn.ended_at)
        if ending.limit is not None:
            turns.reach_limit(tx, scope, ending.limit, ending.turn.ended_at)
    if ending.turn is not None and ending.waits:
        if kept is not None:
            tools.request_approvals(tx, scope, kept, ending.turn.ended_at)
        turns.wait_for_tools(tx, scope, ending.turn, kept)
    elif ending.turn is not None:
        turns.end_turn(tx, scope, ending.turn)


def add_said(tx: Transaction, scope: Scope, said: Iterable[Said], at: datetime.datetime) -> None:
    """The messages of several steps, in order."""
    for one in said:
        messages.add_messages(tx, scope, [one.message], at, one.step_id)


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
