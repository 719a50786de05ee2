"""HTTP on one connection of the demo: request bodies, JSON answers, errors, events of a stream."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import orjson

from xgw.errors import ApiError, bad_request, too_large
from xgw.providers.demo.completion import fresh_id
from xgw.providers.demo.pace import ClientLeft

MAX_BODY_BYTES = 64 << 20
MAX_CHUNK_LINE = 1024

_log = logging.getLogger(__name__)


class Connection(BaseHTTPRequestHandler):
    """One connection: requests one after another until either side closes it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Into the log of the program instead of onto stderr."""
        _log.debug(format, *args)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the parser of the standard library refuses, in the error shape."""
        self.close_connection = True
        message = message or "The request is malformed."
        self.send_refusal(ApiError(code, "invalid_request_error", message))

    def send_refusal(self, refusal: ApiError) -> None:
        """An error in the error shape."""
        self.send_json(refusal.status, refusal.body(), refusal.headers)

    def send_json(
        self, status: int, body: dict[str, Any], headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        """A whole JSON answer, in one write."""
        encoded = orjson.dumps(body)
        extra = [*headers, ("Content-Length", str(len(encoded)))]
        head = self.head(status, "application/json", extra)
        self.wfile.write(head if self.command == "HEAD" else head + encoded)

    def begin_stream(self) -> None:
        """The head of an event stream; chunked, or until the end of the connection in HTTP/1.0."""
        self._chunked = self.request_version >= "HTTP/1.1"
        self.close_connection = self.close_connection or not self._chunked
        extra = [("Transfer-Encoding", "chunked")] if self._chunked else []
        extra.append(("Cache-Control", "no-cache"))
        self.wfile.write(self.head(200, "text/event-stream; charset=utf-8", extra))

    def write_event(self, event: bytes) -> None:
        """One event of a stream."""
        line = b"data: %b\n\n" % event
        self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line) if self._chunked else line)

    def end_stream(self) -> None:
        """The proper end of a stream's body."""
        if self._chunked:
            self.wfile.write(b"0\r\n\r\n")

    def break_off(self) -> None:
        """Closes the connection in the middle of a body."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def head(self, status: int, media_type: str, headers: list[tuple[str, str]]) -> bytes:
        """Status line and headers of an answer."""
        reason = self.responses[status][0] if status in self.responses else "Error"
        lines = [
            f"HTTP/1.1 {status} {reason}",
            f"Date: {self.date_time_string()}",
            f"Content-Type: {media_type}",
            f"X-Request-Id: {fresh_id('req_demo_')}",
            *(f"{name}: {value}" for name, value in headers),
        ]
        if self.close_connection:
            lines.append("Connection: close")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")

    def read_body(self) -> bytes:
        """The body of the request, chunked or by its length; ApiError where it is neither."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return b"".join(self._chunks())
        length = self.headers.get("Content-Length") or "0"
        if not length.isdigit():
            self.close_connection = True
            raise bad_request("The Content-Length is not a number.")
        return self._read(int(length))

    def _chunks(self) -> Iterator[bytes]:
        total = 0
        while True:
            line = self.rfile.readline(MAX_CHUNK_LINE).partition(b";")[0].strip()
            try:
                size = int(line, 16)
            except ValueError:
                self.close_connection = True
                raise bad_request("A chunk of the body has no size.") from None
            total += size
            if size == 0:
                while self.rfile.readline(MAX_CHUNK_LINE).strip():
                    pass
                return
            yield self._read(size, total)
            self.rfile.readline(MAX_CHUNK_LINE)

    def _read(self, size: int, total: int | None = None) -> bytes:
        if max(size, total or 0) > MAX_BODY_BYTES:
            self.close_connection = True
            raise too_large("The body is too large for the demo.")
        body = self.rfile.read(size)
        if len(body) < size:
            raise ClientLeft
        return body
