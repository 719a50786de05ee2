"""Turns and steps."""

from __future__ import annotations

from flask import Blueprint, Response

from xgw.queries import steps, turns
from xgw.web import serialize
from xgw.web.api import edge, fields
from xgw.web.serialize import Json, Row

routes = Blueprint("turns", __name__)


@routes.get("/turns")
def list_turns() -> Response:
    """GET /turns"""
    wanted, page = edge.asked_filters("turns"), edge.asked_page()
    found = turns.list_turns(edge.services().store, wanted, page, edge.project())
    shown = edge.show_payloads(found.rows)
    return edge.answer_list(found, lambda row: serialize.turn(row, shown))


@routes.get("/turns/<id>")
def get_turn(id: str) -> Response:
    """GET /turns/{id}: with its runs and their steps"""
    edge.only("expand")
    row = turns.find_turn_with_runs(edge.services().store, id, edge.project())
    turn = edge.found(row, "turn", id)
    return edge.answer(serialize.turn(turn, edge.show_payloads([turn])))


@routes.post("/turns/<id>/cancel")
def cancel_turn(id: str) -> Response:
    """POST /turns/{id}/cancel: the turn, cancelled; 409 if it is over"""
    edge.only()
    fields.read({})
    return edge.answer(cancel(id))


def cancel(id: str) -> Json:
    """Cancel a turn; as it is then."""
    end(id)
    row = turns.find_turn_with_runs(edge.services().store, id, edge.project())
    turn = edge.found(row, "turn", id)
    return serialize.turn(turn, edge.show_payloads([turn], expanded=False))


def end(id: str) -> None:
    """Cancel a turn, be it under way or one that waits; ApiError 404, AlreadyOver if it is over."""
    row = edge.found(turns.find_turn(edge.services().store, id, edge.project()), "turn", id)
    if row["status"] == "queued" and _withdraw(row):
        return
    edge.services().control.cancel_turn(id)
    if row["endpoint"] is None:  # it may have held its session without a thread
        edge.services().scheduler.nudge(row["session_id"])


def _withdraw(turn: Row) -> bool:
    """Whether a turn that waited for its session has been taken out of the queue."""
    return edge.services().scheduler.withdraw(turn["id"], turn["session_id"])


@routes.get("/steps/<id>")
def get_step(id: str) -> Response:
    """GET /steps/{id}: with bodies, and what changed since the session's previous call"""
    edge.only("expand")
    store = edge.services().store
    step = edge.found(steps.find_step(store, id, edge.project()), "step", id)
    shown = serialize.step(step, edge.show_payloads([step], expanded=True))
    changes = steps.find_changes(store, step)
    shown["changes"] = None if changes is None else serialize.changes(changes)
    return edge.answer(shown)
