"""The context of a session: what its next call would send, and making it shorter."""

from __future__ import annotations

from flask import Blueprint, Response

from xgw.agents import standing
from xgw.agents.definition import Definition
from xgw.errors import conflict
from xgw.queries import payloads, steps
from xgw.web import contextview
from xgw.web.api import agent_sessions, edge, fields
from xgw.web.api.sessions import find, whole, window_of
from xgw.web.serialize import Json, Row

routes = Blueprint("contexts", __name__)


@routes.get("/sessions/<ref>/context")
def get_context(ref: str) -> Response:
    """GET /sessions/{id or key}/context"""
    edge.only("expand")
    expanded = edge.expands()
    shown = context_of(find(ref))
    return edge.answer(shown if expanded else contextview.without_bodies(shown))


@routes.post("/sessions/<ref>/compact")
def compact(ref: str) -> Response:
    """POST /sessions/{id or key}/compact: the session, its context shorter"""
    edge.only()
    fields.read({})
    session = find(ref)
    compact_now(session)
    return edge.answer(whole(find(session["id"])))


def context_of(session: Row) -> Json:
    """What the next call of a session would send, its parts with all that is in them.

    Of an import it is what the last call sent: its agents are not here.
    """
    if session["kind"] == "agent" and edge.services().imported is None:
        return _of_agent(session)
    return _of_last_call(session)


def compact_now(session: Row) -> None:
    """Make the context of an agent's session shorter; ApiError 409 where that cannot be."""
    if session["kind"] != "agent":
        message = f"session {session['id']} is no agent's: its clients say what is sent in it"
        raise conflict(message, code="no_agent")
    running = edge.services()
    definition = _definition(session)
    standing.compact_now(running.store, running.scheduler, session, definition, edge.client())


def _definition(session: Row) -> Definition:
    """The agent of a session; ApiError 404 `agent_not_found` if it is not defined any more."""
    return agent_sessions.named(session["agent_name"] or "")


def _of_agent(session: Row) -> Json:
    running = edge.services()
    found = standing.stand_of(running.store, running.scheduler.parts, session, _definition(session))
    return contextview.of_agent(session, found)


def _of_last_call(session: Row) -> Json:
    """What a client sent last: what it will send next only the client knows."""
    store = edge.services().store
    call = steps.last_call(store, session["id"])
    body = payloads.find_body(store, call["input_payload"]) if call else None
    sent = payloads.decoded(body) if body else None
    counter = edge.services().counter
    return contextview.of_call(
        session, call["id"] if call else None, sent, window_of(session), counter
    )
