"""Who runs when: one turn a session at a time, the others in the order in which they came.

A turn belongs to the server, not to the client that asked for it. The database has the last word:
it refuses a second turn under way in a session, whoever began the first.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import peewee

from xgw import clock
from xgw.agents.definition import Agents, Definition
from xgw.agents.driving import SUPERSEDED, Driver, Submit
from xgw.agents.holding import Holders
from xgw.agents.lines import Line, Lines
from xgw.agents.parts import Parts
from xgw.agents.preparing import new_scope, queued_turn, turn_facts
from xgw.agents.turns import Turn, Wanted
from xgw.errors import ApiError, conflict, internal, overloaded
from xgw.exchange.calls import Calls
from xgw.queries.agents import find_first_queued, find_holder, list_queued
from xgw.recording import owner
from xgw.recording.agents import SESSION_BUSY
from xgw.recording.edits import Edits
from xgw.recording.recovery import USER_CANCEL, Cause
from xgw.store.database import Store
from xgw.store.writer import Patience, Ticket

log = logging.getLogger("xgw.agents")

Row = Mapping[str, Any]
IfBusy = Literal["queue", "reject", "supersede"]

BUSY = "session {} is busy: a turn of it is under way"
MAX_WAITING = 100
EVERY_SECONDS = 2.0
STOP_SECONDS = 4.0
LEAVING_SECONDS = 0.05


class Scheduler:
    """Takes messages to agents and runs their turns, each in a thread of its own."""

    def __init__(self, store: Store, parts: Parts, agents: Agents, calls: Calls) -> None:
        self._store = store
        self._parts = parts
        self._agents = agents
        writer = parts.means.recorder.writer
        self._edits, self._holders = Edits(writer), Holders(store, writer)
        self._lines = Lines()
        self._driver = Driver(store, parts, agents, calls, self._lines)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="xgw-agents", daemon=True)

    @property
    def parts(self) -> Parts:
        """What its turns work with."""
        return self._parts

    @property
    def agents(self) -> Agents:
        """Every agent by its name."""
        return self._agents

    def start(self) -> None:
        """Take up what waited in a process that is gone, and keep looking for it."""
        self._look()
        self._thread.start()

    def stop(self) -> None:
        """End the thread; turns under way are ended by their calls."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2)

    # -- asking --------------------------------------------------------------------------------

    def submit(self, definition: Definition, session: Row, wanted: Wanted, busy: IfBusy) -> Turn:
        """A message to an agent in one of its sessions: its turn runs, or waits.

        ApiError 404 if the session is gone, 409 `session_busy` with `reject`, 503 if too many run
        or wait, or if the store cannot be written.
        """
        line = self._lines.take(session["id"])
        try:
            with line.lock:
                return self._place(line, definition, session, wanted, busy)
        finally:
            self._lines.release(line)

    def _place(
        self, line: Line, definition: Definition, session: Row, wanted: Wanted, busy: IfBusy
    ) -> Turn:
        turn = Turn(new_scope(session), definition.name, wanted)
        if line.active is None:
            self._make_room(line, busy)
        is_free = line.active is None and not line.waiting and not self._is_taken(line)
        if not is_free and busy == "reject":
            raise conflict(BUSY.format(line.session_id), code=SESSION_BUSY)
        if not (is_free and self._begin(line, turn, definition, busy)):
            self._queue(line, turn, supersedes=busy == "supersede")
        return turn

    def _begin(self, line: Line, turn: Turn, definition: Definition, busy: IfBusy) -> bool:
        """Whether the turn has begun; False if one of another process was faster, and it may wait.

        ApiError as `submit` has it.
        """
        try:
            self._driver.begin(line, turn, definition)
        except ApiError as refusal:
            if refusal.code != SESSION_BUSY or busy == "reject":
                raise
            return False
        return True

    def _make_room(self, line: Line, busy: IfBusy) -> None:
        """A turn that waits for a person, or was interrupted, gives way if that is wanted.

        ApiError 409 `turn_paused` if it is not, and nothing goes on by itself.
        """
        held = self._holders.find(line.session_id)
        if held is None or held["run_status"] not in ("waiting_tool", "paused"):
            return
        if busy == "supersede":
            for earlier in list(line.waiting):
                self._drop(line, earlier, SUPERSEDED)
            seen = held["run_id"], held["run_status"]
            self._driver.wait(self._edits.end_turn(held["id"], SUPERSEDED, seen))
        elif held["run_status"] == "paused":
            named = {"turn_id": held["id"], "run_id": held["run_id"]}
            message = (
                f"turn {held['id']} of the session was interrupted: "
                f"resume its run {held['run_id']}, or cancel it"
            )
            actions = {"actions": ["resume", "cancel"], **named}
            raise conflict(message, code="turn_paused", more=actions)

    def launch(
        self, turn: Turn, definition: Definition, check: Callable[[], None], submit: Submit
    ) -> None:
        """Have a run of a turn go on that the store has already.

        `check` raises if that is not possible any more. `submit` hands over the unit that says so,
        and has to call what it gets after the commit: with True if the run is under way now.
        ApiError as they fail, 409 `session_busy`, 503.
        """
        line = self._lines.take(turn.scope.session_id or "")
        try:
            deadline = clock.monotonic() + STOP_SECONDS
            while (active := line.active) is not None and clock.monotonic() < deadline:
                check()
                if active.scope.turn_id != turn.scope.turn_id:
                    break
                active.done.wait(LEAVING_SECONDS)  # its thread is just leaving
            with line.lock:
                if line.active is not None:
                    raise conflict(BUSY.format(line.session_id), code=SESSION_BUSY)
                self._driver.launch(line, turn, definition, submit)
        finally:
            self._lines.release(line)

    def _queue(self, line: Line, turn: Turn, *, supersedes: bool) -> None:
        if supersedes:
            for earlier in list(line.waiting):
                self._drop(line, earlier, SUPERSEDED)
            if line.active is not None:
                line.active.stop("superseded")
        if len(line.waiting) >= MAX_WAITING:
            raise overloaded(f"{MAX_WAITING} turns of the session wait already", retry_after=5)
        facts, bodies = turn_facts(self._parts.means, turn, None)
        ticket = self._parts.record.queue(facts, bodies)
        line.waiting.append(turn)
        self._parts.means.recorder.writer.wait(ticket, Patience())
        if ticket.error is not None:
            line.waiting.remove(turn)
            raise ticket.error if isinstance(ticket.error, ApiError) else internal()

    def position(self, turn: Turn) -> int | None:
        """How many turns are before one that waits, from 1; None if it does not wait."""
        line = self._lines.find(turn.scope.session_id or "")
        waiting = list(line.waiting) if line else []
        return waiting.index(turn) + 1 if turn in waiting else None

    @contextlib.contextmanager
    def occupied(self, turn: Turn) -> Iterator[None]:
        """Work in a session that is no turn of its own: `turn` stands for it in its line.

        Messages that come meanwhile wait. ApiError 409 `session_busy` if a turn runs or waits.
        """
        line = self._lines.take(turn.scope.session_id or "")
        try:
            with line.lock:
                if line.active is not None or line.waiting or self._is_held(line):
                    raise conflict(BUSY.format(line.session_id), code=SESSION_BUSY)
                self._driver.occupy(line, turn)
            try:
                yield
            finally:
                self._driver.give_way(line, turn)
        finally:
            self._lines.release(line)

    # -- ending --------------------------------------------------------------------------------

    def withdraw(self, turn_id: str, session_id: str) -> bool:
        """Cancel a turn that waits here; False if it does not. Returns once that is committed."""
        line = self._lines.take(session_id)
        try:
            with line.lock:
                turn = line.find_waiting(turn_id)
                if turn is None:
                    return False
                ticket = self._drop(line, turn, USER_CANCEL)
        finally:
            self._lines.release(line)
        if not ticket.done:
            raise overloaded("the store cannot be written at the moment", retry_after=1)
        return True

    def leave(self, session_id: str) -> None:
        """End all turns of a session that is to be deleted, those that wait first."""
        line = self._lines.take(session_id)
        try:
            with line.lock:
                for turn in list(line.waiting):
                    self._drop(line, turn, USER_CANCEL)
                active = line.active
            if active is not None:
                active.stop("user_cancel")
                active.done.wait(STOP_SECONDS)
        finally:
            self._lines.release(line)

    def _drop(self, line: Line, turn: Turn, cause: Cause) -> Ticket:
        line.waiting.remove(turn)
        ticket = self._driver.end(turn, cause)
        turn.done.set()
        return ticket

    # -- what others left ----------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stopping.wait(EVERY_SECONDS):
            self._look()

    def _look(self) -> None:
        try:
            self.take_up()
        except (peewee.DatabaseError, sqlite3.DatabaseError) as error:
            log.warning("turns that wait could not be looked at: %s", error)

    def take_up(self) -> None:
        """Queue here what waited in processes that are gone, and begin what can begin."""
        for row in list_queued(self._store):
            if not owner.is_alive(row["owner"]):
                self._adopt(row)
        for line in self._lines.all():
            self._nudge(line)

    def _adopt(self, row: Row) -> None:
        line = self._lines.take(row["session_id"])
        try:
            with line.lock:
                if not line.has(row["id"]):
                    line.waiting.append(queued_turn(row))
        finally:
            self._lines.release(line)

    def nudge(self, session_id: str) -> None:
        """A turn of this session may have ended without its thread: whoever waits may begin."""
        line = self._lines.find(session_id)
        if line is not None:
            self._nudge(line)

    def _nudge(self, line: Line) -> None:
        """Begin the first that waits where nothing is under way, here or in another process."""
        with line.lock:
            if line.active is not None or not line.waiting or self._is_held(line):
                return
            self._driver.advance(line)

    # -- small things --------------------------------------------------------------------------

    def _is_taken(self, line: Line) -> bool:
        """Whether one is, or waits for that, in whatever process."""
        return self._is_held(line) or find_first_queued(self._store, line.session_id) is not None

    def _is_held(self, line: Line) -> bool:
        """Whether a turn of the session is under way in the store, in whatever process."""
        return find_holder(self._store, line.session_id) is not None
