"""Frozen values that flow between the rooms: usage, tool calls, deltas, answers, failures."""

from __future__ import annotations

from typing import Any, Literal

from xgw.frozen import field, frozen

UsageSource = Literal["provider", "estimated", "partial"]
DeltaKind = Literal["text", "reasoning", "tool_arguments", "refusal"]


@frozen
class Usage:
    """Token counts of one model answer; None is unknown, never 0.

    `cached_tokens` and `reasoning_tokens` are parts of input and output. `raw` is the provider's
    own usage object.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None
    raw: dict[str, Any] | None = None
    source: UsageSource | None = None


@frozen
class ToolCall:
    """A tool call that a model asked for; `arguments` is the text as sent.

    `incomplete` marks the last call of an answer that broke off or ended by length; `choice` is the
    index of the choice that it stands in.
    """

    tool_call_id: str | None
    name: str | None
    arguments: str
    arguments_json_valid: bool
    incomplete: bool = False
    choice: int = 0


@frozen
class Delta:
    """A piece of a streamed answer; `index` is the choice, for tool arguments the call's number."""

    kind: DeltaKind
    index: int
    text: str


@frozen
class Answer:
    """An assembled model answer, a partial one too.

    `choices` has the shape of a step's output payload: `[{index, message: {role, content, refusal,
    reasoning_content, tool_calls}, finish_reason, logprobs}]`.
    """

    choices: list[dict[str, Any]] = field(default_factory=list)
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    finish_reason_raw: str | None = None
    usage: Usage | None = None
    model: str | None = None
    names: tuple[str, ...] | None = None
    """The fields of the one JSON object that it came as; None where that was no strict JSON."""

    def message(self) -> dict[str, Any]:
        """The message of choice 0, empty if nothing has arrived."""
        for choice in self.choices:
            if choice.get("index") == 0:
                message: dict[str, Any] = choice["message"]
                return message
        return {}

    def text(self) -> str | None:
        """What choice 0 says as plain text; None if it said nothing."""
        content = self.message().get("content")
        if isinstance(content, list):
            texts = [
                p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str)
            ]
            return "".join(texts) or None
        return content if isinstance(content, str) and content else None


class UpstreamFailure(Exception):
    """An upstream call failed: `error_type` is one of `errors.ERROR_TYPES`.

    `http_status` is the upstream's own status, None where it gave none; `body` its error body;
    `headers` its response headers.
    """

    def __init__(
        self,
        error_type: str,
        message: str,
        *,
        http_status: int | None = None,
        body: bytes | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.message = message
        self.http_status = http_status
        self.body = body
        self.headers = headers
