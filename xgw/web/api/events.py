"""Events as they happen, as server-sent events."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import orjson
from flask import Blueprint, Response, request

from xgw import errors
from xgw.errors import ApiError
from xgw.events import TYPES, Envelope
from xgw.queries import events
from xgw.web.api import edge, fields, sessions
from xgw.web.api.feed import Feed, View, Wanted, Watch
from xgw.web.keys import Pass

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

routes = Blueprint("events", __name__)


@routes.get("/events")
def stream_events() -> Response:
    """GET /events"""
    return _stream(None)


@routes.get("/sessions/<ref>/events")
def stream_session_events(ref: str) -> Response:
    """GET /sessions/{id or key}/events"""
    return _stream(sessions.find(ref)["id"])


def _stream(session_id: str | None) -> Response:
    edge.only("after", "types")
    running = edge.services()
    start = _cursor(newest_seq())
    watch = Watch(Wanted(edge.project(), session_id, _types()), start)
    if request.method == "HEAD":
        return Response(mimetype="text/event-stream", headers=HEADERS)
    if running.imported is not None:
        told = _told(View(running.store, running.recorder.live, watch))
        return Response(told, mimetype="text/event-stream", headers=HEADERS)
    feed = Feed(running.store, running.hub, running.recorder.live, watch)
    seconds = running.config.config.server.heartbeat_seconds
    frames = _frames(feed, start, seconds, edge.watching())
    running.watchers.take()
    response = Response(frames, mimetype="text/event-stream", headers=HEADERS)
    response.call_on_close(running.watchers.leave)
    return response


def _told(view: View) -> Iterator[bytes]:
    """What was told of an import, to its end: nothing more happens there."""
    yield b": imported\n\n"
    for batches in view.pages():
        yield b"".join([batch.encoded(frame) for batch in batches])


def _frames(feed: Feed, start: int, heartbeat_seconds: float, admitted: Pass) -> Iterator[bytes]:
    """An id without an event comes first: a reader that got nothing else resumes from there.

    Nothing more comes once its key is revoked: it is told so when it connects again.
    """
    yield b": connected\nid: %d\n\n" % start
    for batches in feed.batches(heartbeat_seconds):
        try:
            admitted.check()
        except ApiError:
            return
        yield b"".join([batch.encoded(frame) for batch in batches]) or b": waiting\n\n"


def frame(envelope: Envelope) -> bytes:
    id = b"" if envelope.seq is None else b"id: %d\n" % envelope.seq
    name, body = envelope.type.encode(), orjson.dumps(envelope.to_json())
    return b"%bevent: %b\ndata: %b\n\n" % (id, name, body)


def _cursor(newest: int) -> int:
    """The `seq` to go on after: without one, the newest. ApiError 409 if it has not been yet.

    Who gets nothing before is told of that one first, and of all that comes after it.
    """
    name = "Last-Event-ID" if request.headers.get("Last-Event-ID") else "after"
    text = request.headers.get("Last-Event-ID") or edge.parameter("after")
    if text is None:
        return newest
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > fields.MAX_SEQ:
        raise errors.unprocessable(f"{name} must be the seq of an event, or 0", param=name)
    return reached(name, int(text), newest)


def newest_seq() -> int:
    """The `seq` of the newest event."""
    running = edge.services()
    return max(running.hub.newest, events.newest(running.store))


def reached(name: str, seq: int, newest: int) -> int:
    """This `seq`; ApiError 409 if it has not been yet."""
    if seq > newest:
        message = f"{name} {seq} is ahead of the newest event {newest}"
        raise errors.conflict(message, code="cursor_ahead")
    return seq


def _types() -> frozenset[str] | None:
    """The types that `types` names, with `*` for any letters; None is all of them."""
    text = edge.parameter("types")
    if text is None:
        return None
    wanted: set[str] = set()
    for pattern in text.split(","):
        named = {type for type in TYPES if fnmatchcase(type, pattern.strip())}
        if not named:
            raise errors.unprocessable(
                f"types: {pattern.strip()[:64]!r} is no type of event", param="types"
            )
        wanted |= named
    return frozenset(wanted)
