"""Sessions and the lists inside them."""

from __future__ import annotations

from flask import Blueprint, Response

from xgw.agents.forking import find_shown
from xgw.errors import unprocessable
from xgw.queries import messages, requests, sessions, steps, turns
from xgw.web import agents, serialize
from xgw.web.api import agent_sessions, edge, fields
from xgw.web.serialize import Json, Row
from xgw.web.windows import window_of_session

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
    wanted = fields.read(fields.OPENING)
    name, mode = wanted.pop("agent", None), wanted.pop("mode", None)
    if name is None:
        if mode is not None:
            raise unprocessable("mode is an agent's: name the agent", param="mode")
        session, is_new = agent_sessions.open_one(wanted)
    else:
        if wanted.get("model") is not None:
            raise unprocessable("model is the agent's: say it with a message", param="model")
        definition = edge.services().everyone.get(name)
        if definition is None:
            message = f"there is no agent {name!r}: GET /agents lists those that there are"
            raise unprocessable(message, param="agent")
        definition.look()
        session, is_new = agent_sessions.open_for(definition, mode, wanted)
    return edge.answer(whole(session), 201 if is_new else 200)


@routes.patch("/sessions/<ref>")
def change_session(ref: str) -> Response:
    """PATCH /sessions/{id or key}"""
    edge.only()
    changes = fields.read(fields.CHANGING, needed=True)
    row = find(ref)
    edge.services().control.change_session(row, changes)
    return edge.answer(whole(find(row["id"])))


@routes.post("/sessions/<ref>/fork")
def fork_session(ref: str) -> Response:
    """POST /sessions/{id or key}/fork: 201, a session with the history up to a turn"""
    edge.only()
    turn_id = fields.required(fields.read(fields.NAMING_TURN, needed=True), "turn_id")
    return edge.answer(whole(find(fork(ref, turn_id))), 201)


@routes.delete("/sessions/<ref>")
def delete_session(ref: str) -> Response:
    """DELETE /sessions/{id or key}: what is under way in it is cancelled first"""
    edge.only()
    row = find(ref)
    edge.services().scheduler.leave(row["id"])
    edge.services().control.delete_session(row)
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


def fork(ref: str, turn_id: str) -> str:
    """A new session with the history of this one up to a turn; its id."""
    row = find(ref)
    shown = find_shown(edge.services().store, row["id"])
    return edge.services().control.fork_session(row, turn_id, shown)


def find(ref: str) -> Row:
    """The session that a path names; ApiError 404."""
    row = sessions.find_session(edge.services().store, ref, edge.project())
    return edge.found(row, "session", ref)


def whole(row: Row) -> Json:
    """The session with the tools that its agent has, or that it offered."""
    definition = edge.services().everyone.get(row["agent_name"] or "")
    if definition is not None:
        equipped = definition.in_mode(row["mode"] or "chat")
        return {**_show(row), "tools": agents.tools(equipped)}
    offered = sessions.find_tools(edge.services().store, row["id"])
    return {**_show(row), "tools": serialize.tools(offered)}


def window_of(row: Row) -> int | None:
    """How many tokens fit into the context of a session; None if nobody knows."""
    return window_of_session(edge.services(), row)


def _show(row: Row) -> Json:
    return serialize.session(row, window_of(row))
