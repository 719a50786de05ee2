"""What an agent takes from an answer: the message to send back, and calls to be told apart."""

from __future__ import annotations

import secrets
from typing import Any

from xgw.exchange.exchange import GaveUp, Opened
from xgw.frozen import changed
from xgw.values import Answer, ToolCall


def read_answer(opened: Opened) -> Answer:
    """The whole answer; its text goes out as it comes. Raises GaveUp if it breaks off."""
    relay, batch = opened.relay, opened.batch
    while relay is not None and (batch is None or not batch.ended):
        batch = relay.read(None)
    if batch is not None and batch.failure is not None:
        raise GaveUp(batch.failure)
    answer = opened.answer if relay is None else relay.chat.answer()
    assert answer is not None
    return answer


def received_of(opened: Opened, answer: Answer) -> dict[str, Any]:
    """The message as the upstream sent it, its own names for reasoning included."""
    if opened.relay is None:
        return answer.message()
    choices = opened.relay.chat.completion()["choices"]
    message: dict[str, Any] = next((c["message"] for c in choices if c["index"] == 0), {})
    return message


def with_ids(
    answer: Answer, received: dict[str, Any]
) -> tuple[Answer, dict[str, Any], tuple[ToolCall, ...]]:
    """The answer and its message with an id of its own for every call, and these calls."""
    asked = received.get("tool_calls") or []
    calls: list[ToolCall] = []
    seen: set[str | None] = {None, ""}
    for call in answer.tool_calls[: len(asked)]:
        if call.tool_call_id in seen:
            call = changed(call, tool_call_id=f"call_{secrets.token_hex(12)}")
        seen.add(call.tool_call_id)
        calls.append(call)
    if tuple(calls) == answer.tool_calls:
        return answer, received, answer.tool_calls
    named = [{**one, "id": call.tool_call_id} for one, call in zip(asked, calls, strict=True)]
    choices = [
        {**c, "message": {**c["message"], "tool_calls": named}} if c["index"] == 0 else c
        for c in answer.choices
    ]
    answer = changed(answer, choices=choices, tool_calls=tuple(calls))
    return answer, {**received, "tool_calls": named}, tuple(calls)
