"""What a model gets to see of a session: its instructions, then the history, always valid.

Every call of an assistant message is followed by one result; where none was recorded (the process
ended in between) one that says so stands for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from xgw.agents.definition import Definition

Element = dict[str, Any]
Row = Mapping[str, Any]

LOST = "Error: no result: the call was interrupted"


def build_history(definition: Definition, rows: Iterable[Row]) -> list[Element]:
    """The elements before a turn's own message, of the rows of the session's messages in order."""
    system = {"role": "system", "content": definition.instructions}
    return [*([system] if definition.instructions else []), *elements_of(rows)]


def elements_of(rows: Iterable[Row], still_open: Collection[str] = ()) -> list[Element]:
    """Messages as they are sent; calls that are `still_open` at the end may be without a result."""
    elements: list[Element] = []
    open_calls: list[str] = []
    for row in rows:
        if row["role"] == "tool":
            if row["tool_call_id"] in open_calls:
                open_calls.remove(row["tool_call_id"])
                elements.append(result(row["tool_call_id"], row["content"] or ""))
            continue
        elements += (result(call_id, LOST) for call_id in open_calls)
        element = _element(row)
        open_calls = [call["id"] for call in element.get("tool_calls", ())]
        if element.get("content") or open_calls:
            elements.append(element)
    elements += (result(call_id, LOST) for call_id in open_calls if call_id not in still_open)
    return elements


def last_results(elements: Sequence[Element]) -> list[str]:
    """The ids of the calls whose results stand last: they go to the model with the next call."""
    tail = itertools.takewhile(lambda element: element["role"] == "tool", reversed(elements))
    return [element["tool_call_id"] for element in tail][::-1]


def user(text: str) -> Element:
    """A person's message."""
    return {"role": "user", "content": text}


def result(call_id: str, text: str) -> Element:
    """A tool's result."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def assistant(message: Mapping[str, Any]) -> Element:
    """A model's message as it is sent back: everything that it said, nothing that is empty."""
    kept = {key: value for key, value in message.items() if value not in (None, "", [])}
    return {"role": "assistant", "content": message.get("content"), **kept}


def _element(row: Row) -> Element:
    """A message as it was said; of one that broke off only the text."""
    if row["role"] != "assistant":
        return {"role": row["role"], "content": row["content"]}
    element: Element = {"role": "assistant", "content": row["content"]}
    if (row["metadata"] or {}).get("partial"):
        return element
    parts = row["parts"] if isinstance(row["parts"], dict) else {}
    element |= {key: part for key, part in parts.items() if not _is_elsewhere(key, part)}
    if row["tool_calls"]:
        element["tool_calls"] = row["tool_calls"]
    return element


def _is_elsewhere(key: str, part: Any) -> bool:
    """Whether a part is a reference to a long text, which is not sent again."""
    return key == "content" or (isinstance(part, dict) and "payload" in part)
