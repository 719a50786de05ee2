"""GET /ui/static/…: the dashboard's own files."""

from __future__ import annotations

from flask import Blueprint, Response, request

from xgw import errors
from xgw.web.assets import FOREVER, Asset, assets

routes = Blueprint("static", __name__)


@routes.get("/ui/static/<digest>/<path:name>")
def get_file(digest: str, name: str) -> Response:
    """A file under the hash of its content; what is there now, unkept, under any other."""
    exact = assets().at(request.path)
    found = exact or assets().named(name)
    if found is None:
        raise errors.not_found(f"there is no file {name[:256]!r}")
    return _answer(found, FOREVER if exact else "no-cache")


@routes.get("/favicon.ico")
def get_icon() -> Response:
    """What browsers ask for by themselves."""
    icon = assets().named("favicon.svg")
    if icon is None:
        raise errors.not_found("there is no icon")
    return _answer(icon, "no-cache")


def _answer(asset: Asset, kept: str) -> Response:
    response = Response(asset.content, content_type=asset.media_type)
    response.headers["Cache-Control"] = kept
    return response
