"""An MCP server by stdio, of the protocol of 2025: it says by itself when its tools change."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOLS = [{"name": "grow", "inputSchema": {"type": "object"}}]
INFO = {"name": "old", "version": "1"}


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        able = {"tools": {"listChanged": True}}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": able, "serverInfo": INFO}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        TOOLS.append({**TOOLS[0], "name": f"grown{len(TOOLS)}"})
        _say({"method": "notifications/tools/list_changed"})
        return {"content": [{"type": "text", "text": "one more"}]}
    return None


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = _answer(asked["method"], asked.get("params") or {})
    error = {"code": -32601, "message": "there is no such method"}
    _say({"id": asked["id"], **({"result": answer} if answer is not None else {"error": error})})
