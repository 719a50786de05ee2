"""The page of what was imported: the list, a form to import, and one for each to remove it."""

from __future__ import annotations

from flask import Blueprint, Response, request

from xgw import errors
from xgw.errors import ApiError
from xgw.web import board, words
from xgw.web.api.imports import add
from xgw.web.imported import root_of
from xgw.web.pages import frame

FIELD = "bundle"
routes = Blueprint("imports", __name__)


@routes.get("/ui/imports")
def list_imports() -> Response:
    """GET /ui/imports: what was imported, the newest first"""
    return _answer()


@routes.post("/ui/imports")
def add_import() -> Response:
    """POST /ui/imports: a form with the bundle's file; 303 to what was imported"""
    upload = request.files.get(FIELD)
    if upload is None or not upload.filename:
        return _answer("Choose a file first.", 422)
    try:
        one, _ = add(upload.stream, upload.filename)
    except ApiError as refusal:
        return _answer(words.sentence(refusal.message), refusal.status)
    return frame.see_other(f"{root_of(one.id)}/ui/")


@routes.post("/ui/imports/<id>/remove")
def remove_import(id: str) -> Response:
    """POST /ui/imports/ID/remove: for good; then the list"""
    if not frame.services().imports.remove(id):
        raise errors.not_found(f"there is no import {id[:64]!r}", code="import_not_found")
    return frame.see_other("/ui/imports")


def _answer(mistake: str = "", status: int = 200) -> Response:
    running = frame.services()
    return frame.page(
        "imports/list.html",
        status=status,
        strip=board.read_strip(running).strip,
        imports=[(root_of(one.id), one) for one in running.imports.list()],
        mistake=mistake,
    )
