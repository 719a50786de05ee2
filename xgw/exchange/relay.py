"""One streamed answer: bytes pass through, facts come out.

Every read of the upstream is handed on as it is (whole events, repaired only where a plain SDK
could not read them) and feeds the dialect's parser and the live step with the same bytes.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Protocol

from xgw import clock
from xgw.providers.dialects.chat import ChatStream, Piece
from xgw.providers.sse import EventSplitter, EventTooLarge, SseEvent
from xgw.recording.live import LiveStep
from xgw.values import UpstreamFailure

RELEASING = frozenset({"content", "finish", "error", "done"})
FINISH_GRACE = 5.0
_OF_CHOICES = frozenset({"role", "content", "finish"})


@dataclass(slots=True)
class Batch:
    """What one read brought: bytes for the client, and whether the answer is over.

    `last` are bytes to send after the end is recorded; `failure` is a fault of the upstream.
    """

    out: bytes = b""
    last: bytes = b""
    released: bool = False
    ended: bool = False
    failure: UpstreamFailure | None = None


class Capture:
    """The raw bytes of an answer as the record keeps them, with their timing, up to a limit."""

    def __init__(self, limit: int, started: float) -> None:
        self._limit = limit
        self._started = started
        self._parts: list[bytes] = []
        self._kept = 0
        self.received = 0
        self.chunks = 0
        self.truncated = False
        self.frames: list[list[int]] = []
        self.first_byte_at: datetime.datetime | None = None

    def started(self, moment: float) -> None:
        """The moment that the timing counts from."""
        self._started = moment

    def add(self, block: bytes) -> None:
        """Bytes that have just arrived."""
        if self.first_byte_at is None:
            self.first_byte_at = clock.now()
        if not self.truncated:
            kept = block[: self._limit - self._kept]
            at = round((clock.monotonic() - self._started) * 1000)
            if not self.frames or self.frames[-1][1] != at:
                self.frames.append([self.received, at])
            self._parts.append(kept)
            self._kept += len(kept)
            self.truncated = len(kept) < len(block)
        self.received += len(block)
        self.chunks += 1

    def content(self) -> bytes:
        """Everything that was kept."""
        return b"".join(self._parts)


class Blocks(Protocol):
    """Where a stream's bytes come from: `UpstreamResponse.read` says what is given."""

    def read(self, until: float | None = None) -> bytes | None:
        """The next bytes."""
        ...


class Relay:
    """Reads one streamed chat answer; `read` until it says that the answer ended."""

    def __init__(
        self,
        response: Blocks,
        capture: Capture,
        live: LiveStep,
        *,
        hide_usage: bool,
        max_event_bytes: int,
        head: bytes = b"",
    ) -> None:
        self.chat = ChatStream(hide_usage=hide_usage)
        self.response = response
        self.capture = capture
        self.released_at: float | None = None
        self._head = head
        self._live = live
        self._splitter = EventSplitter(max_event_bytes)
        self._finished_at: float | None = None

    def read(self, until: float | None) -> Batch | None:
        """The next bytes; None when `until` (monotonic) came first."""
        try:
            return self._read(until)
        except UpstreamFailure as failure:
            return self._fail(failure)
        except EventTooLarge as error:
            return self._fail(UpstreamFailure("upstream_protocol_error", str(error)))

    def _read(self, until: float | None) -> Batch | None:
        if self._head:
            head, self._head = self._head, b""
            return self._take(self._splitter.feed(head), closed=False)
        if self._splitter.overflowed:  # told of at the next feed, which may never come
            return self._take(self._splitter.feed(b""), closed=False)
        block = self._receive(until)
        if block is None:
            return None
        if not block:
            return self._take(self._splitter.end(), closed=True)
        self.capture.add(block)
        return self._take(self._splitter.feed(block), closed=False)

    def _receive(self, until: float | None) -> bytes | None:
        """After the last chunk with a finish reason only a little is still waited for."""
        if self._finished_at is None:
            return self.response.read(until)
        grace = self._finished_at + FINISH_GRACE
        block = self.response.read(grace if until is None else min(until, grace))
        return b"" if block is None and clock.monotonic() >= grace else block

    def _take(self, events: list[SseEvent], *, closed: bool) -> Batch:
        batch = Batch()
        pieces: list[bytes] = []
        for event in events:
            piece = self.chat.read(event)
            if piece.kind == "error":
                batch.failure, batch.ended, batch.released = piece.error, True, True
                break
            if piece.kind == "done" and self.chat.finished:
                batch.last, batch.ended = piece.out, True
                break
            if piece.kind == "done":
                batch.failure, batch.ended = _truncated(), True
                break
            self._note(piece, batch)
            if piece.out:
                pieces.append(piece.out)
        batch.out = b"".join(pieces)
        if closed and not batch.ended:
            batch.ended = True
            if not self.chat.finished:
                batch.failure = _truncated()
        return batch

    def _note(self, piece: Piece, batch: Batch) -> None:
        if piece.kind in RELEASING and self.released_at is None:
            self.released_at = clock.monotonic()
            self._live.ttft_ms = round((self.released_at - self._live.started) * 1000)
        batch.released = batch.released or piece.kind in RELEASING
        if piece.kind in _OF_CHOICES:
            # Some servers put a reason into every chunk, or begin the next choice after the last.
            self._finished_at = clock.monotonic() if self.chat.finished else None
        if piece.deltas:
            self._live.add(piece.deltas)

    def _fail(self, failure: UpstreamFailure) -> Batch:
        """A fault once the finish reason is there takes nothing from the answer."""
        if self.chat.finished:
            return Batch(ended=True, released=True)
        return Batch(failure=failure, ended=True)


def _truncated() -> UpstreamFailure:
    return UpstreamFailure(
        "upstream_truncated", "The upstream ended its answer before it was complete."
    )
