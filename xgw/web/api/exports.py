"""What was recorded of something, as a document to hand on: what `xgw export` writes."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO

from flask import Blueprint, Response, request

from xgw import errors
from xgw.frozen import frozen
from xgw.portable.chosen import Root
from xgw.portable.definitions import definitions, redactor_of
from xgw.portable.preview import Preview, preview, sample
from xgw.portable.selection import Selection
from xgw.portable.source import Asked, Json
from xgw.portable.writing import DEFAULT, FORMATS, write
from xgw.queries import filters, requests, runs, sessions, steps, turns
from xgw.queries.filters import Filters
from xgw.store.database import Store
from xgw.web.api import edge
from xgw.web.serialize import Row

routes = Blueprint("exports", __name__)

BLOCK = 65536
PARAMETERS = ("format", "bodies", "redact")
SEVERAL = "xgw-export"

FINDERS: dict[str, Callable[[Store, str, str | None], Row | None]] = {
    "session": sessions.find_session,
    "turn": turns.find_turn,
    "run": runs.find_run,
    "step": steps.find_step,
    "request": requests.find_request,
}


@frozen
class Wanted:
    """An export that is asked for; `selection` is None where it is of one thing, `name`."""

    asked: Asked
    format: str
    kind: str
    name: str
    selection: Selection | None = None


def export_one(kind: str, ref: str) -> Response:
    """GET /export/{sessions, turns, runs, steps, requests}/{id}"""
    return download(one(kind, _id(kind, ref)))


def preview_one(kind: str, ref: str) -> Response:
    """GET /export/{sessions, turns, runs, steps, requests}/{id}/preview"""
    return edge.answer(_previewed(one(kind, _id(kind, ref))))


for _kind in FINDERS:
    _path = f"/export/{_kind}s/<ref>"
    routes.add_url_rule(_path, f"export_{_kind}", partial(export_one, _kind))
    routes.add_url_rule(f"{_path}/preview", f"preview_{_kind}", partial(preview_one, _kind))


@routes.get("/export")
def export_all() -> Response:
    """GET /export: all there is, or the sessions that fit the filters"""
    return download(several(_of_sessions(), edge.project()))


@routes.get("/export/preview")
def preview_all() -> Response:
    """GET /export/preview"""
    return edge.answer(_previewed(several(_of_sessions(), edge.project())))


def export_list(of: str) -> Response:
    """GET /export/{turns, requests}: those that fit the filters"""
    return download(several(of, edge.project()))


def preview_list(of: str) -> Response:
    """GET /export/{turns, requests}/preview"""
    return edge.answer(_previewed(several(of, edge.project())))


for _of in ("turns", "requests"):
    routes.add_url_rule(f"/export/{_of}", f"export_{_of}", partial(export_list, _of))
    routes.add_url_rule(f"/export/{_of}/preview", f"preview_{_of}", partial(preview_list, _of))


def one(kind: str, id: str) -> Wanted:
    """What the query asks for of this thing."""
    edge.only(*PARAMETERS)
    asked, format = _read([Root(kind, id)])
    return Wanted(asked, format, kind, id)


def several(of: str | None, project: str | None) -> Wanted:
    """What the query asks for of a list, None for everything, inside of a project."""
    given = tuple(pair for pair in request.args.items(multi=True) if pair[0] not in PARAMETERS)
    wanted = filters.parse(of, given) if of else Filters()
    selection = Selection(_store(), of, given, wanted, project)
    asked, format = _read(None if selection.is_everything else selection, selection.told())
    return Wanted(asked, format, of or "everything", SEVERAL, selection)


def _of_sessions() -> str | None:
    return "sessions" if any(name not in PARAMETERS for name in request.args) else None


def _read(roots: list[Root] | Selection | None, filter: Json | None = None) -> tuple[Asked, str]:
    format = edge.parameter("format", DEFAULT)
    if format not in FORMATS:
        raise errors.unprocessable(f"format must be one of {', '.join(FORMATS)}", param="format")
    config = edge.services().configured()
    redactor = redactor_of(config, on=_redacts())
    return Asked(roots, definitions(config), filter, _flag("bodies"), redactor), format


def _id(kind: str, ref: str) -> str:
    id: str = edge.found(FINDERS[kind](_store(), ref, edge.project()), kind, ref)["id"]
    return id


def _previewed(wanted: Wanted) -> Row:
    """A preview as JSON."""
    seen, covered = previewed(wanted)
    return {
        "object": "export_preview",
        "kind": wanted.kind,
        "id": wanted.name if wanted.selection is None else None,
        "format": wanted.format,
        "covers": covered,
        "bytes": seen.size,
        "parts": [{"name": p.name, "rows": p.rows, "bytes": p.bytes} for p in seen.parts],
        "redaction": {
            "on": wanted.asked.redactor.on,
            "bodies": wanted.asked.bodies,
            "masked": seen.masked,
        },
        "left_out": seen.left_out,
    }


def previewed(wanted: Wanted) -> tuple[Preview, Row | None]:
    """What would leave, and of how many things that tells; None for one thing."""
    if wanted.selection is None:
        return preview(_store(), wanted.asked, wanted.format), None
    found = sample(_store(), wanted.asked, wanted.format, wanted.selection)
    return found.seen, {
        "looked_at": found.looked_at,
        "found": found.found,
        "all_counted": found.all_counted,
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
    text = edge.parameter(name)
    if text not in (None, "true", "false"):
        raise errors.unprocessable(f"{name} must be true or false", param=name)
    return text != "false"


def download(wanted: Wanted) -> Response:
    """All of it is there before any of it is sent: no reader of the store waits for a network."""
    with contextlib.ExitStack() as stack:
        whole = stack.enter_context(tempfile.TemporaryFile())
        try:
            write(_store(), wanted.asked, wanted.format, whole)
        except OSError as error:
            message = f"the server has no room to make the file: {error.strerror or error}"
            raise errors.ApiError(507, "internal", message, code="no_room") from None
        kept = stack.pop_all()
    size = whole.tell()
    whole.seek(0)
    told = FORMATS[wanted.format]
    response = Response(_blocks(whole), mimetype=told.media_type)
    response.call_on_close(kept.close)
    response.content_length = size
    name = f"{wanted.name}{told.suffix}"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["Cache-Control"] = "no-store"
    return response


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(BLOCK):
        yield block
