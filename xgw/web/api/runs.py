"""Runs: one with its steps, resumed where it was interrupted, decided about where it waits."""

from __future__ import annotations

from typing import Any

import orjson
from flask import Blueprint, Response, request

from xgw.agents.continuing import Repeat
from xgw.errors import unprocessable
from xgw.queries import runs, sessions, steps, turns
from xgw.recording.pending import Decision
from xgw.web import serialize
from xgw.web.api import edge, fields
from xgw.web.serialize import Json, Row

routes = Blueprint("runs", __name__)

ONLY_WITH = {"arguments": "approve", "reason": "deny", "result": "result"}
OWN_AGENT = "xgw/"
"""How the commands of xgw begin to name themselves to its server."""


@routes.get("/runs/<id>")
def get_run(id: str) -> Response:
    """GET /runs/{id}: with its steps"""
    edge.only("expand")
    run = edge.found(runs.find_run(edge.services().store, id, edge.project()), "run", id)
    return edge.answer(serialize.run(run, edge.show_payloads([run])))


@routes.post("/runs/<id>/approvals")
def decide_call(id: str) -> Response:
    """POST /runs/{id}/approvals: a decision about a call that waits; the run"""
    edge.only()
    decide(id, fields.read(fields.DECIDING, needed=True))
    return edge.answer(shown(id))


@routes.post("/runs/<id>/resume")
def resume_run(id: str) -> Response:
    """POST /runs/{id}/resume: a new run from the checkpoint of a paused one; 201, the new run"""
    edge.only()
    fields.read({})
    return edge.answer(shown(resume(id)), 201)


@routes.post("/turns/<id>/runs")
def rerun_turn(id: str) -> Response:
    """POST /turns/{id}/runs: an ended turn runs once more; 201, the new run"""
    edge.only()
    return edge.answer(shown(rerun(id, fields.read(fields.REPEATING))), 201)


def decide(id: str, given: Json) -> str | None:
    """A decision of fields as `fields.DECIDING` checks them, about a call of a run; the id of the
    step whose answer asked for it."""
    call_id, verdict = (fields.required(given, name) for name in ("tool_call_id", "decision"))
    for name, fitting in ONLY_WITH.items():
        if name in given and verdict != fitting:
            raise unprocessable(f"{name} has a meaning with {fitting} alone", param=name)
    if verdict == "result":
        fields.required(given, "result")
    masked = {name: _masked(given.get(name)) for name in ("reason", "result")}
    arguments = given.get("arguments")
    text = None if arguments is None else _masked(orjson.dumps(arguments).decode())
    run, turn = _find(id)
    decision = Decision(verdict, by(), text, **masked)
    asked_by = given.get("step_id")
    return edge.services().continuing.decide(turn, run, call_id, asked_by, decision)


def resume(id: str) -> str:
    """A new run goes on from a paused one; its id."""
    run, turn = _find(id)
    return edge.services().continuing.resume(turn, run)


def rerun(turn_id: str, given: Json) -> str:
    """A turn runs once more, with fields as `fields.REPEATING` checks them; the new run's id."""
    store = edge.services().store
    turn = edge.found(turns.find_turn(store, turn_id, edge.project()), "turn", turn_id)
    session = sessions.find_session(store, turn["session_id"] or "", turn["project_id"]) or {}
    kept = {"reuse": "results", **{k: v for k, v in given.items() if v is not None}}
    message, from_step_id = kept.pop("message", None), kept.pop("from_step_id", None)
    if "instructions" in kept:
        kept["instructions"] = _masked(kept["instructions"])
    return edge.services().continuing.rerun(
        turn, session, Repeat(kept, _masked(message), from_step_id)
    )


def shown(id: str) -> Json:
    """A run as it is now."""
    run = edge.found(runs.find_run(edge.services().store, id, edge.project()), "run", id)
    return serialize.run(run, edge.show_payloads([run], expanded=False))


def shown_step(id: str | None) -> Json:
    """A step as it is now."""
    step = edge.found(steps.find_step(edge.services().store, id or ""), "step", id or "")
    return serialize.step(step, edge.show_payloads([step], expanded=False))


def by() -> str:
    """Who decides, as it is recorded: a key's name, or the surface."""
    if (alias := edge.caller().alias) is not None:
        return alias
    if request.path.startswith("/ui/"):
        return "dashboard"
    return "cli" if request.headers.get("User-Agent", "").startswith(OWN_AGENT) else "api"


def _find(id: str) -> tuple[Row, Row]:
    """A run and its turn; ApiError 404."""
    store = edge.services().store
    run = edge.found(runs.find_open(store, id, edge.project()), "run", id)
    turn = edge.found(turns.find_turn(store, run["turn_id"], edge.project()), "run", id)
    return run, turn


def _masked(text: Any) -> Any:
    return text if text is None else edge.services().masker.text(text)
