"""What the recorder is told: frozen facts on sessions, turns, messages, attempts, their ends."""

from __future__ import annotations

import datetime
from typing import Any

from xgw.frozen import field, frozen
from xgw.values import Usage


@frozen
class Scope:
    """The identifiers under which something is recorded."""

    project_id: str
    session_id: str | None
    turn_id: str
    run_id: str
    trace_id: str
    task_id: str | None = None
    run_index: int = 0
    run_kind: str = "first"
    from_run_id: str | None = None
    """The run that this one goes on from, or repeats."""


@frozen
class SessionFacts:
    """A session that begins; the columns of its row."""

    id: str
    session_key: str
    project_id: str
    source: str
    kind: str = "chat"
    org_id: str | None = None
    api_key_id: str | None = None
    end_user_id: str | None = None
    task_id: str | None = None
    model: str | None = None
    metadata: dict[str, Any] | None = None
    title: str | None = None
    budget: dict[str, Any] | None = None
    agent_name: str | None = None
    mode: str | None = None
    tools: list[str] | None = None
    context_window: int | None = None


@frozen
class TurnFacts:
    """A turn that begins, with its first run."""

    scope: Scope
    started_at: datetime.datetime
    endpoint: str | None
    user_input: str | None
    input_payload: str | None
    turn_key: str | None = None
    parent: str | None = None
    """What the client calls the turn that started this one: its id or key."""
    agent_name: str | None = None
    config_snapshot: str | None = None
    metadata: dict[str, Any] | None = None
    owner: str | None = None
    is_exclusive: bool = False
    """Whether it is to be the only one of its kind under way in its session (an agent's)."""
    overrides: dict[str, Any] | None = None
    """What was asked for instead of the agent's own, for its run."""


@frozen
class RunFacts:
    """A later run of a turn that begins; `kept_upto` is the index of the last message that it takes
    over from the run that it goes on from."""

    scope: Scope
    kept_upto: int
    owner: str | None
    from_step_id: str | None = None
    overrides: dict[str, Any] | None = None


@frozen
class MessageFacts:
    """One item of the history."""

    id: str
    kind: str
    role: str | None
    content: str | None
    parts: Any = None
    tool_calls: Any = None
    tool_call_id: str | None = None
    name: str | None = None
    token_count: int | None = None
    token_source: str | None = None
    metadata: dict[str, Any] | None = None


@frozen
class RequestFacts:
    """The HTTP request of one attempt as it goes out; headers and URL are masked already."""

    id: str
    endpoint: str
    method: str
    url: str
    headers: list[list[str]]
    payload: str | None
    bytes_sent: int
    stream: bool
    client: dict[str, Any]


@frozen
class AttemptFacts:
    """One try at one provider: an `llm_call` step that starts."""

    step_id: str
    attempt: int
    reason: str
    provider_name: str
    model: str
    model_requested: str
    started_at: datetime.datetime
    request: RequestFacts
    waited_ms: int | None = None
    history: str | None = None
    input_tokens: int | None = None
    context_window: int | None = None
    metadata: dict[str, Any] | None = None
    parent_step_id: str | None = None
    """The step that it is a part of; None for an answer of the turn itself."""

    @property
    def is_said(self) -> bool:
        """Whether it is a part of a conversation; embeddings are of texts of any kind."""
        return self.request.endpoint != "/embeddings"

    @property
    def context_tokens(self) -> int | None:
        """How much of a conversation it sends; None of what is none."""
        return self.input_tokens if self.is_said else None


@frozen
class AttemptEnd:
    """How an attempt ended; `output` is the assembled answer's payload, `body` the raw bytes'.

    `http_status` is what the answer counts as, `wire_status` what its status line said: a 200 whose
    body is an error has both.
    """

    status: str
    ended_at: datetime.datetime
    latency_ms: int
    error_type: str | None = None
    error_message: str | None = None
    http_status: int | None = None
    wire_status: int | None = None
    model: str | None = None
    finish_reason: str | None = None
    finish_reason_raw: str | None = None
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    context_tokens: int | None = None
    ttft_ms: int | None = None
    output: str | None = None
    partial_output: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    response_headers: list[list[str]] | None = None
    body: str | None = None
    frames: list[list[int]] | None = None
    error_body: str | None = None
    bytes_received: int = 0
    chunks: int = 0
    truncated: bool = False
    first_byte_at: datetime.datetime | None = None
    answered: bool = False


@frozen
class Retry:
    """What follows a failed attempt: `next` is retry, fallback or give_up."""

    next: str
    wait_ms: int | None = None
    target: str | None = None


@frozen
class ToolStart:
    """A tool that the model asked for; `side` tells who runs it: the client, or the server."""

    step_id: str
    tool_call_id: str
    name: str | None
    arguments: str
    side: str = "client"
    notes: dict[str, Any] | None = None
    """What else its step's metadata tells: who decided about it, whose result it takes."""
    step_type: str = "tool_call"
    partner: str | None = None
    """The agent that a task is handed over to."""


@frozen
class ToolEnd:
    """A tool's result, or None as `output` where none ever came.

    `late` marks a result for a step that had ended: `start` then describes the step to add.
    """

    step_id: str
    tool_call_id: str
    status: str
    output: str | None
    output_payload: str | None
    latency_ms: int | None
    ended_at: datetime.datetime
    name: str | None = None
    arguments: str = ""
    error_type: str | None = None
    late: bool = False
    error_message: str | None = None


@frozen
class Kept:
    """What a tool changed: a session's working memory, or its run's plan; None is unchanged."""

    working_memory: dict[str, Any] | None = None
    planner_state: dict[str, Any] | None = None


@frozen
class CompactionStart:
    """A compaction begins: why, what the context holds by then, and what is to be taken out.

    `trigger` is threshold, request or overflow. `input_payload` says the same.
    """

    step_id: str
    trigger: str
    started_at: datetime.datetime
    input_payload: str | None
    under: tuple[str, str] | None = None
    """The step of the handoff in whose task it happens, and its agent."""


@frozen
class CompactionEnd:
    """What a compaction came to. `strategy` is summary or drop, `reason` why it is drop.

    `summary` is what later calls are told of all that they are not shown. `is_apart`: it concerns
    its run alone, and the session stays as it was.
    """

    step_id: str
    trigger: str
    strategy: str
    before_tokens: int | None
    after_tokens: int | None
    message_ids: tuple[str, ...]
    summary: str | None
    reason: str | None
    output: str
    output_payload: str | None
    latency_ms: int
    ended_at: datetime.datetime
    is_apart: bool = False


@frozen
class LimitFacts:
    """A limit that a turn has reached: `limit` as events name it, what was counted, what may be."""

    limit: str
    value: float
    max: float


@frozen
class TurnEnd:
    """How a turn and its run end; the status follows from `ended_by`."""

    ended_by: str
    ended_at: datetime.datetime
    busy_ms: int | None
    error_type: str | None = None
    error_message: str | None = None
    finish_reason: str | None = None
    final_output: str | None = None
    final_provider_name: str | None = None
    final_model: str | None = None
    keep_final: bool = False
