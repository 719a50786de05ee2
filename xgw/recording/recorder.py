"""The recorder: the only writer of state. It turns facts into units of work for the writer.

One request is at most: one unit when it begins, one or two for each failed attempt, one when it
ends. Each unit holds the rows and their events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from xgw import clock
from xgw.events import Envelope
from xgw.hub import Hub
from xgw.recording import attempts, notes, owner, turns
from xgw.recording.facts import (
    AttemptEnd,
    AttemptFacts,
    MessageFacts,
    Retry,
    Scope,
    TurnEnd,
)
from xgw.recording.live import LiveSteps
from xgw.recording.requests import Closing, Ending, Opening, close_turn, end_request, open_request
from xgw.store.payloads import Shelf, Stored
from xgw.store.transaction import Transaction
from xgw.store.units import Note
from xgw.store.writer import ALONE, Bodies, Part, Ticket, Work, Writer

PULSE_SECONDS = 0.05
PARTIAL_EVERY = 5
PATIENT_BEATS = 4
"""How many beats may pass without live frames while readers are still woken for what went out."""

UNIT_BYTES = 2048


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
        """What is called after each commit: live frames of a step first, then its events.

        Ahead of them go those that a scribe has committed and could not tell of any more.
        """
        first = envelopes[0].seq if envelopes else None
        missed = self._hub.missed(first - 1) if first is not None else []
        self.live.tell([*missed, *envelopes])

    # -- requests ------------------------------------------------------------------------------

    def begin(self, opening: Opening, bodies: Iterable[Stored], *, urgent: bool = True) -> Ticket:
        """A request begins: one transaction, its events in the order of events.md.

        Where its commit is only waited for together with the request's end it need not be `urgent`:
        it is written along with what is, at the latest with the pulse.
        """

        def work(tx: Transaction) -> None:
            open_request(tx, opening, self.owner)

        part = Part(
            opening.scope.turn_id,
            opens=opening.turn is not None or opening.reopened is not None,
            remains=self._remains(opening),
            lost=self._expect(opening.attempt),
            apart=None
            if opening.turn is not None and opening.turn.parent
            else _apart(opening.scope),
        )
        note = notes.note_begin(opening, self.owner)
        size = _weight(opening.messages)
        return self._submit(work, bodies, part, size, note=note, urgent=urgent)

    def prepare(self, ticket: Ticket) -> None:
        """Pack a unit's bodies now, if this process will write them and does not do so already."""
        bodies = ticket.bodies
        if bodies is not None and not ticket.urgent and not self.writer.crowded:
            bodies.pack()

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
        return lambda tx: open_request(tx, rest, self.owner)

    def _expect(self, attempt: AttemptFacts | None) -> Callable[[], None] | None:
        """A try begins: nothing of it is told before its start. Returns what undoes it."""
        if attempt is None:
            return None
        self.live.expect(attempt.step_id)
        return partial(self.live.drop, attempt.step_id)

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

    def finish(self, ending: Ending, bodies: Iterable[Stored], *, awaited: bool = False) -> Ticket:
        """A request ends: its step, what the model said, and perhaps the run and the turn.

        Where it is `awaited` the caller waits for it at once, and calls `writer.tell` once it has
        answered its client.
        """

        def work(tx: Transaction) -> None:
            end_request(tx, ending)

        part = Part(
            ending.scope.turn_id,
            closes=ending.turn is not None and not ending.waits,
            lost=partial(self.live.drop, ending.attempt.step_id) if ending.attempt else None,
            apart=_apart(ending.scope),
        )
        note = notes.note_end(ending)
        size = _weight(ending.messages)
        return self._submit(work, bodies, part, size, note=note, awaited=awaited)

    def close_turns(self, closings: Sequence[Closing]) -> Ticket:
        """Turns that end without a request of their own (their time ran out)."""

        def work(tx: Transaction) -> None:
            for closing in closings:
                close_turn(tx, closing)

        return self._submit(work, (), ALONE)

    def refuse(self, opening: Opening, end: TurnEnd, bodies: Iterable[Stored]) -> Ticket:
        """A request that xgw itself refused: a turn on its own that ends at once."""

        def work(tx: Transaction) -> None:
            open_request(tx, opening, self.owner)
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
        note: Note | None = None,
        urgent: bool = True,
        awaited: bool = False,
    ) -> Ticket:
        held = Bodies(list({row[0]: row for body in bodies for row in body.rows}.values()))
        return self.writer.submit(
            work,
            size=size,
            bodies=held,
            part=part,
            note=note,
            then=lambda: self.shelf.committed(held.rows),
            urgent=urgent,
            awaited=awaited,
        )

    def _pulse(self) -> None:
        beat = quiet = 0
        while not self._stopping.wait(PULSE_SECONDS):
            beat += 1
            self.writer.nudge()
            self.writer.tell()
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


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
