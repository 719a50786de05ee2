"""Sessions and the lists inside them."""

from __future__ import annotations

from flask import Blueprint, Response

from xgw.queries import messages, requests, sessions, steps, turns
from xgw.web import serialize
from xgw.web.api import edge
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
    row = find(ref)
    offered = sessions.find_tools(edge.services().store, row["id"])
    return edge.answer({**_show(row), "tools": serialize.tools(offered)})


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


def _show(row: Row) -> Json:
    running = edge.services()
    named = (p for p in running.config.config.providers if p.name == row["provider_name"])
    window = running.prices.context_window(row["model"], next(named, None))
    return serialize.session(row, window)
