"""What is played of a recording, worked out beforehand: which bytes go out, and when.

A client of a gateway hears of its upstream what the gateway passes on, and errors in its words. To
play that, the recorded bytes go through what any answer goes through. To a gateway under test the
upstream is played as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from xgw import clock
from xgw.exchange.failures import client_error
from xgw.exchange.headers import HOP_BY_HOP, STREAM_HEADERS, Headers, find, to_client
from xgw.exchange.relay import Batch, Capture, Relay
from xgw.portable.replay.recordings import Recorded
from xgw.providers.dialects.chat import (
    completion_of,
    looks_like_stream,
    parse_completion,
    repair_completion,
    stream_from_completion,
)
from xgw.providers.dialects.embeddings import parse_embeddings
from xgw.providers.errors import classify
from xgw.recording.facts import Scope
from xgw.recording.live import LiveStep
from xgw.values import UpstreamFailure

HOLD_MS = 2000
MOST_EVENT = 256 << 20

BROKEN = frozenset(
    {
        "upstream_connection",
        "upstream_protocol_error",
        "upstream_timeout",
        "upstream_truncated",
    }
)
"""What an exchange ends with whose bytes do not say by themselves that they are not all."""

Ending = Literal["whole", "cut", "reset", "silence"]
"""After the last bytes: the proper end; a connection that closes, is reset, says no more."""


@dataclass(frozen=True, slots=True)
class Script:
    """An answer: its head and the bytes behind it, each with its millisecond since the request.

    `is_stream`: its length is not known before. Without a status there is no answer at all.
    """

    status: int | None
    headers: Headers
    frames: list[tuple[int, bytes]]
    ending: Ending
    ends_ms: int
    is_stream: bool


class _NoMask:
    def text(self, text: str, /) -> str:
        return text


NO_MASK = _NoMask()


# -- as the upstream was ---------------------------------------------------------------------------


def as_upstream(recorded: Recorded) -> Script:
    """What the upstream sent, byte by byte, and how it ended."""
    dropped = HOP_BY_HOP | {"content-length", "content-encoding", "date", "server"}
    headers = tuple((n, v) for n, v in recorded.headers if n.lower() not in dropped)
    frames = list(_blocks(recorded))
    return Script(
        recorded.status,
        headers,
        frames,
        _ending(recorded),
        recorded.latency_ms,
        is_stream=recorded.stream or _ending(recorded) != "whole",
    )


def _ending(recorded: Recorded) -> Ending:
    match recorded.error_type:
        case "upstream_connection":
            return "reset"
        case "upstream_timeout" if recorded.status is None or recorded.status < 400:
            return "silence"
        case "upstream_truncated":
            return "cut"
    return "cut" if recorded.was_left else "whole"


def _blocks(recorded: Recorded) -> Iterator[tuple[int, bytes]]:
    """The bytes as they came: by their offsets, and the millisecond of each."""
    frames = [(at, ms) for at, ms in recorded.frames if at < len(recorded.content)]
    if not frames or frames[0][0] != 0:
        frames.insert(0, (0, frames[0][1] if frames else recorded.latency_ms))
    ends = [at for at, _ in frames[1:]] + [len(recorded.content)]
    for (start, ms), end in zip(frames, ends, strict=True):
        if end > start:
            yield ms, recorded.content[start:end]


# -- as the client heard it ------------------------------------------------------------------------


def as_client(recorded: Recorded, *, wants_usage: bool) -> Script:
    """What a client of the gateway heard that asks again; `wants_usage` in a stream."""
    try:
        return _answer(recorded, _Blocks(recorded), wants_usage)
    except UpstreamFailure as failure:
        return _failed(recorded, failure)


class _Blocks:
    """The recorded bytes, one block after another; `ms` is when the last one came."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._blocks = _blocks(recorded)
        self.ms = 0

    def read(self, until: float | None = None) -> bytes | None:
        """The next block; at the end b"", or the failure that was recorded."""
        block = next(self._blocks, None)
        if block is not None:
            self.ms, content = block
            return content
        recorded = self._recorded
        self.ms = max(self.ms, recorded.latency_ms)
        if recorded.error_type in BROKEN:
            raise UpstreamFailure(recorded.error_type or "", recorded.error_message)
        return b""


