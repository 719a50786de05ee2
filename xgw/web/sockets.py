"""Websockets: how they are opened and closed, for the page's socket and the API's alike.

simple_websocket reads in a thread of its own, whoever serves a socket sends from another.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from flask import Flask, request
from flask_sock import Sock
from simple_websocket import ConnectionClosed
from werkzeug.datastructures import Headers
from wsproto.utilities import LocalProtocolError

from xgw import clock
from xgw.errors import ApiError, bad_request
from xgw.web.refusals import refusal_of

PING_SECONDS = 25
SEND_SECONDS = 30.0
"""A client that takes nothing for so long is cut."""

IDLE_SECONDS = 1.0
"""How soon a socket that was left gives its place back."""

LINGER_SECONDS = 1.0
"""For so long a client may go on sending before the connection goes: or it would not see why."""

MAX_MESSAGE = 1 << 20
"""Bytes of a message; a longer one closes the socket."""

VERSION = "13"
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==")

NORMAL, POLICY_VIOLATION, MESSAGE_TOO_BIG = 1000, 1008, 1009
INTERNAL_ERROR, SERVICE_RESTART, TRY_AGAIN_LATER = 1011, 1012, 1013

Outcome = tuple[int, str | None]
"""The code to close with, and words for people."""

Converse = Callable[[Any], Outcome]
"""Serves one socket until it is to be closed."""

GONE = (ConnectionClosed, LocalProtocolError, OSError)
"""What sending raises once the other end has left."""


class SteadySocket:
    """A socket for two threads: what one sends is whole before the other's begins, or it ends."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        sock.settimeout(SEND_SECONDS)

    def send(self, content: bytes) -> int:
        """All of it; OSError, and no connection any more, if it is not taken in time."""
        with self._lock:
            try:
                self._sock.sendall(content)
            except OSError:
                with contextlib.suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)
                raise
        return len(content)

    def close(self) -> None:
        """Close once the other end has: what it still sends would throw away what it was told."""
        until = clock.monotonic() + LINGER_SECONDS
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
            while (left := until - clock.monotonic()) > 0:
                self._sock.settimeout(left)
                if not self._sock.recv(1 << 16):
                    break
        self._sock.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class Bell(threading.Event):
    """What simple_websocket's thread sets for a message, and at the end; `ring` is called too."""

    def __init__(self) -> None:
        super().__init__()
        self.ring: Callable[[], None] = lambda: None

    def set(self) -> None:
        super().set()
        self.ring()


class Sockets:
    """The websockets of an application."""

    def __init__(self, app: Flask) -> None:
        self._app = app
        self._sock = Sock(app)
        app.config["SOCK_SERVER_OPTIONS"] = {
            "ping_interval": PING_SECONDS,
            "max_message_size": MAX_MESSAGE,
            "event_class": Bell,
        }
        app.before_request(_steady)

    def add(
        self,
        path: str,
        converse: Converse,
        admit: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        """Have `converse` serve the sockets at `path`, each inside of an `admit()`.

        An ApiError of that is answered instead of the handshake.
        """

        def serve(ws: Any) -> None:
            close(ws, *_outcome(ws, converse))

        self._sock.route(path, endpoint=path)(serve)
        # Flask-Sock shakes hands before it calls anything: what may refuse stands around that.
        opened = self._app.view_functions[path]

        def admitted() -> Any:
            _check_handshake(request.headers)
            with admit():
                return opened()

        self._app.view_functions[path] = admitted


def send(ws: Any, frames: bytes) -> None:
    """Send whole frames; one of GONE if nobody is there any more."""
    if not ws.connected:
        raise ConnectionClosed(ws.close_reason, ws.close_message)
    ws.sock.send(frames)


def text_frame(text: bytes) -> bytes:
    """A whole text message as a server sends it: the same bytes for everyone who gets it."""
    length = len(text)
    if length < 126:
        return b"\x81%c%b" % (length, text)
    if length < 1 << 16:
        return b"\x81\x7e%b%b" % (length.to_bytes(2), text)
    return b"\x81\x7f%b%b" % (length.to_bytes(8), text)


def close(ws: Any, code: int, words: str | None = None) -> None:
    """Close, and wait a little for the other end to have seen it."""
    with contextlib.suppress(*GONE):
        ws.close(code, words)
    # Or werkzeug answers over the open connection, and a browser sees a fault.
    ws.thread.join(2 * LINGER_SECONDS)
    with contextlib.suppress(OSError):
        ws.sock.shutdown(socket.SHUT_WR)


def _check_handshake(headers: Headers) -> None:
    """ApiError for a handshake that cannot be met (RFC 6455, 4.2); wsproto would raise its own."""
    if headers.get("Sec-WebSocket-Version", "").strip() != VERSION:
        raise ApiError(
            426,
            "invalid_request_error",
            f"only version {VERSION} of the websocket protocol is spoken here",
            code="websocket_version",
            headers=(("Sec-WebSocket-Version", VERSION), ("Upgrade", "websocket")),
        )
    if not _KEY.fullmatch(headers.get("Sec-WebSocket-Key", "").strip()):
        raise bad_request("Sec-WebSocket-Key is not 16 bytes in base64", code="websocket_key")


def _outcome(ws: Any, converse: Converse) -> Outcome:
    try:
        return converse(ws)
    except GONE:
        return NORMAL, None
    except Exception as fault:  # noqa: BLE001 - around one socket: its client comes back
        refusal_of(fault, f"the websocket at {request.path}")
        return INTERNAL_ERROR, None


def _steady() -> None:
    """Before a handshake: both threads of a websocket send through one lock."""
    if request.url_rule is None or not request.url_rule.websocket:
        return
    environ = request.environ
    # Compressing what goes to a client on the same machine costs more than it saves.
    environ.pop("HTTP_SEC_WEBSOCKET_EXTENSIONS", None)
    for name in ("gunicorn.socket", "werkzeug.socket"):
        if name in environ:
            environ[name] = SteadySocket(environ[name])
