"""Pages: what an export of something, or of what a list has, would hold; and the file itself."""

from __future__ import annotations

from functools import partial

from flask import Blueprint, Response

from xgw.portable.selection import LISTS
from xgw.portable.writing import FORMATS
from xgw.web.api import edge, exports
from xgw.web.api.exports import Wanted
from xgw.web.pages import frame
from xgw.web.serialize import Row

routes = Blueprint("exports", __name__)

WORDS = {
    "json": "everything, for tools and for opening it in another xgw",
    "jsonl": "the same, a row a line",
    "markdown": "a report to read",
    "html": "a report to read and to print, in one page",
    "curl": "the requests as a shell script, to be sent again",
    "python": "the requests as a program, to be sent again",
    "openai": "the conversation, for fine-tuning and evals",
}
KINDS = ("session", "turn", "run", "request")
"""What has a page of its own."""


def show_one(kind: str, ref: str) -> Response:
    """GET /ui/{sessions, turns, runs, requests}/ID/export?format=&bodies=&redact="""
    row = _find(kind, ref)
    return _page(exports.one(kind, row["id"]), turn_id=row.get("turn_id"))


def file_of_one(kind: str, ref: str) -> Response:
    """GET /ui/{sessions, turns, runs, requests}/ID/export/file: the same parameters"""
    return exports.download(exports.one(kind, _find(kind, ref)["id"]))


for _kind in KINDS:
    _path = f"/ui/{_kind}s/<ref>/export"
    routes.add_url_rule(_path, f"show_{_kind}", partial(show_one, _kind))
    routes.add_url_rule(f"{_path}/file", f"file_of_{_kind}", partial(file_of_one, _kind))


def show_list(of: str) -> Response:
    """GET /ui/export/{sessions, turns, requests}?format=&bodies=&redact=&…: with these filters"""
    return _page(exports.several(of, None))


def file_of_list(of: str) -> Response:
    """GET /ui/export/{sessions, turns, requests}/file: the same parameters"""
    return exports.download(exports.several(of, None))


for _of in LISTS:
    routes.add_url_rule(f"/ui/export/{_of}", f"show_{_of}", partial(show_list, _of))
    routes.add_url_rule(f"/ui/export/{_of}/file", f"file_of_{_of}", partial(file_of_list, _of))


def _page(wanted: Wanted, *, turn_id: str | None = None) -> Response:
    seen, covers = exports.previewed(wanted)
    return frame.page(
        "exports/show.html",
        wanted=wanted,
        filters=wanted.selection.given if wanted.selection else (),
        turn_id=turn_id,
        seen=seen,
        covers=covers,
        formats={name: f"{name}: {WORDS.get(name, name)}" for name in FORMATS},
    )


def _find(kind: str, ref: str) -> Row:
    return edge.found(exports.FINDERS[kind](frame.services().store, ref, None), kind, ref)
