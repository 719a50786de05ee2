"""Results of client-side tools: which of a request's answer the calls of a turn."""

from __future__ import annotations

from collections.abc import Callable

from xgw import ids
from xgw.gateway.arrival import Arrival, Place
from xgw.gateway.closing import waited_ms
from xgw.gateway.conversation import Conversation, History
from xgw.gateway.state import OpenTool, TurnState
from xgw.recording.elements import message_of
from xgw.recording.facts import ToolEnd
from xgw.recording.requests import Arrived
from xgw.store.payloads import Shelf
from xgw.store.rows import digest

CountMessage = Callable[[object], int | None]


class Results:
    """Finds results and hands them to the tools that await them."""

    def __init__(self, shelf: Shelf, count: CountMessage) -> None:
        self._shelf = shelf
        self._count = count

    def take(self, turn: TurnState, arrival: Arrival, place: Place) -> list[Arrived]:
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
            latency_ms=0 if late else waited_ms(tool, arrival.began_at, arrival.moment),
            ended_at=arrival.began_at,
            name=tool.name,
            arguments=tool.arguments,
            late=late,
        )
        return Arrived(end, message)

    def in_history(self, turn: TurnState, arrival: Arrival) -> list[ToolEnd]:
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


def known_results(turn: TurnState, arrival: Arrival) -> set[int]:
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
