"""Events' payloads in the store: the values alone where the fields are those of a known layout.

A payload is kept as the object itself or as `[number, values…]`: the layout's number and the values
in the order of its fields, nulls at the end left out. `true` stands for the turn or session that
the event's own columns name. How that is written is `told`'s. Layouts in use never change; new ones
are added.
"""

from __future__ import annotations

from typing import Any

_TURN = (
    "turn_id",
    "session_id",
    "task_id",
    "turn_index",
    "user_input",
    "started_at",
    "completed_at",
)

LAYOUTS: dict[int, tuple[str, ...]] = {
    1: _TURN,
    2: (*_TURN, "status", "cause"),
    3: (
        *_TURN,
        "status",
        "ended_by",
        "final_output",
        "final_provider_name",
        "final_model",
        "finish_reason",
        "latency_ms",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "total_tokens",
        "cost_usd",
        "usage_source",
        "llm_calls",
        "tool_calls",
        "attempts",
        "error",
        "session_total_tokens",
    ),
    4: ("run_index", "kind", "from", "status", "reason", "checkpoint_at"),
    5: (
        "step_type",
        "name",
        "provider_name",
        "model",
        "attempt",
        "attempt_reason",
        "waited_ms",
        "input_tokens",
        "usage_source",
        "context_tokens",
        "context_window",
    ),
    6: (
        "status",
        "error",
        "http_status",
        "finish_reason",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "uncached_tokens",
        "cache_write_tokens",
        "reasoning_tokens",
        "usage_source",
        "cost_usd",
        "ttft_ms",
        "latency_ms",
    ),
    7: ("message_id", "kind", "role", "token_count", "tool_call_id", "text"),
    8: (
        "session_key",
        "kind",
        "title",
        "agent",
        "model",
        "mode",
        "tools",
        "context_window",
        "budget",
        "source",
    ),
    9: (
        "error_type",
        "message",
        "http_status",
        "attempt",
        "will_retry",
        "wait_ms",
        "next",
        "target",
    ),
    10: ("status", "success", "output", "error", "latency_ms", "tool_call_id"),
    11: ("tool_call_ids", "context_tokens", "context_window"),
    12: ("step_type", "name", "provider_name", "model", "tool_call_id", "arguments"),
    13: ("message_id", "kind", "role", "token_count", "token_source", "tool_call_id", "text"),
}

OF_TURNS = frozenset({1, 2, 3})
"""Those that begin with the turn's and the session's id."""

NUMBERS = {fields: number for number, fields in LAYOUTS.items()}


def laid_out(
    payload: dict[str, Any], turn_id: str | None, session_id: str | None
) -> dict[str, Any] | list[Any]:
    """What is kept of a payload; the ids are the event's own."""
    number = NUMBERS.get(tuple(payload))
    if number is None:
        return payload
    return without_known([number, *payload.values()], turn_id, session_id)


def without_known(laid: list[Any], turn_id: str | None, session_id: str | None) -> list[Any]:
    """The same list without what the event's own columns say, and without nulls at the end."""
    if laid[0] in OF_TURNS:
        for place, own in enumerate((turn_id, session_id), 1):
            if own is not None and laid[place] == own:
                laid[place] = True
    while laid[-1] is None:
        laid.pop()
    return laid


def spread_out(
    kept: dict[str, Any] | list[Any], turn_id: str | None, session_id: str | None
) -> dict[str, Any]:
    """The payload that was kept like this: fields and values in the order in which they came."""
    if isinstance(kept, dict):
        return kept
    number, *values = kept
    payload: dict[str, Any] = dict.fromkeys(LAYOUTS[number])
    payload.update(zip(payload, values, strict=False))
    if number in OF_TURNS:
        for name, own in (("turn_id", turn_id), ("session_id", session_id)):
            if payload[name] is True:
                payload[name] = own
    return payload
