"""What was recorded of something, as a document to hand on: what `xgw export` writes."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

from flask import Blueprint, Response, request

from xgw import errors
from xgw.portable.chosen import Root
from xgw.portable.definitions import definitions, redactor_of
from xgw.portable.preview import Preview, preview
from xgw.portable.source import Asked
from xgw.portable.writing import DEFAULT, FORMATS, write
from xgw.queries import requests, runs, sessions, steps, turns
from xgw.store.database import Store
from xgw.web.api import edge
from xgw.web.serialize import Row

routes = Blueprint("exports", __name__)

BLOCK = 65536
PARAMETERS = ("format", "bodies", "redact")


FINDERS: dict[str, Callable[[Store, str, str | None], Row | None]] = {
    "session": sessions.find_session,
    "turn": turns.find_turn,
    "run": runs.find_run,
    "step": steps.find_step,
    "request": requests.find_request,
}


@routes.get("/export/sessions/<session>")
def export_session(session: str) -> Response:
    """GET /export/sessions/{session}"""
    return download(*_asked("session", session))


@routes.get("/export/turns/<id>")
def export_turn(id: str) -> Response:
    """GET /export/turns/{id}"""
    return download(*_asked("turn", id))


@routes.get("/export/runs/<id>")
def export_run(id: str) -> Response:
    """GET /export/runs/{id}"""
    return download(*_asked("run", id))


@routes.get("/export/steps/<id>")
def export_step(id: str) -> Response:
    """GET /export/steps/{id}"""
    return download(*_asked("step", id))


@routes.get("/export/requests/<id>")
def export_request(id: str) -> Response:
    """GET /export/requests/{id}"""
    return download(*_asked("request", id))


@routes.get("/export/sessions/<session>/preview")
def preview_session(session: str) -> Response:
    """GET /export/sessions/{session}/preview"""
    return _preview("session", session)


@routes.get("/export/turns/<id>/preview")
def preview_turn(id: str) -> Response:
    """GET /export/turns/{id}/preview"""
    return _preview("turn", id)


@routes.get("/export/runs/<id>/preview")
def preview_run(id: str) -> Response:
    """GET /export/runs/{id}/preview"""
    return _preview("run", id)


@routes.get("/export/steps/<id>/preview")
def preview_step(id: str) -> Response:
    """GET /export/steps/{id}/preview"""
    return _preview("step", id)


@routes.get("/export/requests/<id>/preview")
def preview_request(id: str) -> Response:
    """GET /export/requests/{id}/preview"""
    return _preview("request", id)


def read_asked(kind: str, id: str) -> tuple[Asked, str]:
    """What the query asks for of this thing, and the format."""
    edge.only(*PARAMETERS)
    format = request.args.get("format", DEFAULT)
    if format not in FORMATS:
        raise errors.unprocessable(f"format must be one of {', '.join(FORMATS)}", param="format")
    config = edge.services().configured()
    redactor = redactor_of(config, on=_redacts())
    return Asked([Root(kind, id)], definitions(config), None, _flag("bodies"), redactor), format


def _asked(kind: str, ref: str) -> tuple[Asked, str]:
    row = FINDERS[kind](_store(), ref, edge.project())
    return read_asked(kind, edge.found(row, kind, ref)["id"])


def _preview(kind: str, ref: str) -> Response:
    asked, format = _asked(kind, ref)
    return edge.answer(preview_of(asked, preview(_store(), asked, format), format))


def preview_of(asked: Asked, seen: Preview, format: str) -> Row:
    """A preview as JSON."""
    (root,) = asked.roots or ()
    return {
        "object": "export_preview",
        "kind": root.kind,
        "id": root.id,
        "format": format,
        "bytes": seen.size,
        "parts": [{"name": p.name, "rows": p.rows, "bytes": p.bytes} for p in seen.parts],
        "redaction": {
            "on": asked.redactor.on,
            "bodies": asked.bodies,
            "masked": seen.masked,
        },
        "left_out": seen.left_out,
    }


def _store() -> Store:
    return edge.services().store


def _redacts() -> bool:
    """ApiError 403 for a client key that asks for what is masked otherwise."""
    wanted = _flag("redact")
    if not wanted and not edge.caller().sees_all:
        raise errors.forbidden("only the server's token opens exports that are not redacted")
    return wanted


def _flag(name: str) -> bool:
    text = request.args.get(name)
    if text not in (None, "true", "false"):
        raise errors.unprocessable(f"{name} must be true or false", param=name)
    return text != "false"


def download(asked: Asked, format: str) -> Response:
    """All of it is there before any of it is sent: no reader of the store waits for a network."""
    with contextlib.ExitStack() as stack:
        whole = stack.enter_context(tempfile.TemporaryFile())
        write(_store(), asked, format, whole)
        kept = stack.pop_all()
    size = whole.tell()
    whole.seek(0)
    told = FORMATS[format]
    response = Response(_blocks(whole), mimetype=told.media_type)
    response.call_on_close(kept.close)
    response.content_length = size
    (root,) = asked.roots or ()
    response.headers["Content-Disposition"] = f'attachment; filename="{root.id}{told.suffix}"'
    response.headers["Cache-Control"] = "no-store"
    return response


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(BLOCK):
        yield block
