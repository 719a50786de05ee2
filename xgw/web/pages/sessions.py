"""Pages of sessions."""

from __future__ import annotations

from typing import TypeVar

from flask import Blueprint, Response, request

from xgw import errors
from xgw.queries import events, sessions
from xgw.queries.snapshot import snapshot
from xgw.web import serialize
from xgw.web.api import fields
from xgw.web.live.session import load_whole
from xgw.web.pages import frame

T = TypeVar("T")

routes = Blueprint("sessions", __name__)


@routes.get("/")
def go_home() -> Response:
    """GET /: the dashboard"""
    return frame.see_other("/ui/")


@routes.get("/ui")
def go_to_list() -> Response:
    """GET /ui: the dashboard"""
    return frame.see_other("/ui/")


@routes.get("/ui/sessions/<ref>")
def show_session(ref: str) -> Response:
    """GET /ui/sessions/ID?turn=ID|active&cursor=…: a session, live"""
    running, turn = frame.services(), request.args.get("turn", "")
    with snapshot(running.store):
        cursor = events.newest(running.store)
        whole = load_whole(
            running,
            ref,
            turn=turn,
            cursor=request.args.get("cursor"),
            csrf=frame.csrf_token(),
        )
    whole = _found(whole, ref)
    return frame.page("sessions/show.html", cursor=cursor, whole=whole, chosen=turn)


@routes.get("/ui/sessions/<ref>/tools")
def list_tools(ref: str) -> Response:
    """GET /ui/sessions/ID/tools: those of the last call, each with its schema"""
    store = frame.services().store
    row = _found(sessions.find_session(store, ref), ref)
    tools = serialize.tools(sessions.find_tools(store, row["id"]))
    return frame.page("sessions/tools.html", session=row, tools=tools)


@routes.post("/ui/sessions/<ref>/title")
def change_title(ref: str) -> Response:
    """POST /ui/sessions/ID/title: an empty one goes back to the first user input"""
    running = frame.services()
    row = _found(sessions.find_session(running.store, ref), ref)
    title = fields.line(fields.MAX_TITLE)("title", request.form.get("title", "").strip() or None)
    running.control.change_session(row, {"title": title})
    return frame.back(f"/ui/sessions/{row['id']}")


def _found(found: T | None, ref: str) -> T:
    if found is None:
        raise errors.not_found(f"there is no session {ref[:256]!r}", code="session_not_found")
    return found
