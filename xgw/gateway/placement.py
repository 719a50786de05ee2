"""Where a request belongs: which turn it begins or continues, and what that ends.

The rules are those of "How requests become turns" (data-model.md): continuing happens only by an
explicit identifier, a turn key or the ids of tool calls.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

from xgw import clock, ids
from xgw.gateway.choices import take_unchosen
from xgw.gateway.conversation import Conversation, History
from xgw.gateway.identity import Identity
from xgw.gateway.state import OpenTool, Sessions, SessionState, TurnState
from xgw.recording.elements import message_of
from xgw.recording.facts import Scope, ToolEnd, TurnEnd
from xgw.recording.requests import Arrived, Closing
from xgw.store.payloads import Shelf, Stored
from xgw.store.rows import digest

CountMessage = Callable[[object], int | None]


@dataclass(slots=True)
class Place:
    """The turn of a request and what else changes because of it."""

    turn: TurnState
    is_new: bool
    reopened: str | None = None
    resumed: str | None = None
    closings: list[Closing] = field(default_factory=list)
    results: list[Arrived] = field(default_factory=list)
    dropped_tools: tuple[ToolEnd, ...] = ()
    taken: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Arrival:
    """A request that is to be placed.

    It began at `began_at`, by the clock that never goes back at `moment`.
    """

    project_id: str
    identity: Identity
    conversation: Conversation | None
    is_chat: bool
    began_at: datetime.datetime
    moment: float
    trace_id: str | None
    bodies: list[Stored]
    before: History | None = None
    """What the session's previous request was."""


class Placement:
    """Decides; callers hold the session's lock."""

    def __init__(self, sessions: Sessions, shelf: Shelf, count: CountMessage) -> None:
        self._sessions = sessions
        self._shelf = shelf
        self._count = count

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
        known = _known_results(issuer, arrival) if issuer is not None else None
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
        tools = (*self._answered(turn, arrival), *dropped)
        is_over = superseded or finish is not None or not turn.open_tools
        if turn.under_way or not is_over:  # its own requests end it, or it goes on waiting
            return Closing(turn.scope, tools, None) if tools else None
        cause = "superseded" if superseded and finish is None else "finished"
        at = turn.not_before(arrival.began_at)
        closing = close_waiting(turn, cause, at, finish or "tool_calls")
        return Closing(closing.scope, (*tools, *closing.tools), closing.end)

    def _answered(self, turn: TurnState, arrival: Arrival) -> list[ToolEnd]:
        """Results that stand in the history: the client had the answer to them from elsewhere."""
        conversation = arrival.conversation
        first = turn.goes_on_at(conversation.hashes) if conversation is not None else None
        if conversation is None or first is None:
            return []
        found = []
        for position in range(first, len(conversation.elements)):
            call_id = conversation.answers(position)
            if call_id is not None and call_id in turn.open_tools:
                arrived = self._arrived(turn, call_id, conversation.elements[position], arrival)
                found += [arrived.end] if arrived is not None else []
        return found

    def _begin_by_key(self, session: SessionState, arrival: Arrival, call_ids: list[str]) -> Place:
        """An unknown key begins a turn; the one whose calls are answered ends well."""
        place = Place(_new_turn(session, arrival), is_new=True)
        issuer = self._sessions.find_issuer(session, call_ids) if call_ids else None
        if issuer is not None and issuer.status != "ended":
            place.closings = self._end_answered(issuer, arrival)
        place.closings += self._closings(session, arrival)
        return place

    def _end_answered(self, issuer: TurnState, arrival: Arrival) -> list[Closing]:
        results = self._results(issuer, arrival, Place(issuer, is_new=False))
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
        place.results = self._results(turn, arrival, place)
        return place

    def _drop_unchosen(
        self, turn: TurnState, arrival: Arrival
    ) -> tuple[tuple[ToolEnd, ...], str | None]:
        """The calls of choices that the client did not go on with get no result.

        Returns their ends, and the finish reason of the answer if nothing is awaited any more.
        """
        if arrival.conversation is None or not turn.open_tools:
            return (), None
        tools, finish = take_unchosen(self._sessions, turn, arrival.conversation)
        at = turn.not_before(arrival.began_at)
        ends = tuple([_no_result(tool, at, arrival.moment) for tool in tools])
        return ends, None if turn.open_tools else finish

    def _results(self, turn: TurnState, arrival: Arrival, place: Place) -> list[Arrived]:
        """The tool results of a request that answer calls of this turn, in order."""
        conversation = arrival.conversation
        if conversation is None:
            return []
        found = []
        for position in _places_of_results(turn, conversation, arrival.before):
            element, call_id = conversation.elements[position], conversation.answers(position)
            if call_id is None or (position < conversation.tail and call_id not in turn.open_tools):
                continue
            mark = (position, conversation.hashes[position])
            if _is_known_result(turn, element, call_id, mark):
                place.taken.add(position)
                continue
            arrived = self._arrived(turn, call_id, element, arrival)
            if arrived is not None:
                found.append(arrived)
                place.taken.add(position)
        return found

    def _arrived(
        self, turn: TurnState, call_id: str, element: dict[str, object], arrival: Arrival
    ) -> Arrived | None:
        """A result for an open tool, or a late one for a tool that has ended; None for neither."""
        tool = turn.take_open_tool(call_id)
        late = tool is None
        tool = tool or turn.ended_tools.get(call_id)
        if tool is None:
            return None
        if late:
            tool = OpenTool(ids.mint("step"), call_id, tool.name, tool.arguments, arrival.moment)
        turn.ended_tools[call_id] = tool
        tokens = self._count(element)
        message = message_of(element, self._shelf, arrival.bodies, tokens=tokens)
        stored = self._shelf.text(message.content or "")
        arrival.bodies.append(stored)
        tool.output = stored.hash
        end = ToolEnd(
            step_id=tool.step_id,
            tool_call_id=call_id,
            status="success",
            output=message.content,
            output_payload=stored.hash,
            latency_ms=0 if late else _waited_ms(tool, arrival.began_at, arrival.moment),
            ended_at=arrival.began_at,
            name=tool.name,
            arguments=tool.arguments,
            late=late,
        )
        return Arrived(end, message)


