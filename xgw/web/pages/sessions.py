"""Pages of sessions."""

from __future__ import annotations

from typing import TypeVar

from flask import Blueprint, Response, request

from xgw import errors
from xgw.errors import ApiError
from xgw.queries import sessions
from xgw.queries.pages import Row
from xgw.web import words
from xgw.web.api import agent_sessions, contexts, fields
from xgw.web.api import sessions as api
from xgw.web.api.agents import ask
from xgw.web.composer import Refused, composer_of_session, models_of, read_message, refused_message
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
    row = _find(ref)
    try:
        definition = agent_sessions.named(row["agent_name"] or "")
        given = read_message(request.form)
        ask(definition, {**given, "sessionId": row["id"]})
    except ApiError as refusal:
        if frame.is_from_script():
            return frame.plain_text(words.sentence(refusal.message), refusal.status)
        refused = refused_message(refusal, request.form)
        return _answer(row["id"], refused, refusal.status)
    if frame.is_from_script():
        return frame.nothing()
    return frame.see_other(f"/ui/sessions/{row['id']}")


def _answer(ref: str, refused: Refused | None = None, status: int = 200) -> Response:
    running, turn, csrf = frame.services(), request.args.get("turn", ""), frame.csrf_token()
    found = load_whole(running, ref, turn=turn, cursor=request.args.get("cursor"), csrf=csrf)
    whole = _found(found, ref)
    composer = None
    if running.imported is None:
        composer = composer_of_session(whole.view.session, running.everyone, csrf, refused)
    return frame.page(
        "sessions/show.html",
        status=status,
        cursor=whole.newest,
        whole=whole,
        chosen=turn,
        composer=composer,
        line=whole.line,
        first=frame.first_call(whole.view.session["session_key"]),
        models=models_of(running.config.config),
    )


@routes.get("/ui/sessions/<ref>/tools")
def list_tools(ref: str) -> Response:
    """GET /ui/sessions/ID/tools: its agent's, or those of its last call, each with its schema"""
    row = _find(ref)
    return frame.page("sessions/tools.html", session=row, tools=api.whole(row)["tools"])


@routes.get("/ui/sessions/<ref>/context")
def show_context(ref: str) -> Response:
    """GET /ui/sessions/ID/context: what its next call would send, by part"""
    row = _find(ref)
    return frame.page("sessions/context.html", session=row, context=contexts.context_of(row))


@routes.post("/ui/sessions/<ref>/compact")
def compact(ref: str) -> Response:
    """POST /ui/sessions/ID/compact: its context, shorter; then its page

    A page's script is told 204, or what is wrong as plain text.
    """
    row = _find(ref)
    try:
        contexts.compact_now(row)
    except ApiError as refusal:
        if frame.is_from_script():
            return frame.plain_text(words.sentence(refusal.message), refusal.status)
        raise
    return frame.nothing() if frame.is_from_script() else frame.back(f"/ui/sessions/{row['id']}")


@routes.post("/ui/sessions/<ref>/title")
def change_title(ref: str) -> Response:
    """POST /ui/sessions/ID/title: an empty one goes back to the first user input"""
    running = frame.services()
    row = _find(ref)
    title = fields.title("title", request.form.get("title", "").strip() or None)
    running.control.change_session(row, {"title": title})
    return frame.back(f"/ui/sessions/{row['id']}")


def _find(ref: str) -> Row:
    return _found(sessions.find_session(frame.services().store, ref), ref)


def _found(found: T | None, ref: str) -> T:
    if found is None:
        raise errors.not_found(f"there is no session {ref[:256]!r}", code="session_not_found")
    return found
