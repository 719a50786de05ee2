"""Finding from the top bar: to the page of what was named, else to the sessions that fit."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import Blueprint, Response, request

from xgw.errors import ApiError
from xgw.queries import language, lookup
from xgw.queries.lookup import Found
from xgw.web.logins import HOME
from xgw.web.pages import frame

SHOWN = 50

routes = Blueprint("find", __name__)


@routes.get("/ui/find")
def choose() -> Response:
    """GET /ui/find?q=TEXT: 303 to what it names; a page of links where that is several things"""
    sought = request.args.get("q", "").strip()
    if not sought:
        return frame.see_other(HOME)
    fitting = lookup.list_fitting(frame.services().store, sought, SHOWN + 1)
    if not fitting:
        return frame.see_other(f"{HOME}?{urlencode({'q': query_of(sought)})}")
    if len(fitting) == 1:
        return frame.see_other(page_of(fitting[0]))
    choices = [(page_of(found), found) for found in fitting[:SHOWN]]
    return frame.page(
        "find/choose.html", sought=sought, choices=choices, has_more=len(fitting) > SHOWN
    )


def page_of(found: Found) -> str:
    """Where the dashboard shows it; what has no page of its own is part of another."""
    row = found.row
    match found.kind:
        case "run":
            return f"/ui/turns/{row['turn_id']}?{urlencode({'run': row['id']})}"
        case "message" if row["turn_id"] is not None:
            return f"/ui/turns/{row['turn_id']}"
        case "message":
            return f"/ui/sessions/{row['session_id']}"
        case kind:
            return f"/ui/{kind}s/{row['id']}"


def query_of(text: str) -> str:
    """The text as a query of the sessions: what is none is looked for as it stands.

    ApiError 422 if it is too long for that.
    """
    try:
        language.parse(text)
    except ApiError:
        text = language.quote(text)
        language.parse(text)
    return text
