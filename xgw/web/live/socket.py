"""WS /ui/socket: keeps one open page up to date. Committed events → partials → one message."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flask import Flask, request
from flask_sock import Sock
from simple_websocket import ConnectionClosed

from xgw import clock, errors
from xgw.queries import events
from xgw.web.api.feed import Feed, Watch
from xgw.web.live.messages import RELOAD, build_message
from xgw.web.live.notices import Notices
from xgw.web.live.screen import Screen, Swap

CSRF_COOKIE = "xgw_csrf"

if TYPE_CHECKING:
    from xgw.events import Envelope
    from xgw.web.app import Services

PING_SECONDS = 25
SEND_SECONDS = 30.0
"""A browser that takes nothing for so long is cut; it comes back by itself."""

IDLE_SECONDS = 1.0
"""How soon a page that was left gives its place back."""

FAR_BEHIND = 5000
"""Events that a page has missed, above which it is opened anew instead."""

MAX_MESSAGE = 4096
NORMAL, POLICY_VIOLATION, INTERNAL_ERROR, SERVICE_RESTART, TRY_AGAIN_LATER = (
    1000,
    1008,
    1011,
    1012,
    1013,
)
FULL = 503

OpenScreen = Callable[["Services", Mapping[str, str]], Screen]

log = logging.getLogger("xgw.web")


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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def add_socket(app: Flask, services: Services, open_screen: OpenScreen) -> None:
    """Serve `/ui/socket` in `app`; `open_screen` makes the screen that a query asks for."""
    sock = Sock(app)
    app.config["SOCK_SERVER_OPTIONS"] = {
        "ping_interval": PING_SECONDS,
        "max_message_size": MAX_MESSAGE,
    }
    app.before_request(_steady)

    def keep_up_to_date(ws: Any) -> None:
        """WS /ui/socket?page=…&after=SEQ"""
        code, words = _outcome(ws, services, open_screen)
        with contextlib.suppress(ConnectionClosed, OSError):
            ws.close(code, words)
        # Or werkzeug answers over the open connection, and the browser sees a fault.
        ws.thread.join(IDLE_SECONDS)
        with contextlib.suppress(OSError):
            ws.sock.shutdown(socket.SHUT_WR)

    sock.route("/ui/socket")(keep_up_to_date)


def _outcome(ws: Any, services: Services, open_screen: OpenScreen) -> tuple[int, str | None]:
    """Serve the page; how its socket is to be closed."""
    try:
        with services.watchers.taken():
            screen = open_screen(services, _query())
            return _serve(ws, services, screen, _after(request.args)), None
    except errors.ApiError as refusal:
        is_full = refusal.status == FULL
        return TRY_AGAIN_LATER if is_full else POLICY_VIOLATION, refusal.message[:100]
    except (ConnectionClosed, OSError):
        return NORMAL, None
    except Exception:  # around a subscriber: the page comes back, and is drawn anew
        log.exception("a page's socket failed")
        return INTERNAL_ERROR, None


def _query() -> dict[str, str]:
    return {**request.args.to_dict(), "csrf": request.cookies.get(CSRF_COOKIE, "")}


def _steady() -> None:
    """Before a handshake: both threads of a websocket send through one lock."""
    environ = request.environ
    if environ.get("PATH_INFO") != "/ui/socket":
        return
    # Compressing what goes to a browser on the same machine costs more than it saves.
    environ.pop("HTTP_SEC_WEBSOCKET_EXTENSIONS", None)
    for name in ("gunicorn.socket", "werkzeug.socket"):
        if name in environ:
            environ[name] = SteadySocket(environ[name])


def _serve(ws: Any, services: Services, screen: Screen, after: int) -> int:
    """Until the page is left, or the server ends; the code to close with."""
    newest = max(services.hub.newest, events.newest(services.store))
    if after > newest or (newest - after > FAR_BEHIND and _watches_all(screen)):
        ws.send(RELOAD)
        return NORMAL
    feed = Feed(services.store, services.hub, services.recorder.live, Watch(screen.wanted, after))
    notices = Notices(services)
    drawn_at = 0.0
    for batches in feed.batches(IDLE_SECONDS):
        batch = [envelope for one in batches for envelope in one.envelopes]
        ws.input_buffer.clear()
        ws.event.clear()
        if not ws.connected:
            return NORMAL
        if any(envelope.type == "stream.lagged" for envelope in batch):
            return TRY_AGAIN_LATER
        _send(ws, screen, batch, notices.changed())
        if not batch:
            continue
        # What happens meanwhile is drawn together, each part once: the mailbox holds it.
        rest = screen.pause - (clock.monotonic() - drawn_at)
        drawn_at = clock.monotonic()
        if rest > 0:
            ws.event.wait(rest)
            drawn_at = clock.monotonic()
    return SERVICE_RESTART


def _watches_all(screen: Screen) -> bool:
    return screen.wanted.session_id is None and screen.wanted.turn_id is None


def _send(ws: Any, screen: Screen, batch: list[Envelope], notices: list[Swap]) -> None:
    seq = None
    for envelope in batch:
        screen.note(envelope)
        seq = envelope.seq if envelope.seq is not None else seq
    swaps = [*notices, *(screen.draw() if batch else ())]
    deltas = [envelope for envelope in batch if envelope.type == "step.delta"]
    if seq is not None or swaps or deltas:
        ws.send(build_message(seq, swaps, deltas))


def _after(args: Mapping[str, str]) -> int:
    text = args.get("after", "")
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise errors.unprocessable("after must be the seq of an event, or 0", param="after")
