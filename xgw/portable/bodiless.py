"""Rows without what was said in them: lengths and hashes in the place of contents."""

from __future__ import annotations

import json
from typing import Any

from xgw.portable.bodies import hash_of
from xgw.portable.rows import Row

TEXTS: dict[str, tuple[str, ...]] = {
    "sessions": ("session_summary", "working_memory", "artifacts"),
    "turns": ("user_input", "final_output"),
    "runs": ("planner_state",),
    "steps": ("partial_output",),
    "messages": ("content", "parts"),
    "request_logs": ("error_body",),
}
"""The columns that are nothing but content."""

DEEP: dict[str, tuple[str, ...]] = {
    "turns": ("metadata",),
    "runs": ("checkpoint", "overrides", "metadata"),
    "steps": ("tool_calls", "metadata"),
    "messages": ("tool_calls", "metadata"),
    "request_logs": ("metadata",),
    "events": ("payload",),
}
"""The columns in which there is content beside other things."""

SAID = frozenset(
    {
        "arguments",
        "content",
        "final_output",
        "input",
        "instructions",
        "output",
        "planner_state",
        "result",
        "summary",
        "text",
        "user_input",
    }
)
"""The fields that hold content there."""

_ALSO_SAID = {"overrides": frozenset({"message"})}


def without_contents(table: str, row: Row) -> Row:
    """The row of a table with `{"length", "hash"}` for what was said."""
    hidden = {name: measured(row[name]) for name in TEXTS.get(table, ()) if row[name] is not None}
    for name in DEEP.get(table, ()):
        hidden[name] = _hidden(row[name], SAID | _ALSO_SAID.get(name, frozenset()))
    return row | hidden


def measured(value: Any) -> dict[str, Any]:
    """How long a content is, in characters, and its hash; of JSON, those of its text."""
    if isinstance(value, dict) and value.keys() == {"length", "hash"}:
        return value
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return {"length": len(text), "hash": hash_of(text)}


def _hidden(value: Any, said: frozenset[str]) -> Any:
    if isinstance(value, list):
        return [_hidden(entry, said) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        name: measured(inner) if name in said and inner not in (None, "") else _hidden(inner, said)
        for name, inner in value.items()
    }
