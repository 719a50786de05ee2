"""Page: how the server and its store are, and the configuration in force."""

from __future__ import annotations

from flask import Blueprint, Response

from xgw.config import show
from xgw.queries import prunable
from xgw.web.healthview import read_health
from xgw.web.pages import frame

routes = Blueprint("health", __name__)


@routes.get("/ui/health")
def show_health() -> Response:
    """GET /ui/health"""
    running = frame.services()
    loaded = running.config
    return frame.page(
        "health/show.html",
        health=read_health(running),
        configuration=show(loaded),
        most=prunable.MOST,
        retention=loaded.config.retention,
        config_path=None if loaded.path is None else str(loaded.path),
    )


@routes.get("/ui/health/now")
def show_now() -> Response:
    """GET /ui/health/now: what changes by itself; the page asks for it every few seconds"""
    return frame.partial("health/_now.html", health=read_health(frame.services()))
