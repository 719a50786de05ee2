"""HTTP/1.1 as far as the measurements need it: requests, and when an answer is complete."""

from __future__ import annotations

import re

HEAD_END = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

_CHUNK = re.compile(rb"([0-9a-fA-F]+)[^\r]*\r\n")


def get(path: str) -> bytes:
    """A request without a body."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def post(body: bytes, headers: str = "", path: str = "/v1/chat/completions") -> bytes:
    """A JSON request; `headers` are whole lines, each with its line end."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"{headers}Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def ok(content: bytes, content_type: str = "application/json", status: str = "200 OK") -> bytes:
    """An answer with its length."""
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n"
        "\r\n"
    ).encode() + content


def chunk(content: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(content), content)


class Answer:
    """One answer as it comes in: by its length, or by its last chunk."""

    __slots__ = ("_head", "_left", "_parts", "_tail", "status")

    def __init__(self) -> None:
        self.status = 0
        self._head = b""
        self._left: int | None = None
        self._parts: list[bytes] = []
        self._tail = b""

    def feed(self, block: bytes) -> bool:
        """Take in what has arrived; whether that was the end."""
        if not self.status:
            self._head += block
            end = self._head.find(HEAD_END)
            if end < 0:
                return False
            block = self._head[end + 4 :]
            self._head = self._head[: end + 2]
            self.status = int(self._head[9:12])
            length = LENGTH.search(self._head)
            self._left = int(length[1]) if length else None
        self._parts.append(block)
        if self._left is None:
            self._tail = (self._tail + block)[-len(LAST_CHUNK) :]
            return self._tail == LAST_CHUNK
        self._left -= len(block)
        return self._left <= 0

    def body(self) -> bytes:
        """The body, without the marks between its chunks."""
        raw = b"".join(self._parts)
        if self._left is not None:
            return raw
        pieces, at = [], 0
        while (mark := _CHUNK.match(raw, at)) and (size := int(mark[1], 16)):
            pieces.append(raw[mark.end() : mark.end() + size])
            at = mark.end() + size + 2
        return b"".join(pieces)
