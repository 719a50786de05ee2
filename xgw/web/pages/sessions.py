"""Pages of sessions."""

from __future__ import annotations

from typing import TypeVar

from flask import Blueprint, Response, request

from xgw import errors
from xgw.errors import ApiError
from xgw.queries import sessions
from xgw.web import words
from xgw.web.api import agent_sessions, fields
from xgw.web.api.agents import ask
from xgw.web.api.sessions import whole
from xgw.web.composer import Refused, composer_of_session, read_message
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
    return _answer(ref)


@routes.post("/ui/sessions/<ref>/messages")
def send_message(ref: str) -> Response:
    """POST /ui/sessions/ID/messages: say it to the session's agent; then the session's page

    A page's script is told 204, or what is wrong as plain text.
    """
    row = _found(sessions.find_session(frame.services().store, ref), ref)
    try:
        definition = agent_sessions.named(row["agent_name"] or "")
        given = read_message(request.form)
        ask(definition, {**given, "sessionId": row["id"]})
    except ApiError as refusal:
        if frame.is_from_script():
            return frame.plain_text(words.sentence(refusal.message), refusal.status)
        refused = Refused(refusal.message, request.form.get("message", ""))
        return _answer(row["id"], refused, refusal.status)
    if frame.is_from_script():
        return frame.nothing()
    return frame.see_other(f"/ui/sessions/{row['id']}")


def _answer(ref: str, refused: Refused | None = None, status: int = 200) -> Response:
    running, turn, csrf = frame.services(), request.args.get("turn", ""), frame.csrf_token()
    found = load_whole(running, ref, turn=turn, cursor=request.args.get("cursor"), csrf=csrf)
    whole = _found(found, ref)
    composer = composer_of_session(whole.view.session, running.scheduler.agents, csrf, refused)
    return frame.page(
        "sessions/show.html",
        status=status,
        cursor=whole.newest,
        whole=whole,
        chosen=turn,
        composer=composer,
        line=whole.line,
    )


@routes.get("/ui/sessions/<ref>/tools")
def list_tools(ref: str) -> Response:
    """GET /ui/sessions/ID/tools: its agent's, else those of the last call; each with its schema"""
    row = _found(sessions.find_session(frame.services().store, ref), ref)
    return frame.page("sessions/tools.html", session=row, tools=whole(row)["tools"])


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
