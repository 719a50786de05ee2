"""What stands in the JSON columns of the store: whoever reads them relies on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Shape = Callable[[Any], Any]
"""The value itself; ValueError says what it is not."""


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("is no object")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("is no list")
    return value


def _parts(value: Any) -> Any:
    if not isinstance(value, list | dict):
        raise ValueError("is neither a list nor an object")
    return value


def _objects(value: Any) -> list[Any]:
    if not all(isinstance(entry, dict) for entry in _list(value)):
        raise ValueError("is no list of objects")
    found: list[Any] = value
    return found


def _headers(value: Any) -> list[Any]:
    if not all(_is_pair(entry, str) for entry in _list(value)):
        raise ValueError("is no list of names and values")
    found: list[Any] = value
    return found


def _frames(value: Any) -> list[Any]:
    last = -1
    for entry in _list(value):
        if not _is_pair(entry, int) or min(entry) < 0 or entry[0] < last:
            raise ValueError("is no list of offsets and milliseconds")
        last = entry[0]
    found: list[Any] = value
    return found


def _is_pair(value: Any, kind: type) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(entry, kind) and not isinstance(entry, bool) for entry in value)
    )


def _calls(value: Any) -> list[Any]:
    """Calls of tools: texts where anything is."""
    for call in _objects(value):
        for name in ("tool_call_id", "name", "arguments"):
            if not isinstance(call.get(name), str | None | dict):
                raise ValueError(f"has a call whose {name} is no text")
    found: list[Any] = value
    return found


def _checkpoint(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = _object(value)
    pending = found.get("pending_tool_calls")
    for call in () if pending is None else _calls(pending):
        if not isinstance(call.get("state"), str):
            raise ValueError("has a call without a state")
        if call.get("task") is not None:
            _task(call["task"])
    return found


def _task(value: Any) -> None:
    task = _checkpoint(value)
    if not isinstance(task.get("agent_name"), str):
        raise ValueError("has a task without an agent")


def _budget(value: Any) -> dict[str, Any]:
    for limit in _object(value).values():
        if isinstance(limit, bool) or not isinstance(limit, int | float | None):
            raise ValueError("has a limit that is no number")
    found: dict[str, Any] = value
    return found


def shape_of(table: str, column: str) -> Shape | None:
    """What stands in a JSON column of a table; None where it may be anything."""
    # A message's calls are what a client or a model sent, a step's were read by xgw.
    return _list if (table, column) == ("messages", "tool_calls") else SHAPES.get(column)


SHAPES: dict[str, Shape] = {
    "artifacts": _list,
    "budget": _budget,
    "checkpoint": _checkpoint,
    "client": _object,
    "frames": _frames,
    "metadata": _object,
    "overrides": _object,
    "parts": _parts,
    "request_headers": _headers,
    "response_headers": _headers,
    "tool_calls": _calls,
    "usage_raw": _object,
}
"""By column; of any other one anything is taken."""
