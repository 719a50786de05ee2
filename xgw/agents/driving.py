"""The threads that turns run in: one a turn, which then goes on with those that wait behind it."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable

from xgw import clock
from xgw.agents.definition import Agents, Definition
from xgw.agents.lines import Line, Lines
from xgw.agents.loop import Loop
from xgw.agents.parts import Parts
from xgw.agents.preparing import prepare, turn_facts, user_message
from xgw.agents.snapshots import snapshot_of
from xgw.agents.turns import Turn
from xgw.errors import ApiError, conflict, internal, overloaded
from xgw.exchange.calls import Calls
from xgw.queries.agents import find_first_queued
from xgw.recording.agents import SESSION_BUSY, Then
from xgw.recording.edits import Edits
from xgw.recording.recovery import Cause
from xgw.store.database import Store
from xgw.store.writer import Patience, Ticket

log = logging.getLogger("xgw.agents")

Submit = Callable[[Then], Ticket]

SUPERSEDED = Cause("superseded", "cancelled")
NO_AGENT = Cause("gateway", "error", "internal", "its agent is not defined any more")
FAILED = Cause("gateway", "error", "internal", "xgw itself failed")


class Driver:
    """Begins turns and runs them; whoever calls holds the lock of their line."""

    def __init__(
        self, store: Store, parts: Parts, agents: Agents, calls: Calls, lines: Lines
    ) -> None:
        self._store = store
        self._parts = parts
        self._agents = agents
        self._calls = calls
        self._lines = lines
        self._edits = Edits(parts.means.recorder.writer)

    def begin(self, line: Line, turn: Turn, definition: Definition) -> None:
        """A turn begins; ApiError 409 `session_busy`, 503."""
        self._calls.enter()
        self._calls.add(turn.scope.turn_id, turn.call)  # whoever hears of it may cancel it
        try:
            facts, bodies = turn_facts(self._parts.means, turn, definition)
            message = user_message(self._parts.means, turn.wanted.message)
            ticket = self._parts.record.begin(facts, message, bodies)
            self._wait_for_begin(ticket)
        except BaseException:
            self._calls.remove(turn.scope.turn_id, turn.call)
            self._calls.leave()
            raise
        self._go(line, turn, definition)

    def _wait_for_begin(self, ticket: Ticket) -> None:
        """Without its start in the store a turn still runs, but not beside another one."""
        self._parts.means.recorder.writer.wait(ticket, Patience())
        if ticket.error is not None:
            raise _refusal(ticket.error)

    def launch(self, line: Line, turn: Turn, definition: Definition, submit: Submit) -> None:
        """A run of a turn goes on, once the unit that `submit` hands over says so after its commit.

        ApiError as the unit fails, 503.
        """
        self._calls.enter()
        self._calls.add(turn.scope.turn_id, turn.call)
        self._lines.hold(line)

        refusals: list[ApiError] = []

        def settle(outcome: bool | ApiError) -> None:
            if isinstance(outcome, ApiError):
                refusals.append(outcome)
            if outcome is True:
                self._go(line, turn, definition)
            else:
                self._calls.remove(turn.scope.turn_id, turn.call)
                self._calls.leave()
            self._lines.release(line)

        ticket = submit(settle)
        try:
            self._wait_for_begin(ticket)
        except BaseException:
            settle(False)
            raise
        if refusals:
            raise refusals[0]
        if not ticket.done:
            message = "the store cannot be written at the moment: what was asked for waits for it"
            raise overloaded(message, retry_after=1)

    def occupy(self, line: Line, turn: Turn) -> None:
        """Work that is no turn of its own begins; ApiError 503."""
        self._calls.enter()
        self._calls.add(turn.scope.turn_id, turn.call)
        line.active = turn

    def give_way(self, line: Line, turn: Turn) -> None:
        """That work is over: the first that waits begins in its place."""
        self._calls.remove(turn.scope.turn_id, turn.call)
        with line.lock:
            self._go_on(line)

    def end(self, turn: Turn, cause: Cause) -> Ticket:
        """End a turn that no loop ends, as it stands."""
        return self.wait(self._edits.end_turn(turn.scope.turn_id, cause))

    def wait(self, ticket: Ticket) -> Ticket:
        """Wait for a commit, as long as one may."""
        self._parts.means.recorder.writer.wait(ticket, Patience())
        return ticket

    def _go(self, line: Line, turn: Turn, definition: Definition) -> None:
        """Run a turn that has begun, in a thread, and then those that wait."""
        line.active = turn
        self._lines.hold(line)
        threading.Thread(
            target=self._drive, args=(line, turn, definition), name="xgw-agent", daemon=True
        ).start()

    def _drive(self, line: Line, turn: Turn, definition: Definition) -> None:
        try:
            next_one: tuple[Turn, Definition] | None = (turn, definition)
            while next_one is not None:
                waits = self._run(*next_one)
                next_one = self._advance(line, waits=waits)
        finally:
            self._calls.leave()
            self._lines.release(line)

    def _run(self, turn: Turn, definition: Definition) -> bool:
        """Run a turn; True if it waits for a person now, and still holds its session."""
        try:
            start = prepare(self._store, self._parts.means, turn, definition)
            turn.waits = Loop(self._parts, turn, start, lambda: self._calls.closing).run()
            if turn.waits and turn.reason == "superseded":
                self.end(turn, SUPERSEDED)
                turn.waits = False
        except Exception:  # the driver of a run: one that fails must not hold up its session
            log.exception("turn %s failed", turn.scope.turn_id)
            self.end(turn, FAILED)
        finally:
            self._calls.remove(turn.scope.turn_id, turn.call)
        return turn.waits

    def _advance(self, line: Line, *, waits: bool = False) -> tuple[Turn, Definition] | None:
        """The turn under way has ended, or waits for a person: the next that can begin does."""
        with line.lock:
            if line.active is not None:
                active, line.active = line.active, None
                active.done.set()
            if waits:
                return None
            while not self._calls.closing and (turn := self._first_of(line)) is not None:
                line.waiting.remove(turn)
                try:
                    definition = self._start_queued(turn)
                except ApiError:  # a turn of another process has just begun
                    line.waiting.appendleft(turn)
                    return None
                if definition is not None:
                    line.active = turn
                    return turn, definition
                turn.done.set()
        return None

    def _first_of(self, line: Line) -> Turn | None:
        """The turn whose time has come; None if there is none, or it waits in another process."""
        if not line.waiting:
            return None
        first = find_first_queued(self._store, line.session_id)
        return line.waiting[0] if first is None else line.find_waiting(first)

    def _start_queued(self, turn: Turn) -> Definition | None:
        """Begin a turn that waited; None if it is over, or its agent is gone.

        ApiError 409 `session_busy` if another turn of the session is under way.
        """
        means, definition = self._parts.means, self._agents.get(turn.agent_name)
        message = user_message(means, turn.wanted.message)
        snapshot = None if definition is None else snapshot_of(means, definition, turn.wanted)
        self._calls.add(turn.scope.turn_id, turn.call)
        ticket = self._parts.record.start(turn.scope, message, snapshot, clock.now())
        means.recorder.writer.wait(ticket, Patience())
        if ticket.error is None and definition is not None:
            return definition
        self._calls.remove(turn.scope.turn_id, turn.call)
        if ticket.error is None:
            self.end(turn, NO_AGENT)
        elif (refusal := _refusal(ticket.error)).code == SESSION_BUSY:
            raise refusal
        return None

    def advance(self, line: Line) -> None:
        """Begin the first that waits and can begin, where nothing is under way."""
        if not self._calls.closing and self._has_place():
            self._go_on(line)

    def _go_on(self, line: Line) -> None:
        """The same in a place among the calls that is taken already."""
        begun = self._advance(line)
        if begun is None:
            self._calls.leave()
        else:
            self._go(line, *begun)

    def _has_place(self) -> bool:
        try:
            self._calls.enter()
        except ApiError:  # it waits a little longer
            return False
        return True


def _refusal(error: Exception) -> ApiError:
    """Why a turn cannot begin; the database refuses a second one of a session itself."""
    if isinstance(error, sqlite3.IntegrityError):
        return conflict("another turn of the session has just begun", code=SESSION_BUSY)
    return error if isinstance(error, ApiError) else internal()
