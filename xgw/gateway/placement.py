"""Where a request belongs: which turn it begins or continues, and what that ends.

The rules are those of "How requests become turns" (data-model.md): continuing happens only by an
explicit identifier, a turn key or the ids of tool calls.
"""

from __future__ import annotations

from xgw import ids
from xgw.gateway.arrival import Arrival, Place
from xgw.gateway.choices import take_unchosen
from xgw.gateway.closing import close_waiting, no_result
from xgw.gateway.results import CountMessage, Results, known_results
from xgw.gateway.sessions import Sessions
from xgw.gateway.state import SessionState, TurnState
from xgw.recording.facts import Scope, ToolEnd
from xgw.recording.requests import Closing
from xgw.store.payloads import Shelf


class Placement:
    """Decides; callers hold the session's lock."""

    def __init__(self, sessions: Sessions, shelf: Shelf, count: CountMessage) -> None:
        self._sessions = sessions
        self._results = Results(shelf, count)

    def place(self, session: SessionState | None, arrival: Arrival) -> Place:
        """The turn for a request; without a session always a new one."""
        if session is None:
            return Place(_new_turn(None, arrival), is_new=True)
        call_ids = arrival.conversation.tool_call_ids() if arrival.conversation else []
        key = arrival.identity.turn_key
        if key is not None:
            turn = self._sessions.find_turn(session, key)
            if turn is not None:
                return self._continue(turn, "turn_key", arrival)
            return self._begin_by_key(session, arrival, call_ids)
        issuer = self._sessions.find_issuer(session, call_ids) if call_ids else None
        known = known_results(issuer, arrival) if issuer is not None else None
        if issuer is not None and not known:
            return self._continue(issuer, "tool_result", arrival)
        place = Place(_new_turn(session, arrival), is_new=True, taken=known or set())
        spoken = arrival.conversation is not None and arrival.conversation.has_user_tail()
        place.closings = self._closings(session, arrival, superseded=arrival.is_chat and spoken)
        return place

    def _closings(
        self, session: SessionState, arrival: Arrival, *, superseded: bool = False
    ) -> list[Closing]:
        """What a turn that begins means for those that await tools."""
        found = (self._closing(t, arrival, superseded=superseded) for t in session.awaiting())
        return [closing for closing in found if closing is not None]

    def _closing(self, turn: TurnState, arrival: Arrival, *, superseded: bool) -> Closing | None:
        """Results of it that stand in the history came; it ends well where that is all it awaits.

        It does so, too, if the client chose an answer without calls.
        """
        dropped, finish = self._drop_unchosen(turn, arrival)
        tools = (*self._results.in_history(turn, arrival), *dropped)
        is_over = superseded or finish is not None or not turn.open_tools
        if turn.under_way or not is_over:  # its own requests end it, or it goes on waiting
            return Closing(turn.scope, tools, None) if tools else None
        cause = "superseded" if superseded and finish is None else "finished"
        at = turn.not_before(arrival.began_at)
        closing = close_waiting(turn, cause, at, finish or "tool_calls")
        return Closing(closing.scope, (*tools, *closing.tools), closing.end)

    def _begin_by_key(self, session: SessionState, arrival: Arrival, call_ids: list[str]) -> Place:
        """An unknown key begins a turn; the one whose calls are answered ends well."""
        place = Place(_new_turn(session, arrival), is_new=True)
        issuer = self._sessions.find_issuer(session, call_ids) if call_ids else None
        if issuer is not None and issuer.status != "ended":
            place.closings = self._end_answered(issuer, arrival)
        place.closings += self._closings(session, arrival)
        return place

    def _end_answered(self, issuer: TurnState, arrival: Arrival) -> list[Closing]:
        results = self._results.take(issuer, arrival, Place(issuer, is_new=False))
        answered = tuple(arrived.end for arrived in results if not arrived.end.late)
        if issuer.under_way:  # its own requests end it
            return [Closing(issuer.scope, answered, None)] if answered else []
        closing = close_waiting(issuer, "finished", issuer.not_before(arrival.began_at))
        return [Closing(closing.scope, (*answered, *closing.tools), closing.end)]

    def _continue(self, turn: TurnState, cause: str, arrival: Arrival) -> Place:
        place = Place(turn, is_new=False)
        if turn.status == "ended":
            place.reopened = cause
        elif turn.status == "waiting":
            place.resumed = cause
        if turn.status != "running":
            turn.status = "running"
            turn.active_since = arrival.moment
        place.dropped_tools, _ = self._drop_unchosen(turn, arrival)
        place.results = self._results.take(turn, arrival, place)
        return place

    def _drop_unchosen(
        self, turn: TurnState, arrival: Arrival
    ) -> tuple[tuple[ToolEnd, ...], str | None]:
        """The calls of choices that the client did not go on with get no result.

        Returns their ends, and the finish reason of the answer if nothing is awaited any more.
        """
        if arrival.conversation is None or not turn.open_tools:
            return (), None
        tools, finish = take_unchosen(self._sessions.recall, turn, arrival.conversation)
        at = turn.not_before(arrival.began_at)
        ends = tuple([no_result(tool, at, arrival.moment) for tool in tools])
        return ends, None if turn.open_tools else finish


def _new_turn(session: SessionState | None, arrival: Arrival) -> TurnState:
    turn_id = ids.mint("turn")
    scope = Scope(
        project_id=arrival.project_id,
        session_id=session.session_id if session else None,
        turn_id=turn_id,
        run_id=ids.mint("run"),
        trace_id=arrival.trace_id or ids.trace_id_of(turn_id),
        task_id=session.task_id if session else arrival.identity.task_id,
    )
    turn = TurnState(scope, arrival.identity.turn_key, "running", active_since=arrival.moment)
    if session is not None:
        session.turns[turn_id] = turn
        _forget_ended(session)
    return turn


def _forget_ended(session: SessionState) -> None:
    """Ended turns can be read again; only the last few stay in memory."""
    if session.last_ticket is not None and not session.last_ticket.done:
        return
    ended = [t for t in session.turns.values() if t.status == "ended" and not t.under_way]
    for turn in ended[:-8]:
        del session.turns[turn.scope.turn_id]
