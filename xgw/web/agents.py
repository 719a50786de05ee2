"""Agents as JSON, and the published answer to a message to one."""

from __future__ import annotations

from typing import Any

import orjson

from xgw import clock
from xgw.agents.definition import MODES, Definition, Tool
from xgw.agents.mcp.offering import Offered
from xgw.errors import ApiError
from xgw.exchange.routing import Router
from xgw.masking import Masker
from xgw.recording.checkpoints import list_undecided, reason_of
from xgw.web.serialize import Json, Row

LIMIT = "limit_"


def agent(definition: Definition, provider: str | None, masker: Masker) -> Json:
    """An agent's whole configuration; `provider` is the first that its model is asked at."""
    table = definition.table
    limits = table.limits.model_dump()
    modes = {
        mode: {
            "tools": [tool.name for tool in definition.known().in_mode(mode).tools],
            "limits": {**limits, "max_iterations": table.max_iterations(mode)},
            "planner": table.plans(mode),
        }
        for mode in MODES
    }
    return {
        "object": "agent",
        "name": definition.name,
        "description": table.description,
        "model": table.model,
        "provider": provider,
        "instructions": masker.text(definition.instructions),
        "parameters": table.parameters,
        "modes": modes,
        "tools": tools(definition),
        "handoffs": list(table.handoffs),
        "problems": [masker.text(problem) for problem in definition.problems()],
        "context": table.context.model_dump(),
    }


def first_provider(router: Router, definition: Definition) -> str | None:
    """Where an agent's model is asked first; None if no provider has it."""
    try:
        way = router.find(definition.table.model, "chat.completions")
    except ApiError:
        return None
    return way.targets[0].provider.name


def tools(definition: Definition) -> list[Json]:
    """The tools that an agent offers to its model."""
    return [_tool(tool) for tool in definition.known().tools]


def _tool(tool: Tool) -> Json:
    return {"name": tool.name, **tool.told(), "approval": tool.approval}


def servers_of(definition: Definition | None) -> dict[str, str]:
    """The MCP servers that an agent's tools are of, by the name of the tool."""
    if definition is None:
        return {}
    offered = ((t.name, t.function) for t in definition.known().tools)
    return {name: found.server_name for name, found in offered if isinstance(found, Offered)}


def chat_response(turn: Row, session: Row | None, position: int | None) -> Json:
    """The answer to a message: `turn` with its runs and steps, in its published names.

    A turn that is not over also tells `runStatus`, `queuePosition` and `pendingApprovals`.
    """
    run = turn["runs"][-1]
    answer = {
        "sessionId": turn["session_id"],
        "turnId": turn["id"],
        "runId": run["id"],
        "message": {"role": "assistant", "content": turn["final_output"]},
        "status": turn["status"],
        "error": _error(turn["error_type"], turn["error_message"]),
        "timestamp": _time(turn["queued_at"] or turn["started_at"]),
        "completedAt": _time(turn["ended_at"]),
        "iterations": turn["llm_calls"],
        "durationMs": turn["latency_ms"],
        "tokenUsage": {
            "input": turn["input_tokens"],
            "output": turn["output_tokens"],
            "cache": turn["cached_tokens"],
            "reasoning": turn["reasoning_tokens"],
            "total": turn["total_tokens"],
            "sessionTotal": session["total_tokens"] if session else None,
        },
        "costUsd": turn["cost_usd"],
        "toolCalls": [_call(s) for s in run["steps"] if s["tool_call_id"] is not None],
        "attempts": turn["attempts"],
        "finishReason": turn["finish_reason"],
        "limitReached": _limit(turn),
    }
    if turn["ended_at"] is not None:
        return answer
    return {
        **answer,
        "runStatus": run["status"],
        "queuePosition": position,
        "pendingApprovals": pending_approvals(run),
    }


def pending_approvals(run: Row) -> list[Json]:
    """The calls of a run that wait for a person, and why."""
    if run["status"] != "waiting_tool":
        return []
    return [
        {
            "id": call["tool_call_id"],
            "name": call["name"],
            "arguments": _arguments(call["arguments"]),
            "reason": reason_of(call),
            "stepId": call["asked_by"],
            "agentName": call["agent_name"],
        }
        for call in list_undecided(run["checkpoint"])
    ]


def _call(step: Row) -> Json:
    return {
        "id": step["tool_call_id"],
        "name": step["name"],
        "arguments": _arguments((step["metadata"] or {}).get("arguments")),
        "durationMs": step["latency_ms"],
        "success": None if step["ended_at"] is None else step["status"] == "success",
        "error": _error(step["error_type"], step["error_message"]),
    }


def _arguments(text: str | None) -> Any:
    """The arguments as JSON, or as the model spelled them where that is none."""
    try:
        return orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return text


def _limit(turn: Row) -> str | None:
    kind: str = turn["error_type"] or ""
    return kind.removeprefix(LIMIT) if turn["ended_by"] == "limit" else None


def _error(kind: str | None, message: str | None) -> Json | None:
    return None if kind is None else {"type": kind, "message": message}


def _time(moment: Any) -> str | None:
    return None if moment is None else clock.to_rfc3339(moment)
