"""Sessions and the lists inside them."""

from __future__ import annotations

from flask import Blueprint, Response

from xgw.queries import messages, requests, sessions, steps, turns
from xgw.recording.facts import SessionFacts
from xgw.web import serialize
from xgw.web.api import edge, fields
from xgw.web.serialize import Json, Row

routes = Blueprint("sessions", __name__)


@routes.get("/sessions")
def list_sessions() -> Response:
    """GET /sessions"""
    wanted, page = edge.asked_filters("sessions"), edge.asked_page()
    found = sessions.list_sessions(edge.services().store, wanted, page, edge.project())
    return edge.answer_list(found, _show)


@routes.get("/sessions/<ref>")
def get_session(ref: str) -> Response:
    """GET /sessions/{id or key}"""
    edge.only()
    return edge.answer(whole(find(ref)))


@routes.post("/sessions")
def open_session() -> Response:
    """POST /sessions: 201, or 200 with the session that has this key already"""
    edge.only()
    wanted, asking = fields.read(fields.OPENING), edge.caller()
    facts = SessionFacts(
        id="",
        session_key=wanted.pop("session_key", None) or "",
        project_id=asking.project_id,
        source="api",
        org_id=asking.org_id,
        api_key_id=asking.api_key_id,
        **wanted,
    )
    session_id, is_new = edge.services().control.open_session(facts)
    return edge.answer(whole(find(session_id)), 201 if is_new else 200)


@routes.patch("/sessions/<ref>")
def change_session(ref: str) -> Response:
    """PATCH /sessions/{id or key}"""
    edge.only()
    changes = fields.read(fields.CHANGING, needed=True)
    row = find(ref)
    edge.services().control.change_session(row, changes)
    return edge.answer(whole(find(row["id"])))


@routes.delete("/sessions/<ref>")
def delete_session(ref: str) -> Response:
    """DELETE /sessions/{id or key}: what is under way in it is cancelled first"""
    edge.only()
    edge.services().control.delete_session(find(ref))
    return edge.answer_nothing()


@routes.get("/sessions/<ref>/messages")
def list_messages(ref: str) -> Response:
    """GET /sessions/{id or key}/messages"""
    edge.only("limit", "cursor", "order")
    found = messages.list_messages(edge.services().store, find(ref)["id"], edge.asked_page())
    return edge.answer_list(found, serialize.message)


@routes.get("/sessions/<ref>/turns")
def list_turns(ref: str) -> Response:
    """GET /sessions/{id or key}/turns"""
    asked, page = edge.asked_filters("turns", without="session_id"), edge.asked_page()
    wanted = asked.and_also("session_id", find(ref)["id"])
    found = turns.list_turns(edge.services().store, wanted, page, edge.project())
    shown = edge.show_payloads(found.rows)
    return edge.answer_list(found, lambda row: serialize.turn(row, shown))


@routes.get("/sessions/<ref>/steps")
def list_steps(ref: str) -> Response:
    """GET /sessions/{id or key}/steps"""
    edge.only("limit", "cursor", "order", "expand")
    found = steps.list_steps(edge.services().store, find(ref)["id"], edge.asked_page())
    shown = edge.show_payloads(found.rows)
    return edge.answer_list(found, lambda row: serialize.step(row, shown))


@routes.get("/sessions/<ref>/requests")
def list_requests(ref: str) -> Response:
    """GET /sessions/{id or key}/requests"""
    asked, page = edge.asked_filters("requests", without="session_id"), edge.asked_page()
    wanted = asked.and_also("session_id", find(ref)["id"])
    found = requests.list_requests(edge.services().store, wanted, page, edge.project())
    shown = edge.show_payloads(found.rows)
    return edge.answer_list(found, lambda row: serialize.request(row, shown))


def find(ref: str) -> Row:
    """The session that a path names; ApiError 404."""
    row = sessions.find_session(edge.services().store, ref, edge.project())
    return edge.found(row, "session", ref)


def whole(row: Row) -> Json:
    """The session with the tools that it offered."""
    offered = sessions.find_tools(edge.services().store, row["id"])
    return {**_show(row), "tools": serialize.tools(offered)}


def _show(row: Row) -> Json:
    running = edge.services()
    named = (p for p in running.config.config.providers if p.name == row["provider_name"])
    window = running.prices.context_window(row["model"], next(named, None))
    return serialize.session(row, window)
