"""Older messages as messages: of the gateway's conversations, and of task sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from xgw.upkeep.legacy.source import GATEWAY, TASKS, OldRow
from xgw.upkeep.legacy.values import Origin, loose, parsed, text
from xgw.upkeep.minting import mint
from xgw.upkeep.times import milliseconds

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "agent": "assistant",
    "tool": "tool",
    "function": "tool",
}
KINDS = frozenset({"message", "tool_call", "tool_result", "status", "error"})
UNKNOWN_KIND = "status"

Message = list[Any]
"""In the order of `adopt.COLUMNS`; session and index are given to it later."""

SESSION, INDEX, CONTENT, TOOL_CALLS, METADATA = 1, 2, 5, 6, 8


def from_gateway(origin: Origin, row: OldRow, at: str, known: bool) -> Message:
    """A message of a conversation, said `at`, which is `known` or the time of the row before.

    Refused where its content is no text.
    """
    content, notes = text(row[4]), {} if known else _unknown(row[7])
    role = ROLES.get(row[3])
    if role != row[3]:
        notes["role"] = loose(row[3])
    calls, unparsed = parsed(row[5])
    own = None
    if calls is not None and not isinstance(calls, list):
        calls, own = None, {"tool_calls": calls}
    return [
        _id(row, at, known),
        None,
        None,
        "tool_result" if role == "tool" else "message",
        role,
        content,
        None if calls is None else loose(row[5]),
        loose(row[6]),
        origin.metadata(row, len(GATEWAY.messages.known), notes, own, unparsed),
        at,
    ]


def from_tasks(origin: Origin, row: OldRow, at: str, known: bool) -> Message:
    """A message of a task session, likewise; a kind that is not known stays in metadata."""
    content, notes = text(row[6]), {} if known else _unknown(row[8])
    kind, role = row[5], ROLES.get(row[4])
    if row[4] not in ("user", "agent"):
        notes["author_type"] = loose(row[4])
    if kind not in KINDS:
        kind, notes["kind"] = UNKNOWN_KIND, loose(kind)
    if row[3] is not None:
        notes["task_id"] = loose(row[3])
    own, unparsed = parsed(row[7])
    told = own if isinstance(own, dict) else {}
    calls = _called(told) if kind == "tool_call" else None
    call_id = told.get("tool_call_id")
    return [
        _id(row, at, known),
        None,
        None,
        kind,
        "tool" if kind == "tool_result" else role,
        content,
        None if calls is None else orjson.dumps(calls).decode(),
        call_id if isinstance(call_id, str) else None,
        origin.metadata(row, len(TASKS.messages.known), notes, own, unparsed),
        at,
    ]


MAKERS: dict[str, Callable[[Origin, OldRow, str, bool], Message]] = {
    GATEWAY.name: from_gateway,
    TASKS.name: from_tasks,
}


def _unknown(created: Any) -> dict[str, Any]:
    """What a message's metadata says of a time that is not known or cannot be made out."""
    return {"created_at": loose(created)}


def _id(row: OldRow, at: str, known: bool) -> str:
    """Of the whole row; of its place in the file, which may change, only if it has no id."""
    identity = row if row[1] is None else row[1:]
    return mint("msg", milliseconds(at) if known else 0, identity)


def _called(told: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The call that the metadata of a `tool_call` tells of, as messages have it."""
    args = told.get("args", told.get("arguments"))
    function = args if isinstance(args, dict) and "name" in args else told.get("function")
    if isinstance(function, dict) and "name" in function:
        name, arguments = function["name"], function.get("arguments")
    else:
        name, arguments = told.get("name", told.get("tool_name", told.get("tool"))), args
    call_id = told.get("tool_call_id")
    if name is None and arguments is None and call_id is None:
        return None
    if arguments is not None and not isinstance(arguments, str):
        arguments = orjson.dumps(arguments).decode()
    named = {"name": name if isinstance(name, str) else None, "arguments": arguments}
    return [{"id": call_id, "type": "function", "function": named}]
