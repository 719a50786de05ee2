"""The provider that plays: its threads, its routes, and what is done to a connection."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import orjson

from xgw import clock
from xgw.errors import ApiError, not_found
from xgw.portable.replay.recordings import PATHS, Recorded
from xgw.portable.replay.reel import Reel
from xgw.portable.replay.scripts import Ending, Script, as_client, as_upstream
from xgw.providers.demo.connection import Connection
from xgw.providers.demo.pace import Pace

HOST = "127.0.0.1"
OWN_NAMES = frozenset({"127.0.0.1", "localhost"})
LONGEST_WAIT = 86_400.0
"""Seconds; a bundle may say anything."""


_log = logging.getLogger(__name__)


class Player:
    """Serves a reel. `speed` divides every wait; 0 is without any."""

    def __init__(
        self, reel: Reel, listener: socket.socket, *, speed: float = 1.0, as_upstream: bool = False
    ) -> None:
        self._server = _Server(reel, listener, speed, as_upstream)
        self._thread = threading.Thread(target=self._accept, name="xgw-replay", daemon=True)

    def start(self) -> None:
        """Requests are answered from here on."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port and every connection; what is being answered breaks off."""
        self._server.stopping.set()
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, self._server.server_port), timeout=5).close()
        self._thread.join(5)
        self._server.server_close()
        self._server.leave_all()

    def _accept(self) -> None:
        while not self._server.stopping.is_set():
            self._server.handle_request()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self, reel: Reel, listener: socket.socket, speed: float, as_upstream: bool
    ) -> None:
        address = listener.getsockname()[:2]
        super().__init__(address, _Exchange, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_address = address
        self.server_port = address[1]
        self.reel = reel
        self.speed = speed
        self.as_upstream = as_upstream
        self.stopping = threading.Event()
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a connection ended in an error", exc_info=True)

    def leave_all(self) -> None:
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def script_of(self, recorded: Recorded, sent: Any) -> Script:
        if self.as_upstream:
            return as_upstream(recorded)
        options = sent.get("stream_options") if isinstance(sent, dict) else None
        wants_usage = isinstance(options, dict) and options.get("include_usage") is True
        return as_client(recorded, wants_usage=wants_usage)


class _Exchange(Connection):
    server: _Server

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, act: Callable[[str, float], None]) -> None:
        begun = clock.monotonic()
        try:
            self._refuse_foreign()
            act(unquote(self.path.partition("?")[0]).rstrip("/"), begun)
        except ApiError as refusal:
            self.send_refusal(refusal)
        except ConnectionError:
            self.close_connection = True

    def _refuse_foreign(self) -> None:
        """ApiError 421 under another name: a page elsewhere may have had it point here."""
        name = self.headers.get("Host", HOST).rpartition(":")[0] or self.headers.get("Host", HOST)
        if name.lower() not in OWN_NAMES:
            self.close_connection = True
            message = f"this provider is at {HOST}, not at {name[:256]!r}"
            raise ApiError(421, "invalid_request_error", message, code="misdirected_request")

    def _get(self, path: str, begun: float) -> None:
        status = self.server.reel.status()
        if path == "/replay":
            self.send_json(200, {**status, "speed": self.server.speed, "as": self._mode})
        elif path.endswith("/models"):
            self.send_json(200, {"object": "list", "data": _models(self.server.reel.models)})
        else:
            raise _nothing("GET", path)

    @property
    def _mode(self) -> str:
        return "upstream" if self.server.as_upstream else "client"

    def _post(self, path: str, begun: float) -> None:
        sent = _parsed(self.read_body())
        asked = next((known for known in PATHS if path.endswith(known)), None)
        if asked is None:
            raise _nothing("POST", path)
        recording, recorded = self.server.reel.take(asked, sent)
        waited = 0 if self.server.as_upstream else recording.waited_ms
        self._play(self.server.script_of(recorded, sent), begun, waited)

    def _play(self, script: Script, begun: float, waited_ms: int) -> None:
        with Pace(self.connection, self.server.stopping, 1.0) as pace:
            headed = False
            for ms, content in script.frames:
                self._wait(pace, begun, waited_ms + ms)
                if not headed and script.status is not None:
                    headed = True
                    self.wfile.write(self._head_of(script))
                self.wfile.write(self._chunk(content) if script.is_stream else content)
            self._wait(pace, begun, waited_ms + script.ends_ms)
            if not headed and script.status is not None:
                self.wfile.write(self._head_of(script))
            self._end(script, pace)

    def _wait(self, pace: Pace, begun: float, ms: int) -> None:
        if self.server.speed:
            left = begun + ms / 1000 / self.server.speed - clock.monotonic()
            pace.for_seconds(min(max(0.0, left), LONGEST_WAIT))

    def _head_of(self, script: Script) -> bytes:
        self._is_chunked = script.is_stream and self.request_version >= "HTTP/1.1"
        if self._is_chunked:
            length = ("Transfer-Encoding", "chunked")
        elif script.is_stream:
            self.close_connection = True
            length = ("Connection", "close")
        else:
            length = ("Content-Length", str(sum(len(content) for _, content in script.frames)))
        return self._lines(script.status or 200, [*script.headers, length])

    def _lines(self, status: int, headers: list[tuple[str, str]]) -> bytes:
        reason = self.responses[status][0] if status in self.responses else "Status"
        lines = [f"HTTP/1.1 {status} {reason}", f"Date: {self.date_time_string()}"]
        lines += [f"{_plain(name)}: {_plain(value)}" for name, value in headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")

    def _chunk(self, content: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(content), content) if self._is_chunked else content

    def _end(self, script: Script, pace: Pace) -> None:
        ending: Ending = script.ending
        if ending == "whole":
            if script.is_stream:
                self.end_stream()
            return
        if ending == "silence":
            pace.silence()
        if ending == "reset":
            # Closed without lingering, the other side hears of a reset.
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
            self.connection.close()
            return
        self.break_off()

    def end_stream(self) -> None:
        """The proper end of a stream's body."""
        if self._is_chunked:
            self.wfile.write(b"0\r\n\r\n")

    _is_chunked = False


def _nothing(method: str, path: str) -> ApiError:
    where = "the base URL for clients is this address with /v1, and GET /replay tells how far it is"
    message = f"there is nothing at {method} {path[:256] or '/'}: {where}"
    return not_found(message, code="unknown_url")


def _plain(text: str) -> str:
    """A header's part in one line, whatever a bundle has there."""
    return text.replace("\r", " ").replace("\n", " ")


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body or b"null")
    except orjson.JSONDecodeError:
        return body.decode(errors="replace")


def _models(names: list[str]) -> list[dict[str, Any]]:
    return [{"id": name, "object": "model", "created": 0, "owned_by": "replay"} for name in names]
