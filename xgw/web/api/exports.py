"""What was recorded of something, as a document to hand on: what `xgw export` writes."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

from flask import Blueprint, Response, request

from xgw import errors
from xgw.portable.chosen import Root
from xgw.portable.definitions import definitions, redactor_of
from xgw.portable.source import Asked
from xgw.portable.writing import DEFAULT, FORMATS, write
from xgw.queries import requests, runs, sessions, steps, turns
from xgw.store.database import Store
from xgw.web.api import edge
from xgw.web.serialize import Row

routes = Blueprint("exports", __name__)

BLOCK = 65536
PARAMETERS = ("format", "bodies", "redact")


@routes.get("/export/sessions/<session>")
def export_session(session: str) -> Response:
    """GET /export/sessions/{session}"""
    return _answer("session", session, sessions.find_session(_store(), session, edge.project()))


@routes.get("/export/turns/<id>")
def export_turn(id: str) -> Response:
    """GET /export/turns/{id}"""
    return _answer("turn", id, turns.find_turn(_store(), id, edge.project()))


@routes.get("/export/runs/<id>")
def export_run(id: str) -> Response:
    """GET /export/runs/{id}"""
    return _answer("run", id, runs.find_run(_store(), id, edge.project()))


@routes.get("/export/steps/<id>")
def export_step(id: str) -> Response:
    """GET /export/steps/{id}"""
    return _answer("step", id, steps.find_step(_store(), id, edge.project()))


@routes.get("/export/requests/<id>")
def export_request(id: str) -> Response:
    """GET /export/requests/{id}"""
    return _answer("request", id, requests.find_request(_store(), id, edge.project()))


def _store() -> Store:
    return edge.services().store


def _answer(kind: str, ref: str, row: Row | None) -> Response:
    edge.only(*PARAMETERS)
    format = request.args.get("format", DEFAULT)
    if format not in FORMATS:
        raise errors.unprocessable(f"format must be one of {', '.join(FORMATS)}", param="format")
    root = Root(kind, edge.found(row, kind, ref)["id"])
    config = edge.services().configured()
    redactor = redactor_of(config, on=_redacts())
    return _download(Asked([root], definitions(config), None, _flag("bodies"), redactor), format)


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


def _download(asked: Asked, format: str) -> Response:
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
