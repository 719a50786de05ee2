"""Pages of sessions."""

from __future__ import annotations

from flask import Blueprint, Response

from xgw.web.pages import frame

routes = Blueprint("sessions", __name__)


@routes.get("/")
def go_home() -> Response:
    """GET /: the dashboard"""
    return frame.see_other("/ui/")


@routes.get("/ui")
def go_to_list() -> Response:
    """GET /ui: the dashboard"""
    return frame.see_other("/ui/")


@routes.get("/ui/")
def list_sessions() -> Response:
    """GET /ui/"""
    return frame.page("sessions/list.html", cursor=frame.newest_seq())
