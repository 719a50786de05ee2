"""Pages of turns."""

from __future__ import annotations

from flask import Blueprint, Response, request

from xgw import errors
from xgw.queries import events
from xgw.queries.snapshot import snapshot
from xgw.web.api import turns
from xgw.web.live.talk import load_entries
from xgw.web.live.turns import load
from xgw.web.pages import frame

routes = Blueprint("turns", __name__)


@routes.get("/ui/turns/<turn_id>")
def show_turn(turn_id: str) -> Response:
    """GET /ui/turns/ID: all that is known of a turn, live while it runs"""
    running = frame.services()
    with snapshot(running.store):
        cursor = events.newest(running.store)
        view = load(running, turn_id, run_id=request.args.get("run"), csrf=frame.csrf_token())
        if view is None:
            raise errors.not_found(f"there is no turn {turn_id[:256]!r}", code="turn_not_found")
        entries = load_entries(running, view)
    return frame.page("turns/show.html", cursor=cursor, view=view, entries=entries)


@routes.post("/ui/turns/<turn_id>/cancel")
def cancel_turn(turn_id: str) -> Response:
    """POST /ui/turns/ID/cancel: then the page that it was sent from; 204 for a page's script"""
    turns.end(turn_id)
    if frame.is_from_script():
        return frame.nothing()
    return frame.back(f"/ui/turns/{turn_id}")
