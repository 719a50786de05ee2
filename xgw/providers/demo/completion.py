"""Chat answers on the wire: the events of a stream and the whole object, with usage."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

from xgw import clock
from xgw.providers.demo.prompt_cache import PromptCache, prompt_tokens, render_prompt
from xgw.providers.demo.request import ChatRequest
from xgw.providers.demo.script import Piece, Reply

FINGERPRINT = "demo-scripted"

_FIELDS = {"text": "content", "reasoning": "reasoning_content", "refusal": "refusal"}


def fresh_id(prefix: str) -> str:
    """An identifier that no other answer has."""
    return f"{prefix}{uuid.uuid4().hex}"


def measure(request: ChatRequest, replies: Sequence[Reply], cache: PromptCache) -> dict[str, Any]:
    """The usage object of an answer; makes its prompt known to the cache."""
    prompt = render_prompt(request.functions, request.messages)
    sent = prompt_tokens(prompt, len(request.messages))
    pieces = [piece for reply in replies for piece in reply.pieces]
    reasoned = sum(piece.kind == "reasoning" for piece in pieces)
    return {
        "prompt_tokens": sent,
        "completion_tokens": len(pieces),
        "total_tokens": sent + len(pieces),
        "prompt_tokens_details": {
            "cached_tokens": cache.count(request.model, prompt),
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": reasoned,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer: its choices and what they cost, with the identifiers that it has on the wire."""

    request: ChatRequest
    replies: Sequence[Reply]
    usage: dict[str, Any]
    id: str = field(default_factory=lambda: fresh_id("chatcmpl-demo-"))
    created: int = field(default_factory=lambda: _unix_now())
    call_ids: list[list[str]] = field(init=False)

    def __post_init__(self) -> None:
        ids = [[fresh_id("call_") for _ in reply.calls] for reply in self.replies]
        object.__setattr__(self, "call_ids", ids)

    @property
    def tokens(self) -> int:
        """How many tokens the answer has."""
        return int(self.usage["completion_tokens"])

    def whole(self) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        choices = [
            {
                "index": index,
                "message": self._message(index, reply),
                "logprobs": None,
                "finish_reason": reply.finish_reason,
            }
            for index, reply in enumerate(self.replies)
        ]
        return {**self._head("chat.completion"), "choices": choices, "usage": self.usage}

    def events(self) -> Iterator[tuple[bool, dict[str, Any]]]:
        """The events of a stream: whether it is a token, and its JSON."""
        for index, reply in enumerate(self.replies):
            content = None if reply.calls else ""
            yield False, self._chunk(index, {"role": "assistant", "content": content})
            begun = -1
            for piece in reply.pieces:
                if piece.kind == "arguments" and piece.call > begun:
                    begun = piece.call
                    yield False, self._chunk(index, self._call_begins(index, begun))
                yield True, self._chunk(index, _delta(piece))
            yield False, self._chunk(index, {}, reply.finish_reason)
        if self.request.include_usage:
            head = self._head("chat.completion.chunk")
            yield False, {**head, "choices": [], "usage": self.usage}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.request.model,
            "system_fingerprint": FINGERPRINT,
        }

    def _message(self, index: int, reply: Reply) -> dict[str, Any]:
        kinds = {piece.kind for piece in reply.pieces}
        silent = reply.calls or "refusal" in kinds
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if silent else reply.text("text"),
            "refusal": reply.text("refusal") or None,
        }
        if "reasoning" in kinds:
            message["reasoning_content"] = reply.text("reasoning")
        if reply.calls:
            message["tool_calls"] = [
                {
                    "id": self.call_ids[index][number],
                    "type": "function",
                    "function": {"name": call.name, "arguments": reply.text("arguments", number)},
                }
                for number, call in enumerate(reply.calls)
            ]
        return message

    def _chunk(
        self, index: int, delta: dict[str, Any], finish_reason: str | None = None
    ) -> dict[str, Any]:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish_reason,
        }
        chunk = {**self._head("chat.completion.chunk"), "choices": [choice]}
        return {**chunk, "usage": None} if self.request.include_usage else chunk

    def _call_begins(self, index: int, number: int) -> dict[str, Any]:
        call = {
            "index": number,
            "id": self.call_ids[index][number],
            "type": "function",
            "function": {"name": self.replies[index].calls[number].name, "arguments": ""},
        }
        return {"tool_calls": [call]}


def _unix_now() -> int:
    return int(clock.now().replace(tzinfo=UTC).timestamp())


def _delta(piece: Piece) -> dict[str, Any]:
    if piece.kind == "arguments":
        return {"tool_calls": [{"index": piece.call, "function": {"arguments": piece.text}}]}
    return {_FIELDS[piece.kind]: piece.text}
