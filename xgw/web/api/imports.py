"""POST /import, and the imports that there are: who is bounded to a project has none."""

from __future__ import annotations

import tempfile
from typing import IO

from flask import Blueprint, Response, request

from xgw import errors
from xgw.errors import ApiError
from xgw.portable.imports import Import
from xgw.portable.refusal import BadBundle
from xgw.portable.unpacking import MOST_PACKED
from xgw.web.api import edge
from xgw.web.bodies import receive, unsupported_media_type
from xgw.web.serialize import Json

NAME = "bundle"
TYPES = (
    "application/json",
    "application/x-ndjson",
    "application/gzip",
    "application/octet-stream",
)

routes = Blueprint("imports", __name__)


@routes.post("/import")
def import_bundle() -> Response:
    """POST /import?file=NAME: the bundle is the body; 201, or 200 where it was imported already"""
    _refuse_bounded()
    edge.only("file")
    if request.mimetype not in TYPES:
        raise unsupported_media_type(f"a bundle's Content-Type is one of {', '.join(TYPES)}")
    name = edge.parameter("file", NAME)
    with tempfile.TemporaryFile() as file:
        for block in receive(request.environ, MOST_PACKED):
            file.write(block)
        file.seek(0)
        one, is_new = add(file, name)
    return edge.answer(shown(one), 201 if is_new else 200)


def add(file: IO[bytes], name: str) -> tuple[Import, bool]:
    """Import a bundle; ApiError 422 says what is wrong with it."""
    try:
        return edge.services().imports.add(file, name)
    except BadBundle as refusal:
        message = f"the bundle cannot be imported: {refusal}"
        raise ApiError(422, "invalid_request_error", message, code="bad_bundle") from None


@routes.get("/imports")
def list_imports() -> Response:
    """GET /imports: all of them, the newest first"""
    _refuse_bounded()
    edge.only()
    found = [shown(one) for one in edge.services().imports.list()]
    return edge.answer({"object": "list", "data": found, "has_more": False, "next_cursor": None})


@routes.get("/imports/<id>")
def get_import(id: str) -> Response:
    """GET /imports/{id}"""
    _refuse_bounded()
    edge.only()
    return edge.answer(shown(_find(id)))


@routes.delete("/imports/<id>")
def remove_import(id: str) -> Response:
    """DELETE /imports/{id}: for good; the bundle can be imported again"""
    _refuse_bounded()
    edge.only()
    edge.services().imports.remove(_find(id).id)
    return edge.answer_nothing()


def shown(one: Import) -> Json:
    """An import as JSON, with where it is shown."""
    return {**one.to_json(), "url": f"/imports/{one.id}/ui/"}


def _find(id: str) -> Import:
    return edge.found(edge.services().imports.find(id), "import", id)


def _refuse_bounded() -> None:
    if not edge.caller().sees_all:
        message = "imports are open to the server's token alone, not to a client key"
        raise errors.forbidden(message, code="token_needed")
