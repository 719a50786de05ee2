"""What is asked for explicitly: sessions opened, changed and deleted, turns cancelled.

It goes by the same states and locks as the traffic, so that neither undoes what the other does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from xgw import clock, ids
from xgw.errors import ApiError, not_found, overloaded
from xgw.exchange.calls import Calls
from xgw.gateway.placement import close_waiting
from xgw.gateway.state import Sessions, SessionState
from xgw.queries.turns import find_turn
from xgw.recording.edits import Edits, is_abandoned
from xgw.recording.facts import SessionFacts
from xgw.recording.lifecycle import ENDED, IllegalMove
from xgw.recording.recorder import Recorder
from xgw.store.database import Store
from xgw.store.writer import Patience, Ticket

Row = Mapping[str, Any]

CANCEL_SECONDS = 10.0
TRIES = 5


class Control:
    """Each method returns once what it was asked for is committed.

    ApiError 503 if the store cannot be written: it is then written when the store is back.
    """

    def __init__(self, store: Store, sessions: Sessions, calls: Calls, recorder: Recorder) -> None:
        self._store = store
        self._sessions = sessions
        self._calls = calls
        self._recorder = recorder
        self._edits = Edits(recorder.writer)

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
                    self._open(taken, wanted)
                ticket = taken.last_ticket
        finally:
            self._sessions.release(taken)
        if ticket is not None:
            self._wait(ticket)
        return taken.session_id, is_new

    def _open(self, session: SessionState, wanted: SessionFacts) -> None:
        facts = replace(wanted, id=session.session_id, session_key=session.session_key)
        session.last_ticket = self._edits.open_session(facts)
        session.exists = session.is_empty = True
        session.task_id = wanted.task_id

    def change_session(self, session: Row, changes: dict[str, Any]) -> None:
        """Change these columns of a session."""
        ticket = self._edits.change_session(session["project_id"], session["id"], changes)
        self._wait(ticket)

    def delete_session(self, session: Row) -> None:
        """Delete a session and everything under it; what is under way in it is cancelled first.

        Whoever comes with its key meanwhile waits, and begins a new session.
        """
        session_id, project_id = session["id"], session["project_id"]
        if self._sessions.is_leaving(session_id):
            raise _gone(session_id)
        taken = self._sessions.take(project_id, session_id)
        try:
            ticket = self._delete(taken, session_id)
        finally:
            self._sessions.release(taken)
        self._wait(ticket)

    def _delete(self, session: SessionState, session_id: str) -> Ticket:
        key, project_id = session.session_key, session.project_id
        successor = SessionState(ids.mint("sess"), key, project_id, exists=False)
        with successor.lock:
            with session.lock:
                if session.session_id != session_id or session.successor is not None:
                    raise _gone(session_id)  # someone else was faster
                self._sessions.supersede(session, successor)
                busy = [t.scope.turn_id for t in session.turns.values() if t.under_way]
            for turn_id in busy:
                self._calls.end(turn_id)
            ticket = self._edits.delete_session(
                project_id, session_id, lambda: self._sessions.forget(session_id)
            )
            successor.last_ticket = ticket
        return ticket

    # -- turns ---------------------------------------------------------------------------------

    def cancel_turn(self, turn: Row) -> None:
        """Cancel a turn, under way, waiting or abandoned.

        IllegalMove (409) if it ended otherwise; ApiError 409 `turn_elsewhere` if another process
        works on it.
        """
        turn_id: str = turn["id"]
        now: Row | None = turn
        deadline = clock.monotonic() + CANCEL_SECONDS
        for _ in range(TRIES):
            if now is None:
                raise not_found(f"there is no turn {turn_id!r}", code="turn_not_found")
            if now["status"] in ENDED or clock.monotonic() > deadline:
                break
            self._end_turn(now)
            now = find_turn(self._store, turn_id)
        if now is turn or now is None or now["status"] in ENDED - {"cancelled"}:
            raise IllegalMove("turn", turn_id, now and now["status"], "cancelled")
        if now["status"] != "cancelled":
            raise _elsewhere(turn_id)

    def _end_turn(self, turn: Row) -> None:
        """One try: by its calls, as one that waits, or as one that nobody works on."""
        turn_id = turn["id"]
        if self._calls.end(turn_id):
            return self._settle()
        if turn["session_id"] is None:
            return self._wait(self._edits.end_turn(turn_id, self._is_ours_and_idle(turn_id)))
        taken = self._sessions.take(turn["project_id"], turn["session_id"])
        try:
            with self._sessions.held(taken) as taken:
                ticket = self._end_in_session(taken, turn_id)
        finally:
            self._sessions.release(taken)
        return self._wait(ticket)

    def _end_in_session(self, session: SessionState, turn_id: str) -> Ticket:
        known = self._sessions.find_turn(session, turn_id)
        if known is not None and known.status == "waiting" and not known.under_way:
            closing = close_waiting(known, "user_cancel", clock.now())
            session.last_ticket = self._recorder.close_turns([closing])
            return session.last_ticket
        ticket = self._edits.end_turn(turn_id, self._is_ours_and_idle(turn_id))
        if known is not None and not known.under_way:
            session.turns.pop(turn_id)  # it is read again when it is asked for
        return ticket

    def _is_ours_and_idle(self, turn_id: str):  # type: ignore[no-untyped-def]
        own, calls = self._recorder.owner, self._calls

        def may_end(owned_by: str | None) -> bool:
            return not calls.has(turn_id) if owned_by == own else is_abandoned(owned_by)

        return may_end

    # -- waiting -------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait until what has queued up so far is committed."""
        self._wait(self._recorder.writer.submit(lambda tx: None))

    def _wait(self, ticket: Ticket) -> None:
        if not self._recorder.writer.wait(ticket, Patience()):
            raise overloaded(
                "the store cannot be written at the moment: what was asked for is written later",
                retry_after=1,
            )
        if isinstance(ticket.error, ApiError):
            raise ticket.error


def _gone(session_id: str) -> ApiError:
    return not_found(f"there is no session {session_id!r}", code="session_not_found")


def _elsewhere(turn_id: str) -> ApiError:
    message = f"turn {turn_id} cannot be cancelled here: another process works on it"
    return ApiError(409, "invalid_request_error", message, code="turn_elsewhere")
