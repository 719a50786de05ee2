"""Server-sent events as bytes: cutting a body into events, and putting other data into one.

The rules are those of https://html.spec.whatwg.org/multipage/server-sent-events.html, except that
an event which the end of the body cut short is still given out (servers forget the last newline).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NEWLINES = b"\r\n"
# A line end and the blank line after it. A CR that ends the buffer may be half of a CRLF, so it
# ends an event only where the line before it ended in a bare CR too.
_END = re.compile(rb"\n\n|\n\r\n|\n\r(?=[^\n])|\r\r")
_LONGEST_END = 3


class EventTooLarge(Exception):
    """One event is larger than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"an event of the stream is larger than {limit} bytes")
        self.limit = limit


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event: `raw` as received, up to and including the blank line that ends it.

    `data` is its data lines joined by LF, None without any; `event` its type, None if it names
    none. `complete` is False where the body ended inside the event: `raw` is then completed.
    `has_id`: it holds an id, which readers keep for the events after it.
    """

    raw: bytes
    data: bytes | None
    event: str | None
    complete: bool = True
    has_id: bool = False


class EventSplitter:
    """Cuts a body, fed in any blocks, into events; how it is cut into blocks makes no difference.

    Blank lines between events and a byte order mark belong to no event.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._limit = max_event_bytes
        self._pending = bytearray()  # the event under way
        self._scanned = 0  # bytes of it that hold no end
        self._has_cr = False
        self._head: bytes | None = b""  # a byte order mark that may be coming; None afterwards
        self._overflow = False

    @property
    def overflowed(self) -> bool:
        """Whether an event above the limit has begun: the next `feed` raises."""
        return self._overflow

    def feed(self, block: bytes) -> list[SseEvent]:
        """The events that `block` completes.

        Raises EventTooLarge for an event above the limit: once the events before it are given out,
        and from then on at every call.
        """
        if self._overflow:
            raise EventTooLarge(self._limit)
        if self._head is not None:
            block = self._after_mark(block)
        self._has_cr = self._has_cr or b"\r" in block
        if self._pending:
            self._pending += block
            events, start = self._cut(self._pending, self._scanned)
            del self._pending[:start]
        else:
            events, start = self._cut(block, 0)
            if start < len(block):
                self._pending += block[start:]
        self._scanned = max(0, len(self._pending) - _LONGEST_END + 1)
        if not self._pending:
            self._has_cr = False
        elif len(self._pending) > self._limit:
            self._overflow = True
        if self._overflow:
            self._pending.clear()
            if not events:
                raise EventTooLarge(self._limit)
        return events

    def end(self) -> list[SseEvent]:
        """The event that the end of the body left without its blank line, if there is one."""
        if self._overflow:
            raise EventTooLarge(self._limit)
        rest = (self._head or b"") + bytes(self._pending)
        self._pending.clear()
        self._head = None
        text = rest.rstrip(_NEWLINES)
        if not text:
            return []
        return [parse_event(text + newline_of(rest) * 2, complete=False)]

    def _after_mark(self, block: bytes) -> bytes:
        head = (self._head or b"") + block
        if len(head) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(BYTE_ORDER_MARK)

    def _cut(self, buffer: bytes | bytearray, scan: int) -> tuple[list[SseEvent], int]:
        """The whole events of `buffer`, and where the unfinished one begins."""
        events: list[SseEvent] = []
        start, size = 0, len(buffer)
        while True:
            while start < size and buffer[start] in _NEWLINES:
                start += 1
            end = self._find_end(buffer, max(start, scan))
            if end < 0:
                return events, start
            if end - start > self._limit:
                self._overflow = True
                return events, size
            if isinstance(buffer, bytes):
                raw = buffer[start:end]
            else:  # a slice of a bytearray would be copied twice
                raw = bytes(memoryview(buffer)[start:end])
            events.append(parse_event(raw))
            start = end

    def _find_end(self, buffer: bytes | bytearray, start: int) -> int:
        if self._has_cr:
            found = _END.search(buffer, start)
            return found.end() if found else -1
        place = buffer.find(b"\n\n", start)
        return place if place < 0 else place + 2


def parse_event(raw: bytes, *, complete: bool = True) -> SseEvent:
    """The fields of one event, `raw` ending in a blank line."""
    if raw.startswith(b"data:") and raw.find(b"\n") == len(raw) - 2 and b"\r" not in raw:
        begin = 6 if raw.startswith(b" ", 5) else 5
        return SseEvent(raw, raw[begin:-2], None, complete)
    lines: list[bytes] = []
    kind = b""
    has_id = False
    for line in raw.splitlines():
        name, value = _field(line)
        if name == b"data":
            lines.append(value)
        elif name == b"event":
            kind = value
        elif name == b"id":
            has_id = True
    data = b"\n".join(lines) if lines else None
    return SseEvent(raw, data, kind.decode("utf-8", "replace") or None, complete, has_id)


def is_comment(event: SseEvent) -> bool:
    """Whether the event holds comments and no field at all."""
    return all(line.startswith(b":") for line in event.raw.splitlines() if line)


def without_blank_line(raw: bytes) -> bytes:
    """The lines of `raw` as a part of the event after them."""
    return raw.rstrip(_NEWLINES) + newline_of(raw)


def replace_data(raw: bytes, data: bytes) -> bytes:
    """The event `raw` with `data` in place of its data; other fields and comments stay."""
    newline = newline_of(raw)
    lines: list[bytes] = []
    placed = False
    for line in raw.splitlines():
        if _field(line)[0] != b"data":
            lines.append(line)
        elif not placed:
            lines += [b"data: " + part for part in data.split(b"\n")]
            placed = True
    return newline.join(line for line in lines if line) + newline * 2


def build_event(data: bytes) -> bytes:
    """One event that carries `data`, which holds no line end."""
    return b"data: " + data + b"\n\n"


def _field(line: bytes) -> tuple[bytes, bytes]:
    """Name and value; one copy of the value, which may be many MiB."""
    colon = line.find(b":")
    if colon < 0:
        return line, b""
    begin = colon + 2 if line.startswith(b" ", colon + 1) else colon + 1
    return line[:colon], line[begin:]


def newline_of(text: bytes) -> bytes:
    """How the first line of `text` ends; LF if it does not end."""
    found = re.search(rb"\r\n|\n|\r", text)
    return found[0] if found else b"\n"