def _answer(recorded: Recorded, blocks: _Blocks, wants_usage: bool) -> Script:
    if recorded.status is None:
        kind = recorded.error_type or "upstream_connection"
        raise UpstreamFailure(kind, recorded.error_message)
    if not 200 <= recorded.status < 300:
        raise _refusal(recorded)
    if not isinstance(recorded.asked, dict) or "messages" not in recorded.asked:
        parse_embeddings(recorded.content)
        return _whole(recorded, recorded.content)
    streams = looks_like_stream(recorded.content, find(recorded.headers, "content-type"))
    if recorded.stream and streams:
        return _stream(recorded, blocks, wants_usage)
    if recorded.stream:
        parse_completion(recorded.content)
        events = stream_from_completion(recorded.content, include_usage=wants_usage)
        return _streamed(recorded, [(recorded.latency_ms, b"".join(events))])
    if streams:
        return _whole(recorded, _completion(blocks))
    if recorded.error_type in BROKEN:
        raise UpstreamFailure(recorded.error_type or "", recorded.error_message)
    parse_completion(recorded.content)
    return _whole(recorded, repair_completion(recorded.content))


def _relay(blocks: _Blocks, *, hide_usage: bool) -> Relay:
    now = clock.monotonic()
    live = LiveStep(Scope("", None, "", "", ""), "", is_quiet=True)
    return Relay(blocks, Capture(0, now), live, hide_usage=hide_usage, max_event_bytes=MOST_EVENT)


def _completion(blocks: _Blocks) -> bytes:
    relay = _relay(blocks, hide_usage=False)
    while (batch := _next(relay)).failure is None:
        if batch.ended:
            return completion_of(relay.chat)
    raise batch.failure


def _stream(recorded: Recorded, blocks: _Blocks, wants_usage: bool) -> Script:
    """The events as they are passed on: nothing before the first one that says something."""
    relay = _relay(blocks, hide_usage=not wants_usage)
    frames: list[tuple[int, bytes]] = []
    held, until = b"", None
    while True:
        batch = _next(relay)
        until = until or blocks.ms + HOLD_MS
        if batch.failure is not None and relay.released_at is None and blocks.ms < until:
            raise batch.failure
        out = held + batch.out
        if batch.released or batch.ended or blocks.ms >= until:
            held = b""
            if out:
                frames.append((blocks.ms, out))
        else:
            held = out
        if batch.ended:
            break
    if recorded.was_left:
        return _streamed(recorded, frames, "cut")
    if batch.failure is not None:
        frames.append((blocks.ms, _fault(recorded, batch.failure)))
    elif batch.last:
        frames.append((blocks.ms, batch.last))
    return _streamed(recorded, frames)


def _next(relay: Relay) -> Batch:
    batch = relay.read(None)
    assert batch is not None
    return batch


def _fault(recorded: Recorded, failure: UpstreamFailure) -> bytes:
    _, body = _told(recorded, failure)
    error = body["error"]
    told = {"error": {**error, "type": error.get("type") or failure.error_type}}
    return b"data: " + orjson.dumps(told) + b"\n\n"


def _streamed(
    recorded: Recorded, frames: list[tuple[int, bytes]], ending: Ending = "whole"
) -> Script:
    own = {"content-type", *(name.lower() for name, _ in STREAM_HEADERS)}
    passed = [(n, v) for n, v in to_client(recorded.headers) if n.lower() not in own]
    kind = ("Content-Type", "text/event-stream; charset=utf-8")
    ends = max((ms for ms, _ in frames), default=0)
    return Script(200, (*passed, kind, *STREAM_HEADERS), frames, ending, ends, is_stream=True)


def _whole(recorded: Recorded, body: bytes, status: int = 200) -> Script:
    passed = [(n, v) for n, v in to_client(recorded.headers) if n.lower() != "content-type"]
    headers = (*passed, ("Content-Type", "application/json"))
    frames = [(recorded.latency_ms, body)]
    return Script(status, headers, frames, "whole", recorded.latency_ms, is_stream=False)


def _failed(recorded: Recorded, failure: UpstreamFailure) -> Script:
    status, body = _told(recorded, failure)
    return _whole(recorded, orjson.dumps(body), status)


def _refusal(recorded: Recorded) -> UpstreamFailure:
    kind = recorded.error_type or classify(recorded.status or 502, None)
    return UpstreamFailure(
        kind, "", http_status=recorded.status, body=recorded.content, headers=recorded.headers
    )


def _told(recorded: Recorded, failure: UpstreamFailure) -> tuple[int, dict[str, Any]]:
    """Status and body of the error, in the words of the gateway."""
    return client_error(failure, recorded.provider, NO_MASK)
