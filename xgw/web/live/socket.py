"""WS /ui/socket: keeps one open page up to date. Committed events → partials → one message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from flask import request

from xgw import clock, errors
from xgw.queries import events
from xgw.web.api.feed import Feed, Watch
from xgw.web.keys import Pass
from xgw.web.live.messages import RELOAD, build_message
from xgw.web.live.notices import Notices
from xgw.web.live.screen import Screen, Swap
from xgw.web.sockets import (
    IDLE_SECONDS,
    NORMAL,
    POLICY_VIOLATION,
    SERVICE_RESTART,
    TRY_AGAIN_LATER,
    Outcome,
    Sockets,
)

CSRF_COOKIE = "xgw_csrf"

if TYPE_CHECKING:
    from xgw.events import Envelope
    from xgw.web.app import Services

FAR_BEHIND = 5000
"""Events that a page has missed, above which it is opened anew instead."""

MAX_MESSAGE = 4096
"""A page says nothing over its socket."""

FULL = 503

OpenScreen = Callable[["Services", Mapping[str, str]], Screen]


def add_socket(sockets: Sockets, services: Services, open_screen: OpenScreen) -> None:
    """Serve `/ui/socket`; `open_screen` makes the screen that a query asks for."""

    def keep_up_to_date(ws: Any) -> Outcome:
        """WS /ui/socket?page=…&after=SEQ"""
        ws.max_message_size = MAX_MESSAGE
        try:
            with services.watchers.taken():
                screen = open_screen(services, _query())
                return _serve(ws, services, screen, _after(request.args)), None
        except errors.ApiError as refusal:
            is_full = refusal.status == FULL
            return TRY_AGAIN_LATER if is_full else POLICY_VIOLATION, refusal.message[:100]

    sockets.add("/ui/socket", keep_up_to_date)


def _query() -> dict[str, str]:
    return {**request.args.to_dict(), "csrf": request.cookies.get(CSRF_COOKIE, "")}


def _serve(ws: Any, services: Services, screen: Screen, after: int) -> int:
    """Until the page is left, or the server ends; the code to close with."""
    newest = max(services.hub.newest, events.newest(services.store))
    if after > newest or (newest - after > FAR_BEHIND and _watches_all(screen)):
        ws.send(RELOAD)
        return NORMAL
    feed = Feed(services.store, services.hub, services.recorder.live, Watch(screen.wanted, after))
    notices = Notices(services)
    admitted = Pass(partial(services.keyring.admit, request.environ))
    drawn_at = 0.0
    for batches in feed.batches(IDLE_SECONDS):
        batch = [envelope for one in batches for envelope in one.envelopes]
        ws.input_buffer.clear()
        ws.event.clear()
        if not ws.connected:
            return NORMAL
        if not _is_admitted(admitted):
            ws.send(RELOAD)
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


def _is_admitted(admitted: Pass) -> bool:
    """Whether the page would still be shown: opened anew it says what opens it now."""
    try:
        admitted.check()
    except errors.ApiError:
        return False
    return True


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
