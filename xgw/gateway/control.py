"""What is asked for explicitly: sessions opened, changed and deleted, turns cancelled.

It goes by the same states and locks as the traffic, so that neither undoes what the other does.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from xgw import clock, ids
from xgw.errors import ApiError, conflict, internal, not_found, overloaded
from xgw.exchange.calls import Calls
from xgw.frozen import changed
from xgw.gateway.closing import close_waiting
from xgw.gateway.sessions import Sessions
from xgw.gateway.state import Cancellation, SessionState, TurnState
from xgw.providers.transport import Call
from xgw.queries.runs import newest_of_turn
from xgw.queries.turns import find_turn
from xgw.recording.edits import Edits, is_abandoned
from xgw.recording.facts import SessionFacts
from xgw.recording.forks import Shown
from xgw.recording.lifecycle import ENDED, STATUS_OF_CAUSE, AlreadyOver
from xgw.recording.recorder import Recorder
from xgw.store.database import Store
from xgw.store.writer import Patience, Ticket

Row = Mapping[str, Any]

TRIES = 3
IDLE = ("waiting_tool", "paused")
"""A turn that is to be cancelled may begin to wait, or go on, while that is under way."""


class Control:
    """Each method returns once what it was asked for is committed.

    ApiError 503 if the store cannot be written: it is then written when the store is back.
    """

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        calls: Calls,
        recorder: Recorder,
        on_deletion: Callable[[], None],
    ) -> None:
        """`on_deletion` is called after the commit of each deletion."""
        self._store = store
        self._sessions = sessions
        self._calls = calls
        self._recorder = recorder
        self._edits = Edits(recorder.writer)
        self._on_deletion = on_deletion

    # -- sessions ------------------------------------------------------------------------------

    def open_session(self, wanted: SessionFacts) -> tuple[str, bool]:
        """The id of the session with the key that is wanted, and whether it is new.

        Without a key it is new, and its key its id.
        """
        taken = (
            self._sessions.take(wanted.project_id, wanted.session_key)
            if wanted.session_key
            else self._sessions.take_new(wanted.project_id)
        )
        try:
            with self._sessions.held(taken) as taken:
                is_new = not taken.exists
                if is_new:
                    self._wait(self._open(taken, wanted))
                ticket, successor = taken.last_ticket, taken.successor
        finally:
            self._sessions.release(taken)
        if successor is not None:  # another process was first
            return self.open_session(wanted)
        if ticket is not None and not ticket.done:
            self._wait(ticket)
        return taken.session_id, is_new

    def _open(self, session: SessionState, wanted: SessionFacts) -> Ticket:
        """Whoever comes with its key waits until it is committed: it may be another one then."""
        facts = changed(wanted, id=session.session_id, session_key=session.session_key)
        taken = partial(self._sessions.give_way, session)
        session.last_ticket = ticket = self._edits.open_session(facts, taken)
        session.exists = session.is_empty = True
        session.task_id = wanted.task_id
        return ticket

    def change_session(self, session: Row, changes: dict[str, Any]) -> None:
        """Change these columns of a session."""
        self._wait(self._edits.change_session(session["project_id"], session["id"], changes))

    def fork_session(self, session: Row, turn_id: str, shown: Shown) -> str:
        """The id of a new session that shares the history of this one up to a turn.

        `shown` names the messages that count of turns that were run several times.
        ApiError 409 `not_an_agents` for a session whose history is its client's, 409 `turn_open`,
        422.
        """
        if session["agent_name"] is None:
            message = "the history of the session is its client's: only an agent's can be forked"
            raise conflict(message, code="not_an_agents")
        new_id = ids.mint("sess")
        refused: list[ApiError] = []
        self._wait(self._edits.fork_session(session["id"], turn_id, new_id, shown, refused))
        if refused:
            raise refused[0]
        return new_id

    def delete_session(self, session: Row) -> None:
        """Delete a session and everything under it; what is under way in it is cancelled first.

        Whoever comes with its key meanwhile waits, and begins a new session.
        """
        taken = self._sessions.take(session["project_id"], session["id"])
        try:
            ticket = self._delete(taken, session["id"])
        finally:
            self._sessions.release(taken)
        self._wait(ticket)

    def _delete(self, session: SessionState, session_id: str) -> Ticket:
        key, project_id = session.session_key, session.project_id
        successor = SessionState(ids.mint("sess"), key, project_id, exists=False)
        with successor.lock:
            with session.lock:
                if session.session_id != session_id or session.successor is not None:
                    # Someone else is just deleting it.
                    raise not_found(f"there is no session {session_id!r}", code="session_not_found")
                self._sessions.supersede(session, successor)
                busy = [t.scope.turn_id for t in session.turns.values() if t.under_way]
            for turn_id in busy:
                self._calls.cancel(turn_id)
            for turn_id in busy:
                self._calls.end(turn_id)
            successor.last_ticket = self._edits.delete_session(
                project_id, session_id, lambda: self._deleted(session_id)
            )
            return successor.last_ticket

    def prune_session(self, session: Row, before: datetime.datetime) -> bool:
        """Delete a session without activity since then; False if it has had some, or has just now.

        Nothing is cancelled for it.
        """
        taken = self._sessions.take(session["project_id"], session["id"])
        try:
            return self._prune(taken, session["id"], before)
        finally:
            self._sessions.release(taken)

    def _prune(self, session: SessionState, session_id: str, before: datetime.datetime) -> bool:
        key, project_id = session.session_key, session.project_id
        successor = SessionState(ids.mint("sess"), key, project_id, exists=False)
        deleted: list[bool] = []

        def gone() -> None:
            deleted.append(True)
            self._deleted(session_id)

        with successor.lock:
            with session.lock:
                busy = any(turn.under_way for turn in session.turns.values())
                if busy or session.session_id != session_id or session.successor is not None:
                    return False
                self._sessions.supersede(session, successor)
                ticket = self._edits.prune_session(
                    project_id,
                    session_id,
                    before,
                    gone=gone,
                    kept=lambda: self._sessions.reinstate(session, successor),
                )
                successor.last_ticket = ticket
            # Whoever comes with its key meanwhile waits: it may stay.
            self._wait(ticket)
        return bool(deleted)

    def _deleted(self, session_id: str) -> None:
        self._sessions.forget(session_id)
        self._on_deletion()

    # -- turns ---------------------------------------------------------------------------------

    def cancel_turn(self, turn_id: str) -> None:
        """Cancel a turn that is under way, waits for tools or was abandoned.

        ApiError 404; AlreadyOver (409) if it is over; 409 `turn_elsewhere` if another process
        works on it.
        """
        for attempt in range(TRIES + 1):
            turn = find_turn(self._store, turn_id)
            if turn is None:
                raise not_found(f"there is no turn {turn_id!r}", code="turn_not_found")
            if turn["status"] == "cancelled" and attempt:
                return
            if turn["status"] in ENDED:
                raise AlreadyOver(turn_id, turn["status"], turn["ended_by"])
            if attempt < TRIES and self._end_turn(turn):
                return
        raise overloaded(f"turn {turn_id} takes long to end: try again", retry_after=1)

    def _end_turn(self, turn: Row) -> bool:
        """By its calls; else as one that waits, or that nobody works on.

        True if it has been cancelled by that; else it is to be seen in the store.
        """
        if turn["session_id"] is not None and turn["endpoint"] is not None:  # an agent's has none
            return self._end_in_session(turn)
        # Looked at before its calls: one that goes on meanwhile is not as it was seen.
        run = newest_of_turn(self._store, turn["id"])
        if self._calls.end(turn["id"]):
            self._wait_for_all()
        else:
            self._wait(self._end_as_seen(turn, run))
        return False

    def _end_in_session(self, turn: Row) -> bool:
        """A turn that requests may go on with at any time, also right after its end."""
        taken = self._sessions.take(turn["project_id"], turn["session_id"])
        calls: frozenset[Call] = frozenset()
        try:
            with self._sessions.held(taken) as taken:
                state = self._sessions.find_turn(taken, turn["id"])
                if state is not None and state.under_way:
                    cancellation, ticket = state.cancel(), None
                    calls = self._calls.cancel(turn["id"])
                else:
                    cancellation = Cancellation()
                    ticket = self._end_idle(taken, state, cancellation)
        finally:
            self._sessions.release(taken)
        self._calls.wait_for_ends(turn["id"], calls)
        if ticket is not None:
            self._wait(ticket)
        else:
            self._wait_for_all()
        return self._is_cancelled(turn["id"], cancellation)

    def _end_idle(
        self, session: SessionState, turn: TurnState | None, cancellation: Cancellation
    ) -> Ticket | None:
        """End a turn that no request works on; the end of one that is over, or gone, is awaited."""
        if turn is not None and turn.status == "waiting":
            closing = close_waiting(turn, "user_cancel", clock.now())
            session.last_ticket = self._recorder.close_turns([closing])
            cancellation.ended_by = "user_cancel"
        elif turn is not None and turn.status == "running":
            turn_id = turn.scope.turn_id
            self._check_owner(turn_id, newest_of_turn(self._store, turn_id))
            session.last_ticket = self._edits.end_turn(turn_id)
            close_waiting(turn, "user_cancel", clock.now())
        return session.last_ticket

    def _is_cancelled(self, turn_id: str, cancellation: Cancellation) -> bool:
        """False if that is not known; AlreadyOver (409) if it came to its end by itself."""
        if cancellation.ended_by is None:
            return False
        status = STATUS_OF_CAUSE[cancellation.ended_by]
        if status != "cancelled":
            raise AlreadyOver(turn_id, status, cancellation.ended_by)
        return True

    def _end_as_seen(self, turn: Row, run: Row | None) -> Ticket:
        """An agent's turn that waits for a person is nobody's; any other one may be another's."""
        if turn["endpoint"] is not None or run is None or run["status"] not in IDLE:
            self._check_owner(turn["id"], run)
        seen = (run["id"], run["status"]) if run else None
        return self._edits.end_turn(turn["id"], seen=seen)

    def _check_owner(self, turn_id: str, run: Row | None) -> None:
        """ApiError 409 if another process works on a turn."""
        owned_by = run["owner"] if run else None
        if owned_by != self._recorder.owner and not is_abandoned(owned_by):
            message = f"turn {turn_id} cannot be cancelled here: another process works on it"
            raise conflict(message, code="turn_elsewhere")

    def _wait_for_all(self) -> None:
        """Wait for the commit of what is queued by now."""
        self._wait(self._recorder.writer.submit(lambda tx: None))

    def _wait(self, ticket: Ticket) -> None:
        if not self._recorder.writer.wait(ticket, Patience()):
            message = "the store cannot be written at the moment: what was asked for waits for it"
            raise overloaded(message, retry_after=1)
        if ticket.error is not None:
            raise ticket.error if isinstance(ticket.error, ApiError) else internal()
