"""Pages of turns, and what can be done with one: cancelled, run once more, forked."""

from __future__ import annotations

from flask import Blueprint, Response, request

from xgw import errors
from xgw.errors import ApiError
from xgw.queries import panels
from xgw.queries.panels import Panel
from xgw.web import words
from xgw.web.api import runs, sessions, turns
from xgw.web.composer import models_of
from xgw.web.decisions import Refused
from xgw.web.live.talk import entries_with
from xgw.web.live.turns import view_with
from xgw.web.pages import frame
from xgw.web.rerunview import RERUN, read_rerun

routes = Blueprint("turns", __name__)


@routes.get("/ui/turns/<turn_id>")
def show_turn(turn_id: str) -> Response:
    """GET /ui/turns/ID?run=ID&from=STEP: all that is known of a turn, live while it runs"""
    run_id, from_step = request.args.get("run"), request.args.get("from", "")
    return answer(find(turn_id), run_id=run_id, from_step=from_step)


@routes.post("/ui/turns/<turn_id>/cancel")
def cancel_turn(turn_id: str) -> Response:
    """POST /ui/turns/ID/cancel: then the page that it was sent from; 204 for a page's script"""
    turns.end(turn_id)
    if frame.is_from_script():
        return frame.nothing()
    return frame.back(f"/ui/turns/{turn_id}")


@routes.post("/ui/turns/<turn_id>/runs")
def run_again(turn_id: str) -> Response:
    """POST /ui/turns/ID/runs: once more; then the turn's page, 204 for a page's script"""
    found = find(turn_id)
    config = found.config if isinstance(found.config, dict) else {}
    try:
        runs.rerun(turn_id, read_rerun(request.form, found.turn, found.turn["runs"], config))
    except ApiError as refusal:
        return refuse(turn_id, refused_form(RERUN, refusal), refusal.status)
    return frame.nothing() if frame.is_from_script() else frame.see_other(f"/ui/turns/{turn_id}")


@routes.post("/ui/turns/<turn_id>/fork")
def fork_turn(turn_id: str) -> Response:
    """POST /ui/turns/ID/fork: a session with the history up to it; then that session's page"""
    turn = find(turn_id).turn
    return frame.see_other(f"/ui/sessions/{sessions.fork(turn['session_id'] or '', turn_id)}")


def find(turn_id: str) -> Panel:
    """A turn with its messages; ApiError 404."""
    found = panels.find_whole(frame.services().store, turn_id)
    if found is None:
        raise errors.not_found(f"there is no turn {turn_id[:256]!r}", code="turn_not_found")
    return found


def refused_form(about: str, refusal: ApiError) -> Refused:
    """What the request's form was refused for; what was written in it stays."""
    given = {name: text for name, text in request.form.items() if name != frame.CSRF_FIELD}
    return Refused(about, refusal.param, words.sentence(refusal.message), given)


def refuse(turn_id: str, refused: Refused, status: int) -> Response:
    """A form on a turn was not taken: why as plain text for a page's script, else on its page."""
    if frame.is_from_script():
        return frame.plain_text(refused.words, status)
    return answer(find(turn_id), refused=refused, status=status)


def answer(
    found: Panel,
    *,
    run_id: str | None = None,
    from_step: str = "",
    refused: Refused | None = None,
    status: int = 200,
) -> Response:
    """The page of a turn."""
    running = frame.services()
    view = view_with(
        running,
        found.turn,
        found.config,
        run_id=run_id,
        csrf=frame.csrf_token(),
        refused=refused,
        from_step=from_step,
    )
    return frame.page(
        "turns/show.html",
        status=status,
        cursor=found.newest,
        view=view,
        entries=entries_with(running, view, found.messages),
        models=models_of(running.config.config),
    )
