"""The chat dialect: what each event of a streamed answer means, and the answer put together.

Nothing here does I/O. `ChatStream` reads a stream event by event; what a plain client could not
read is repaired on the way (api.md, Gateway), everything else is relayed as the very same bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from xgw.frozen import changed
from xgw.providers.dialects.chat_assembly import ChoiceState
from xgw.providers.dialects.chat_calls import StreamedCall
from xgw.providers.dialects.chat_completion import (
    looks_like_stream,
    parse_completion,
    repair_completion,
    stream_from_completion,
)
from xgw.providers.dialects.chat_errors import build_protocol_failure, find_failure
from xgw.providers.dialects.chat_repair import ChoiceRepair, repair_chunk
from xgw.providers.dialects.chat_usage import (
    find_usage,
    merge_usage,
    normalise_finish_reason,
    parse_usage,
)
from xgw.providers.dialects.loose_json import (
    DEEPEST_RECORD,
    encodable,
    is_deeper,
    null_constants,
    parse_loose,
    storable,
)
from xgw.providers.sse import SseEvent, is_comment, parse_event, replace_data, without_blank_line
from xgw.values import Answer, Delta, DeltaKind, UpstreamFailure

__all__ = [
    "ChatStream",
    "Piece",
    "completion_from_stream",
    "completion_of",
    "looks_like_stream",
    "normalise_finish_reason",
    "parse_completion",
    "parse_usage",
    "read_stream",
    "repair_completion",
    "stream_from_completion",
    "with_readable_calls",
]

PieceKind = Literal[
    "comment", "empty", "role", "content", "finish", "usage", "done", "error", "other"
]

_KNOWN_FIELDS = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation"})
_FIRST_FIELDS = ("id", "created", "model")


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event of the upstream means.

    `out`: the bytes for the client, b"" where it gets nothing; the event as received unless it
    needed repair. Errors have none: the relay words its own event from `error`.
    `kind`: "finish" carries a finish reason (and may carry content), "content" anything but a role,
    "role" only that or empty fields, "usage" counts without choices, "other" neither.
    """

    out: bytes
    kind: PieceKind
    deltas: tuple[Delta, ...] = ()
    error: UpstreamFailure | None = None


