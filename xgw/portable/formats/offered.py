"""The tools that a conversation's last model call had, as chat completions describe them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from xgw.portable.formats.shelf import Row, Shelf

Json = dict[str, Any]

_FUNCTIONS = ("function", "custom", None)
"""The types of tools that are functions: Anthropic's have none, or are custom."""


def tools_offered(shelf: Shelf, turns: Sequence[str], lost: Counter[str]) -> list[Json]:
    """The tools of the last model call in these turns that had any; others are counted as lost."""
    for turn in reversed(turns):
        steps = [s for run in shelf.rows("runs", turn) for s in shelf.rows("steps", run["id"])]
        for step in reversed(steps):
            if step["step_type"] == "llm_call" and (tools := _tools(shelf, step)):
                return [told for tool in tools if (told := _tool(tool, lost)) is not None]
    return []


def _tools(shelf: Shelf, step: Row) -> list[Any]:
    try:
        body = json.loads(shelf.body(step["input_payload"]) or b"null")
    except (ValueError, RecursionError):
        return []
    tools = body.get("tools") if isinstance(body, dict) else None
    return tools if isinstance(tools, list) else []


def _tool(tool: Any, lost: Counter[str]) -> Json | None:
    """A tool of any of the three dialects; None where chat completions have none like it."""
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    if isinstance(function, dict) and function.get("name") and tool.get("type") in _FUNCTIONS:
        parameters = function.get("parameters", function.get("input_schema"))
        named = {"name": function["name"], "description": function.get("description")}
        named |= {"parameters": parameters, "strict": function.get("strict")}
        known = {name: value for name, value in named.items() if value is not None}
        return {"type": "function", "function": known}
    lost["tool that is no function"] += 1
    return None
