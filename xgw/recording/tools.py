"""Tools: a client's begin at the model's answer and end with its result, an agent's as they run.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from typing import Any

from xgw.recording import checkpoints
from xgw.recording.checkpoints import Json
from xgw.recording.facts import Scope, ToolEnd, ToolStart
from xgw.recording.moves import apply, emit, error_payload, step_head
from xgw.store.transaction import Transaction


def request_tools(
    tx: Transaction, scope: Scope, step_id: str, calls: list[dict[str, Any]], at: datetime.datetime
) -> None:
    """`tool.requested`: the model asked for tools."""
    shown = [
        {key: call[key] for key in ("tool_call_id", "name", "arguments", "arguments_json_valid")}
        for call in calls
    ]
    emit(tx, scope, "tool.requested", at, {"calls": shown}, step_id)


def start_tool(
    tx: Transaction,
    scope: Scope,
    tool: ToolStart,
    at: datetime.datetime,
    *,
    parent_step_id: str | None = None,
    late: bool = False,
) -> None:
    """A tool begins: its step and `step.started`."""
    tx.hold(
        "steps",
        {
            **step_head(tx, scope, tool.step_id, tool.step_type, at),
            "parent_step_id": parent_step_id,
            "name": tool.name,
            "tool_call_id": tool.tool_call_id,
            "metadata": {
                "side": tool.side,
                "arguments": tool.arguments,
                **({"late": True} if late else {}),
                **(tool.notes or {}),
                **({"agent_name": tool.partner} if tool.partner else {}),
            },
        },
    )
    turn = tx.row("turns", scope.turn_id)
    if turn is not None:
        turn.add({"tool_calls": 1})
    payload = {
        "step_type": tool.step_type,
        "name": tool.name,
        "provider_name": None,
        "model": None,
        "tool_call_id": tool.tool_call_id,
        "arguments": tool.arguments,
        **({"agent_name": tool.partner} if tool.partner else {}),
    }
    emit(tx, scope, "step.started", at, payload, tool.step_id)


def end_tool(tx: Transaction, scope: Scope, tool: ToolEnd) -> None:
    """A tool's result arrived, or none will: `step.completed`."""
    message = tool.error_message
    if message is None and tool.error_type == "no_result":
        message = "no result came"
    apply(
        tx,
        "step",
        tool.step_id,
        tool.status,
        {
            "output_payload": tool.output_payload,
            "error_type": tool.error_type,
            "error_message": message,
            "latency_ms": tool.latency_ms,
            "ended_at": tool.ended_at,
        },
    )
    payload = {
        "status": tool.status,
        "success": tool.status == "success",
        "output": tool.output,
        "error": error_payload(tool.error_type, message),
        "latency_ms": tool.latency_ms,
        "tool_call_id": tool.tool_call_id,
    }
    emit(tx, scope, "step.completed", tool.ended_at, payload, tool.step_id)


def request_approvals(
    tx: Transaction, scope: Scope, checkpoint: Json, at: datetime.datetime
) -> None:
    """`tool.approval_requested` for each call in a checkpoint that waits for a person."""
    for one in checkpoints.list_undecided(checkpoint):
        payload = {
            "tool_call_id": one["tool_call_id"],
            "name": one["name"],
            "arguments": one["arguments"],
            "reason": checkpoints.reason_of(one),
            **({"agent_name": one["agent_name"]} if one["agent_name"] else {}),
        }
        emit(tx, scope, "tool.approval_requested", at, payload, one["asked_by"])


def send_results(
    tx: Transaction,
    scope: Scope,
    call_ids: list[str],
    size: tuple[int | None, int | None],
    at: datetime.datetime,
) -> None:
    """`tool.results_sent`: results go back to the model; `size`: context tokens and window."""
    tokens, window = size
    payload = {"tool_call_ids": call_ids, "context_tokens": tokens, "context_window": window}
    emit(tx, scope, "tool.results_sent", at, payload)
