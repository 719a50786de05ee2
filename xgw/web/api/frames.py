"""The frames of `/ws`: `{"id", "type", "action", "payload", "timestamp"}`, read strictly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from xgw import clock
from xgw.errors import ApiError, bad_request
from xgw.events import Envelope
from xgw.web.bodies import parse_json
from xgw.web.sockets import text_frame

FIELDS = ("id", "type", "action", "payload", "timestamp")
MAX_ID = 256

Json = dict[str, Any]
Id = str | int | None


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for; `id` is its own, and comes back with the answer."""

    id: Id
    action: str
    payload: Json


class BadFrame(Exception):
    """A frame that is no request: what is wrong with it, and what could be read of it."""

    def __init__(self, refusal: ApiError, id: Id = None, action: str | None = None) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
        self.id = id
        self.action = action


def parse(message: str | bytes) -> Request:
    """The request in a message; BadFrame for anything else."""
    try:
        frame = _object(message)
    except ApiError as refusal:
        raise BadFrame(refusal) from None
    id, action = frame.get("id"), frame.get("action")
    known_id = id if _is_id(id) else None
    known_action = action if isinstance(action, str) else None
    try:
        return _request(frame)
    except ApiError as refusal:
        raise BadFrame(refusal, known_id, known_action) from None


def response(request: Request, payload: Json) -> bytes:
    """The answer to a request."""
    return _frame(request.id, "response", request.action, payload)


def error(refusal: ApiError, id: Id, action: str | None) -> bytes:
    """Why a request was refused: `code` and `message`, as the JSON API's errors have them."""
    return _frame(id, "error", action, refusal.body()["error"])


def notification(action: str, payload: Json) -> bytes:
    """What nobody asked for just now."""
    return _frame(None, "notification", action, payload)


def event(envelope: Envelope) -> bytes:
    """An event as a notification."""
    type = envelope.type
    action = type if type.startswith("session.") else f"session.{type}"
    return notification(action, envelope.to_json())


def _frame(id: Id, type: str, action: str | None, payload: Json) -> bytes:
    values = (id, type, action, payload, clock.to_rfc3339(clock.now()))
    return text_frame(orjson.dumps(dict(zip(FIELDS, values, strict=True))))


def _object(message: str | bytes) -> Json:
    if isinstance(message, bytes):
        raise _wrong("a frame must be a text, not binary")
    frame = parse_json(message.encode(), "frame")
    if not isinstance(frame, dict):
        raise _wrong("a frame must be a JSON object")
    return frame


def _request(frame: Json) -> Request:
    for name in frame:
        if name not in FIELDS:
            raise _wrong(f"a frame has no field {name[:64]!r}", name[:64])
    id, action, payload = frame.get("id"), frame.get("action"), frame.get("payload")
    if not _is_id(id):
        raise _wrong(f"id must be a text of up to {MAX_ID} characters, or a whole number", "id")
    if frame.get("type") != "request":
        raise _wrong("type must be request", "type")
    if not isinstance(action, str):
        raise _wrong("action must be a text", "action")
    if payload is not None and not isinstance(payload, dict):
        raise _wrong("payload must be an object", "payload")
    return Request(id, action, payload or {})


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_ID
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _wrong(message: str, param: str | None = None) -> ApiError:
    return bad_request(message, code="invalid_frame", param=param)
