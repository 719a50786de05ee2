"""An MCP server by stdio, of the protocol of 2025, and quick to start: it needs no library.

It says by itself when its tools change. What happens in it is told by files in the folder of the
environment variable NOTES, where that is set.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

NOTES = os.environ.get("NOTES")
INFO = {"name": "old", "version": "1"}
NUMBER = {"type": "number"}
SUM = {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]}
TOOLS = [
    {"name": "add", "description": "Add two numbers.", "inputSchema": SUM},
    *({"name": name, "inputSchema": {"type": "object"}} for name in ("grow", "much", "wait")),
]


def _note(name: str) -> None:
    if NOTES is not None:
        (Path(NOTES) / name).write_text("")


def _call(name: str, arguments: dict[str, Any]) -> str:
    if name == "add":
        return str(arguments["a"] + arguments["b"])
    if name == "grow":
        TOOLS.append({**TOOLS[-1], "name": f"grown{len(TOOLS)}"})
        _say({"method": "notifications/tools/list_changed"})
    return "one more" if name == "grow" else "much " * 100


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        able = {"tools": {"listChanged": True}}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": able, "serverInfo": INFO}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        text = _call(params["name"], params.get("arguments") or {})
        return {"content": [{"type": "text", "text": text}]}
    return None


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def _hear(asked: dict[str, Any]) -> None:
    method, params = asked["method"], asked.get("params") or {}
    if method == "notifications/cancelled":
        _note("cancelled")
    if method == "tools/call" and params["name"] == "wait":
        _note("waits")  # and never answers
    elif "id" in asked:
        answer = _answer(method, params)
        error = {"code": -32601, "message": "there is no such method"}
        _say({"id": asked["id"], **({"error": error} if answer is None else {"result": answer})})


_note(f"started-{os.getpid()}")
for line in sys.stdin:
    _hear(json.loads(line))
