"""Answers with several choices (`n` above 1): which of them a client goes on with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from xgw.gateway.conversation import Conversation
from xgw.gateway.recall import Recall
from xgw.gateway.state import OpenTool, TurnState
from xgw.providers.dialects.chat_usage import normalise_finish_reason
from xgw.recording.elements import text_of

Call = tuple[object, object, object]
"""A tool call: its id, name and arguments."""


def take_unchosen(
    recall: Recall, turn: TurnState, conversation: Conversation
) -> tuple[list[OpenTool], str | None]:
    """The calls of a turn in choices that its client did not go on with: none awaits a result now.

    Where there are some, the finish reason of the answer, too.
    """
    open_tools = chain.from_iterable(turn.open_tools.values())
    answers = {tool.answer for tool in open_tools if tool.answer and tool.choice is not None}
    taken: list[OpenTool] = []
    finish: str | None = None
    for answer in sorted(answers):
        choices = sorted(recall.read_choices(answer), key=lambda choice: int(choice["index"]))
        chosen = find_chosen(choices, _said_since(turn, conversation))
        if chosen:
            taken += turn.take_unchosen(answer, chosen)
            finish = normalise_finish_reason(choices[0].get("finish_reason")) or "stop"
    return taken, finish if taken else None


def _said_since(turn: TurnState, conversation: Conversation) -> list[dict[str, Any]]:
    """What the client took over of the answers to a turn; the last one if it is not seen where."""
    first = turn.goes_on_at(conversation.hashes)
    elements = conversation.elements
    places = range(first, len(elements)) if first is not None else range(conversation.tail)[-1:]
    return [elements[at] for at in places if elements[at].get("role") == "assistant"]


def find_chosen(
    choices: Sequence[Mapping[str, Any]], said: Iterable[Mapping[str, Any]]
) -> set[int]:
    """The indexes of the choices that these assistant elements repeat; none if that is not seen.

    Clients send the calls of a choice in one element, or one after the other.
    """
    found = (_find_choice(choices, element) for element in said)
    return {index for index in found if index is not None}


def _find_choice(choices: Sequence[Mapping[str, Any]], element: Mapping[str, Any]) -> int | None:
    """The choice that is most like an element; of several the first: they may be the same."""
    likeness = {choice["index"]: _likeness(choice["message"], element) for choice in choices}
    most = max(likeness.values(), default=(0, 0))
    alike = [index for index, found in likeness.items() if found == most]
    return min(alike) if any(most) else None


def _likeness(message: Mapping[str, Any], element: Mapping[str, Any]) -> tuple[int, int]:
    """How many calls have the same id, and how many of them are the very same.

    Without calls it is the text that is the same, or is not.
    """
    ours, theirs = _calls(message), _calls(element)
    if ours and theirs:
        same_ids = {call[0] for call in ours} & {call[0] for call in theirs}
        return len(same_ids), sum(call in theirs for call in ours) if same_ids else 0
    said = text_of(element.get("content"))
    is_same = not ours and not theirs and bool(said) and said == text_of(message.get("content"))
    return int(is_same), 0


def _calls(message: Mapping[str, Any]) -> list[Call]:
    sent = message.get("tool_calls")
    return (
        [_call(call) for call in sent if isinstance(call, dict)] if isinstance(sent, list) else []
    )


def _call(call: Mapping[str, Any]) -> Call:
    function, custom = call.get("function"), call.get("custom")
    body = function if isinstance(function, dict) else custom if isinstance(custom, dict) else {}
    return call.get("id"), body.get("name"), body.get("arguments", body.get("input"))