def _known_results(turn: TurnState, arrival: Arrival) -> set[int]:
    """Where the results stand that a user speaks after, if all of them came before: a new input.

    It is one where the answer to them failed, or was stopped, and so is not in the history. What
    the turn was asked with before is no new input. Nothing for a request that goes on with it.
    """
    conversation = arrival.conversation
    if conversation is None or not conversation.has_user_tail():
        return set()
    elements, hashes = conversation.elements, conversation.hashes
    asked = {digest for _, digest in turn.seen}
    results: set[int] = set()
    has_new_input = False
    for position in range(conversation.tail, len(elements)):
        element, call_id = elements[position], conversation.answers(position)
        if call_id is not None:
            mark = (position, hashes[position])
            if mark not in turn.seen and not _is_known_result(turn, element, call_id, mark):
                return set()
            results.add(position)
            has_new_input = False
        elif element.get("role") == "user" and hashes[position] not in asked:
            has_new_input = True
    return results if has_new_input else set()


def _places_of_results(
    turn: TurnState, conversation: Conversation, before: History | None
) -> range:
    """Where to look for results: in the new part, for calls that it has none for also before that.

    There are clients that put the calls of one answer one after the other, each with its result.
    """
    tail, end = conversation.tail, len(conversation.elements)
    if before is None or turn.open_tools.keys() <= set(conversation.tool_call_ids()):
        return range(tail, end)
    if conversation.compare(before) != "appended":
        return range(tail, end)
    return range(min(before.count, tail), end)


def _is_known_result(
    turn: TurnState, element: dict[str, object], call_id: str, mark: tuple[int, bytes]
) -> bool:
    """Whether a result came before; `mark` is its position and hash.

    It may have stood in another place then: clients shorten what comes before it and ask again.
    """
    if call_id in turn.open_tools:
        return False
    ended, content = turn.ended_tools.get(call_id), element.get("content")
    if mark in turn.seen or ended is None or not isinstance(content, str):
        return mark in turn.seen
    return ended.output == digest(content.encode("utf-8", "replace")).hex()


def close_waiting(
    turn: TurnState, ended_by: str, at: datetime.datetime, reason: str = "tool_calls"
) -> Closing:
    """End a turn that awaits tools: its open tool steps get no result.

    `reason` is its finish reason, if it ends well.
    """
    tools = drop_open_tools(turn, at)
    turn.status = "ended"
    finish = reason if ended_by == "finished" else None
    end = TurnEnd(ended_by, at, turn.busy_ms, finish_reason=finish, keep_final=True)
    return Closing(turn.scope, tools, end)


def drop_open_tools(turn: TurnState, at: datetime.datetime) -> tuple[ToolEnd, ...]:
    """Nobody awaits a turn's tools any more; a result that comes all the same is a late one."""
    now, moment = clock.together()
    # They end with the turn: what went by since does not count for either.
    moment -= (now - at).total_seconds()
    tools = list(chain.from_iterable(turn.open_tools.values()))
    turn.ended_tools.update({tool.tool_call_id: tool for tool in tools})
    turn.open_tools.clear()
    return tuple(_no_result(tool, at, moment) for tool in tools)


def _no_result(tool: OpenTool, at: datetime.datetime, moment: float) -> ToolEnd:
    """The end of a tool step whose result never came; `moment` is `at` by the monotonic clock."""
    return ToolEnd(
        tool.step_id,
        tool.tool_call_id,
        "cancelled",
        None,
        None,
        _waited_ms(tool, at, moment),
        at,
        error_type="no_result",
    )


def _waited_ms(tool: OpenTool, at: datetime.datetime, moment: float) -> int | None:
    """How long the client took; by the wall clock where a restart lies in between."""
    if tool.began is not None:
        return max(0, round((moment - tool.began) * 1000))
    if tool.began_at is None:
        return None
    return max(0, round((at - clock.from_db(tool.began_at)).total_seconds() * 1000))


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
