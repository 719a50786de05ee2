"""Pages: the list of sessions, and that of turns without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flask import Blueprint, Response

from xgw.queries.filters import Filters
from xgw.queries.pages import Page
from xgw.queries.snapshot import snapshot
from xgw.web import board
from xgw.web.board import Rows
from xgw.web.pages import frame
from xgw.web.pages.asked import Asked, read_asked

if TYPE_CHECKING:
    from xgw.web.app import Services

ReadRows = Callable[["Services", Filters, Page], Rows]

routes = Blueprint("board", __name__)


@routes.get("/ui/")
def list_sessions() -> Response:
    """GET /ui/: `q` in the filter language, `since`, `cursor`"""
    asked = read_asked("sessions", board.SESSION_FILTERS)
    return _answer("sessions/list.html", asked, board.list_sessions)


@routes.get("/ui/turns")
def list_turns() -> Response:
    """GET /ui/turns: turns without a session; `status`, `model`, `since`, `cursor`"""
    asked = read_asked("turns", board.TURN_FILTERS)
    return _answer("turns/list.html", asked, board.list_turns)


@routes.get("/ui/strip")
def show_strip() -> Response:
    """GET /ui/strip: the counts alone; some change without anything happening"""
    counts = board.read_strip(frame.services())
    return frame.partial("sessions/_strip.html", strip=counts.strip)


def _answer(template: str, asked: Asked, read: ReadRows) -> Response:
    """The page as it is at one moment, whose cursor is that of the events."""
    services = frame.services()
    with snapshot(services.store):
        counts = board.read_strip(services)
        found = Rows([]) if asked.mistake else read(services, asked.wanted, asked.page)
    return frame.page(
        template,
        status=asked.status,
        cursor=counts.newest,
        strip=counts.strip,
        found=found,
        asked=asked,
        most_rows=board.MOST_ROWS,
        first=frame.first_call("first-try"),
    )
