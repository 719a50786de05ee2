"""The envelope of everything that is told to those who watch, and the types of events."""

from __future__ import annotations

import datetime
from typing import Any

from xgw import clock
from xgw.frozen import frozen

TEXT_LIMIT = 4096
SURELY_SHORT = TEXT_LIMIT // 4  # characters, whatever they are
TEXTS = ("text", "user_input", "final_output", "output", "arguments")
"""The payload fields that hold what was said, if anything; no other type of value stands there."""

_TURN = (
    "`turn_id`, `session_id`, `task_id`, `turn_index`, `user_input`, `started_at`, `completed_at`"
)

TYPES: dict[str, str] = {
    "session.created": (
        "`session_key`, `kind`, `title`, `agent`, `model`, `mode`, `tools`, `context_window`, "
        "`budget`, `source`"
    ),
    "session.updated": "the changed fields",
    "session.deleted": "ids only",
    "turn.queued": f"{_TURN} (null)",
    "turn.started": f"{_TURN} (null)",
    "turn.updated": f"{_TURN}, the changed fields, `cause` for a reopened one",
    "turn.backfilled": "one for each turn that a backfill made",
    "turn.completed": (
        f"{_TURN}, `status`, `ended_by`, `final_output`, `final_provider_name`, `final_model`, "
        "`finish_reason`, `latency_ms`, `input_tokens`, `output_tokens`, `cached_tokens`, "
        "`total_tokens`, `cost_usd`, `usage_source`, `llm_calls`, `tool_calls`, `attempts`, "
        "`error`, `session_total_tokens`"
    ),
    "run.started": "`run_index`, `kind`, `from`, `status`, `reason`, `checkpoint_at`",
    "run.updated": (
        "`run_index`, `kind`, `from`, `status`, `reason`, `checkpoint_at`; `planner_state` where "
        "the plan changed"
    ),
    "run.completed": "`run_index`, `kind`, `from`, `status`, `reason`, `checkpoint_at`",
    "step.started": (
        "`step_type`, `name`, `provider_name`, `model`, `attempt`, `attempt_reason`, "
        "`waited_ms`, `input_tokens`, `usage_source`, `context_tokens`, `context_window`; for "
        "tools `tool_call_id`, `arguments`; in a handoff `agent_name`, `parent_step_id`; "
        "`purpose` of a call that is not for an answer (`compaction`)"
    ),
    "step.delta": "live: `kind`, `index`, `text`, `text_length`, `replace`",
    "step.progress": (
        "live: `input_tokens`, `usage_source`, `elapsed_ms`, `output_tokens`, `tokens_per_second`, "
        "`ttft_ms`; for tools `elapsed_ms` alone"
    ),
    "step.completed": (
        "`status`, `error`, `http_status`, `finish_reason`, `input_tokens`, `output_tokens`, "
        "`cached_tokens`, `uncached_tokens`, `cache_write_tokens`, `reasoning_tokens`, "
        "`usage_source`, `cost_usd`, `ttft_ms`, `latency_ms`; for tools "
        "`tool_call_id`, `success`, `output`, `error`"
    ),
    "llm.error": (
        "`error_type`, `message`, `http_status`, `attempt`, `will_retry`, `wait_ms`, `next`, "
        "`target`"
    ),
    "tool.requested": "`calls`: `tool_call_id`, `name`, `arguments`, `arguments_json_valid`",
    "tool.approval_requested": (
        "`tool_call_id`, `name`, `arguments`, `reason`; in a handoff `agent_name`"
    ),
    "tool.approval_decided": (
        "`tool_call_id`, `name`, `decision`, `by`, `arguments`, `reason`, `result`; in a handoff "
        "`agent_name`"
    ),
    "tool.results_sent": "`tool_call_ids`, `context_tokens`, `context_window`",
    "message.added": (
        "`message_id`, `kind`, `role`, `token_count`, `token_source`, `tool_call_id`, `text`"
    ),
    "context.compacted": (
        "`before_tokens`, `after_tokens`, `trigger`, `strategy`, `compacted_message_ids`, "
        "`summary`, `reason`"
    ),
    "limit.reached": "`limit`, `value`, `max`",
}

LIVE_TYPES = frozenset({"step.delta", "step.progress"})


@frozen
class Envelope:
    """One event; `seq` is the only cursor, None on live-only ones."""

    seq: int | None
    type: str
    at: datetime.datetime
    project_id: str
    session_id: str | None
    turn_id: str | None
    run_id: str | None
    step_id: str | None
    payload: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The envelope as it goes over the wire."""
        return {
            "seq": self.seq,
            "type": self.type,
            "at": clock.to_rfc3339(self.at),
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "run_id": self.run_id,
            "step_id": self.step_id,
            "payload": self.payload,
        }


def cut_texts(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload with every text cut at 4 KiB; `truncated` says that one was."""
    shorter: dict[str, Any] = {}
    for key, value in payload.items():
        if isinstance(value, str):
            if (text := cut_text(value)) is not value:
                shorter[key] = text
        elif value and isinstance(value, dict | list) and (inner := _cut(value)) is not value:
            shorter[key] = inner
    return {**payload, **shorter, "truncated": True} if shorter else payload


def is_surely_short(text: str) -> bool:
    """Whether one can tell without encoding it that a text has 4 KiB at most."""
    return len(text) <= (TEXT_LIMIT if text.isascii() else SURELY_SHORT)


def cut_text(text: str) -> str:
    """A text cut at 4 KiB."""
    if is_surely_short(text):
        return text
    encoded = text.encode()
    if len(encoded) <= TEXT_LIMIT:
        return text
    return encoded[:TEXT_LIMIT].decode(errors="ignore")


def _cut(value: Any) -> Any:
    """The very same object where nothing had to go."""
    if isinstance(value, str):
        return cut_text(value)
    if isinstance(value, dict):
        inner = {key: _cut(entry) for key, entry in value.items()}
        return value if all(inner[key] is entry for key, entry in value.items()) else inner
    if isinstance(value, list):
        entries = [_cut(entry) for entry in value]
        return value if all(a is b for a, b in zip(entries, value, strict=True)) else entries
    return value
