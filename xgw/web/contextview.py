"""The context of a session as JSON: its parts in the order in which they are sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from xgw.accounting.tokens import TokenCounter
from xgw.agents.standing import Standing
from xgw.web.serialize import Json, Row

BODIES = ("messages", "tools")
"""The fields of a part that hold what is sent: they may be large."""


def of_agent(session: Row, found: Standing) -> Json:
    """What an agent's next call would send, but for what is said to it then."""
    parts = [
        {
            **_part(sized.part.name, sized.tokens, sized.part.elements),
            "turn_id": sized.part.turn_id,
        }
        for sized in found.parts
    ]
    return {
        **_head(session, found.model, found.used, found.room.window),
        "threshold": found.room.threshold,
        "keep_last_turns": found.room.keep,
        "step_id": None,
        "parts": [*parts, *_tools(found.tools, found.tools_tokens)],
    }


def of_call(
    session: Row, step_id: str | None, sent: Any, window: int | None, counter: TokenCounter
) -> Json:
    """What a client sent with the call `step_id`; no parts where that is not known (any more)."""
    model = session["model"]
    request: Mapping[str, Any] = sent if isinstance(sent, dict) else {}
    messages, tools = _list(request.get("messages")), _list(request.get("tools"))
    first = next((n for n, one in enumerate(messages) if not _instructs(one)), len(messages))
    parts = [
        _part(name, _sum(counter.count_message(one, model) for one in part), part)
        for name, part in (("instructions", messages[:first]), ("history", messages[first:]))
        if part
    ]
    used = counter.estimate_request(messages, tools or None, model) if messages else None
    return {
        **_head(session, model, used, window),
        "threshold": None,
        "keep_last_turns": None,
        "step_id": step_id,
        "parts": [
            *({**part, "turn_id": None} for part in parts),
            *_tools(tools, counter.count_tools(tools, model) if tools else 0),
        ],
    }


def without_bodies(context: Json) -> Json:
    """The same without what is sent itself."""
    parts = [
        {name: value for name, value in part.items() if name not in BODIES}
        for part in context["parts"]
    ]
    return {**context, "parts": parts}


def _head(session: Row, model: str | None, used: int | None, window: int | None) -> Json:
    known = used is not None and window is not None
    return {
        "object": "context",
        "session_id": session["id"],
        "agent_name": session["agent_name"],
        "model": model,
        "window": window,
        "used": used,
        "remaining": max(0, window - used) if known else None,  # type: ignore[operator]
        "percent": round(100 * used / window, 1) if known and window else None,  # type: ignore[operator]
        "source": None if used is None else "estimated",
    }


def _part(name: str, tokens: int | None, elements: Iterable[Any]) -> Json:
    messages = list(elements)
    return {"part": name, "tokens": tokens, "count": len(messages), "messages": messages}


def _tools(offers: Iterable[Any], tokens: int | None) -> list[Json]:
    tools = list(offers)
    if not tools:
        return []
    told = {"part": "tools", "tokens": tokens, "count": len(tools), "tools": tools}
    return [{**told, "turn_id": None}]


def _instructs(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in ("system", "developer")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
