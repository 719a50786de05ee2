"""What is done with runs on pages: a call is decided about, a paused run goes on."""

from __future__ import annotations

from flask import Blueprint, Response, request

from xgw.errors import ApiError, conflict
from xgw.queries import panels
from xgw.queries import runs as stored
from xgw.queries.pages import Row
from xgw.web.api import edge, runs
from xgw.web.decisions import Refused, asked_calls, read_decision, too_late
from xgw.web.pages import frame, turns

routes = Blueprint("runs", __name__)

TOO_LATE = frozenset({"already_decided", "run_not_waiting", "call_not_found"})


@routes.post("/ui/runs/<run_id>/approvals")
def decide_call(run_id: str) -> Response:
    """POST /ui/runs/ID/approvals: a decision about a call; then the page that it was sent from

    A page's script is told 204, or what is wrong as plain text.
    """
    run, form = _find(run_id), request.form
    call_id, step_id = form.get("tool_call_id", ""), form.get("step_id", "")
    named = [one for one in asked_calls(run) if one.id == call_id]
    call = next((one for one in named if step_id in ("", one.step_id)), None)
    try:
        runs.decide(run_id, read_decision(form, call))
    except ApiError as refusal:
        about = call.key if call is not None else call_id
        refused = _refused(run, call_id, about, refusal)
        return turns.refuse(run["turn_id"], refused, refusal.status)
    return _done(run)


@routes.post("/ui/runs/<run_id>/resume")
def resume_run(run_id: str) -> Response:
    """POST /ui/runs/ID/resume: it goes on; then the page that it was sent from"""
    run = _find(run_id)
    runs.resume(run_id)
    return _done(run)


def _find(run_id: str) -> Row:
    return edge.found(stored.find_open(frame.services().store, run_id), "run", run_id)


def _done(run: Row) -> Response:
    path = f"/ui/turns/{run['turn_id']}"
    return frame.nothing() if frame.is_from_script() else frame.back(path)


def _refused(run: Row, call_id: str, about: str, refusal: ApiError) -> Refused:
    """Who comes too late is told what was decided."""
    refused = turns.refused_form(about, refusal)
    found = panels.find(frame.services().store, run["turn_id"])
    if refusal.code not in TOO_LATE or found is None:
        return refused
    now = next((one for one in found.turn["runs"] if one["id"] == run["id"]), None)
    steps = [step for one in found.turn["runs"] for step in one["steps"]]
    told = too_late(call_id, now, steps)
    return turns.refused_form(about, conflict(told, code="already_decided")) if told else refused
