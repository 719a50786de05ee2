"""Pages of turns."""

from __future__ import annotations

from flask import Blueprint, Response, request

from xgw import errors
from xgw.queries import panels
from xgw.web.api import turns
from xgw.web.live.talk import entries_with
from xgw.web.live.turns import view_with
from xgw.web.pages import frame

routes = Blueprint("turns", __name__)


@routes.get("/ui/turns/<turn_id>")
def show_turn(turn_id: str) -> Response:
    """GET /ui/turns/ID: all that is known of a turn, live while it runs"""
    running, run_id = frame.services(), request.args.get("run")
    found = panels.find_whole(running.store, turn_id)
    if found is None:
        raise errors.not_found(f"there is no turn {turn_id[:256]!r}", code="turn_not_found")
    view = view_with(running, found.turn, found.config, run_id=run_id, csrf=frame.csrf_token())
    entries = entries_with(running, view, found.messages, view.steps)
    return frame.page("turns/show.html", cursor=found.newest, view=view, entries=entries)


@routes.post("/ui/turns/<turn_id>/cancel")
def cancel_turn(turn_id: str) -> Response:
    """POST /ui/turns/ID/cancel: then the page that it was sent from; 204 for a page's script"""
    turns.end(turn_id)
    if frame.is_from_script():
        return frame.nothing()
    return frame.back(f"/ui/turns/{turn_id}")