class ChatStream:
    """A streamed chat answer. One thread reads events into it; others may ask for its texts.

    `hide_usage`: the client did not ask for usage, so chunks of usage alone are kept from it.
    """

    def __init__(self, *, hide_usage: bool) -> None:
        self.done = False
        self.has_ids = False
        self.output_characters = 0  # of text, reasoning, refusal and tool arguments
        self._hide_usage = hide_usage
        self._loose = False  # some chunk held what cannot be stored as it is
        self._choices: dict[int, ChoiceState] = {}
        self._calls: list[StreamedCall] = []
        self._usage: dict[str, Any] | None = None
        self._top: dict[str, Any] = {}  # id, created, model: the first; other fields: the last

    @property
    def finished(self) -> bool:
        """Whether each choice seen has its finish reason, and there is one."""
        choices = self._choices.values()
        return bool(choices) and all(c.finish_reason is not None for c in choices)

    def read(self, event: SseEvent) -> Piece:
        """Take the next event."""
        self.has_ids = self.has_ids or event.has_id
        data = event.data
        if data is None:
            return self._read_fields(event)
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            return self._read_odd(event, data)
        return self._read_chunk(event, chunk, data)

    def answer(self, *, broken: bool = False) -> Answer:
        """What has arrived so far; `broken` if nothing more will come although it had not ended."""
        states = self._in_order()
        first = states[0] if states else None
        raw = first.finish_reason if first else None
        choices = [state.describe(state.message()) for state in states]
        model = self._top.get("model")
        return Answer(
            choices=storable(choices) if self._loose else choices,
            tool_calls=tuple(c for state in states for c in state.tool_calls(broken=broken)),
            finish_reason=normalise_finish_reason(raw),
            finish_reason_raw=raw,
            usage=parse_usage(self._usage) or parse_usage(find_usage(choices, self._top)),
            model=encodable(model) if isinstance(model, str) else None,
        )

    def completion(self) -> dict[str, Any]:
        """The answer so far as the `chat.completion` that a client would get without streaming."""
        choices = [state.describe(state.client_message()) for state in self._in_order()]
        completion = {"id": self._top.get("id"), "object": "chat.completion"}
        completion |= {name: self._top[name] for name in _FIRST_FIELDS if name in self._top}
        completion |= {"choices": choices} | self._top
        return completion if self._usage is None else completion | {"usage": self._usage}

    def comment(self, raw: bytes) -> bytes:
        """A comment of ours, which ends in a blank line, as it can go to the client now.

        Once an event had an id, OpenAI's SDK for Python takes every blank line for the end of one.
        """
        return without_blank_line(raw) if self.has_ids else raw

    def text(self) -> str:
        """The text of choice 0 so far."""
        return self.live_text("text", 0)

    def live_text(self, kind: DeltaKind, index: int) -> str:
        """The text so far that deltas of this kind and index have brought."""
        if kind == "tool_arguments":
            return self._calls[index].arguments.join() if index < len(self._calls) else ""
        state = self._choices.get(index)
        if state is None:
            return ""
        if kind == "text":
            return state.content.join()
        return state.refusal.join() if kind == "refusal" else state.reasoning.join()

    def _in_order(self) -> list[ChoiceState]:
        return [self._choices[index] for index in sorted(self._choices)]

    def _read_fields(self, event: SseEvent) -> Piece:
        """An event without data. Some servers write their error as it is, or as its own field."""
        if is_comment(event):
            return Piece(event.raw, "comment")
        failure = None
        told = event.raw.strip()
        kind = "error" if told.startswith(b"error:") else None
        told = told.removeprefix(b"error:").lstrip()
        if told.startswith((b"{", b"[")):
            with contextlib.suppress(ValueError):
                failure = find_failure(parse_loose(told), told, event=kind)
        return Piece(b"", "empty") if failure is None else Piece(b"", "error", error=failure)

    def _read_odd(self, event: SseEvent, data: bytes) -> Piece:
        """An event that a strict parser refuses."""
        text = data.strip()
        if not text:
            return Piece(b"", "empty")
        if text.startswith(b"[DONE]"):
            self.done = True
            return Piece(event.raw, "done")
        try:
            chunk = parse_loose(data)
        except ValueError:
            return self._fail(event, data)
        self._loose = True
        return self._read_chunk(event, chunk, null_constants(data))

    def _fail(self, event: SseEvent, data: bytes) -> Piece:
        failure = None
        if event.event == "error":
            failure = find_failure(data.decode("utf-8", "replace"), data, event="error")
        elif not event.complete and self.finished:
            return Piece(b"", "empty")  # what was cut off is not part of the answer
        elif not event.complete:
            reason = "the stream ended inside an event"
            failure = UpstreamFailure("upstream_truncated", reason, body=data)
        failure = failure or build_protocol_failure("an event of the stream is not JSON", data)
        return Piece(b"", "error", error=failure)

    def _read_chunk(self, event: SseEvent, chunk: Any, data: bytes) -> Piece:
        """An event whose `data`, repaired where it was not JSON, holds `chunk`."""
        if is_deeper(data, chunk, DEEPEST_RECORD):
            chunk = storable(chunk)
        ordinary = isinstance(chunk, dict) and "choices" in chunk and "error" not in chunk
        of_choice = b'"error"' in data and len(self._choices) < 2  # others may still go on
        if event.event == "error" or not ordinary or of_choice:
            failure = find_failure(chunk, data, event=event.event)
            if failure is not None:
                return Piece(b"", "error", error=failure)
        found: list[Delta] = []
        repairs: dict[int, ChoiceRepair] = {}
        kind: PieceKind = "other"
        if isinstance(chunk, dict):
            kind = self._take(chunk, found, repairs)
        if kind == "usage" and self._hide_usage:
            return Piece(b"", kind)
        if repairs:
            data = repair_chunk(data, repairs)
        for delta in found:
            self.output_characters += len(delta.text)
        out = event.raw if data is event.data else replace_data(event.raw, data)
        return Piece(out, kind, tuple(found))

    def _take(
        self, chunk: dict[str, Any], found: list[Delta], repairs: dict[int, ChoiceRepair]
    ) -> PieceKind:
        for key, value in chunk.items():
            if key not in _KNOWN_FIELDS and value is not None:
                self._top[key] = value
        for key in _FIRST_FIELDS:
            if key not in self._top and chunk.get(key):
                self._top[key] = chunk[key]
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage = merge_usage(self._usage, usage)
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices:
            return "usage" if isinstance(usage, dict) else "other"
        kind: PieceKind = "role"
        for place, choice in enumerate(choices):
            if isinstance(choice, dict):
                said, ended = self._take_choice(place, choice, found, repairs)
                kind = "finish" if ended or kind == "finish" else "content" if said else kind
        return kind

    def _take_choice(
        self,
        place: int,
        choice: dict[str, Any],
        found: list[Delta],
        repairs: dict[int, ChoiceRepair],
    ) -> tuple[bool, bool]:
        """One choice of a chunk: whether it says anything, and whether it ends."""
        index = choice.get("index")
        index = index if isinstance(index, int) else place
        state = self._choices.get(index)
        if state is None:
            state = self._choices[index] = ChoiceState(index, self._calls)
        ended = state.take_choice(choice)
        delta = choice.get("delta")
        said, edits = False, []
        if isinstance(delta, dict):
            said = state.take_delta(delta, found)
            calls = delta.get("tool_calls")
            if calls and isinstance(calls, list):
                said, edits = True, state.take_calls(calls, found)
        late = state.calls.unnamed() if ended else []
        if late or any(edit is not None for edit in edits):
            repairs[place] = ChoiceRepair(edits, late)
        return said, ended


def read_stream(events: Iterable[SseEvent]) -> ChatStream:
    """A whole stream at once. Raises its failure if it holds an error or ended too early."""
    stream = ChatStream(hide_usage=False)
    for event in events:
        failure = stream.read(event).error
        if failure is not None:
            raise failure
    if not stream.finished:
        raise UpstreamFailure("upstream_truncated", "the stream ended without a finish reason")
    return stream


def completion_of(stream: ChatStream) -> bytes:
    """The answer of a stream as one `chat.completion` JSON."""
    return orjson.dumps(storable(stream.completion()))


def with_readable_calls(events: list[bytes], answer: Answer) -> tuple[list[bytes], Answer]:
    """A whole answer's events, their tool calls repaired as a stream's are, and the answer so."""
    stream = ChatStream(hide_usage=False)
    repaired = [stream.read(parse_event(event)).out for event in events]
    read = stream.answer()
    if read.tool_calls == answer.tool_calls:
        return repaired, answer
    return repaired, changed(answer, choices=read.choices, tool_calls=read.tool_calls)


def completion_from_stream(events: Iterable[SseEvent]) -> bytes:
    """A whole stream as one `chat.completion` JSON. Raises as `read_stream` does."""
    return completion_of(read_stream(events))
