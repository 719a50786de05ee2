"""Pages: what an export of a session, a turn or a request would hold, and the export as a file."""

from __future__ import annotations

from flask import Blueprint, Response

from xgw import errors
from xgw.portable.preview import preview
from xgw.portable.writing import FORMATS
from xgw.web.api import exports
from xgw.web.pages import frame

routes = Blueprint("exports", __name__)

WORDS = {
    "json": "everything, for tools and for opening it in another xgw",
    "jsonl": "the same, a row a line",
    "markdown": "a report to read",
    "html": "a report to read and to print, in one page",
    "curl": "the requests as a shell script, to be sent again",
    "python": "the requests as a program, to be sent again",
    "openai": "the conversation, for fine-tuning and evals",
}


@routes.get("/ui/sessions/<id>/export")
def show_session(id: str) -> Response:
    """GET /ui/sessions/REF/export?format=&bodies=&redact="""
    return _show("session", id)


@routes.get("/ui/turns/<id>/export")
def show_turn(id: str) -> Response:
    """GET /ui/turns/ID/export?format=&bodies=&redact="""
    return _show("turn", id)


@routes.get("/ui/requests/<id>/export")
def show_request(id: str) -> Response:
    """GET /ui/requests/ID/export?format=&bodies=&redact="""
    return _show("request", id)


@routes.get("/ui/sessions/<id>/export/file")
def session_file(id: str) -> Response:
    """GET /ui/sessions/REF/export/file: the same parameters"""
    return exports.download(*exports.read_asked("session", _find("session", id)))


@routes.get("/ui/turns/<id>/export/file")
def turn_file(id: str) -> Response:
    """GET /ui/turns/ID/export/file: the same parameters"""
    return exports.download(*exports.read_asked("turn", _find("turn", id)))


@routes.get("/ui/requests/<id>/export/file")
def request_file(id: str) -> Response:
    """GET /ui/requests/ID/export/file: the same parameters"""
    return exports.download(*exports.read_asked("request", _find("request", id)))


def _show(kind: str, ref: str) -> Response:
    id = _find(kind, ref)
    asked, format = exports.read_asked(kind, id)
    seen = preview(frame.services().store, asked, format)
    told = {name: f"{name}: {WORDS.get(name, name)}" for name in FORMATS}
    wanted = {"format": format, "bodies": asked.bodies, "redact": asked.redactor.on}
    return frame.page("exports/show.html", kind=kind, id=id, wanted=wanted, seen=seen, formats=told)


def _find(kind: str, ref: str) -> str:
    row = exports.FINDERS[kind](frame.services().store, ref, None)
    if row is None:
        raise errors.not_found(f"there is no {kind} {ref[:256]!r}", code=f"{kind}_not_found")
    id: str = row["id"]
    return id
