"""The page that the dashboard answers with where something is wrong; needs no application."""

from __future__ import annotations

import http
from collections.abc import Iterable

from xgw.errors import ApiError
from xgw.web.templating import render
from xgw.web.words import sentence

HEADINGS = {
    400: "Not understood",
    401: "Log in first",
    403: "Not allowed",
    404: "Nothing here",
    405: "Not possible here",
    413: "Too large",
    421: "Not the address of this server",
    422: "Not a valid value",
    500: "Something broke",
    503: "Not now",
}
ADVICE = {
    400: "Check the address, or begin again from the sessions.",
    401: "The dashboard opens with the server's token.",
    403: "Open the dashboard by its own address and try again from there.",
    404: "It may have been deleted, or the address is not whole.",
    405: "Go back to the page that you came from.",
    413: "Send less at once.",
    421: "Open it by a name that it has, or add this one there, in the [server] table of xgw.toml.",
    422: "Go back and change it.",
    500: "Try again; if it happens every time, look there for the cause.",
    503: "Wait a moment and reload the page.",
}
"""What to do; where the message has a colon it says so itself."""

_MISDIRECTED = 421


def render_error(error: ApiError, path: str, notices: Iterable[str] = ()) -> str:
    """The HTML of an error's page. Whoever used a wrong name for this server gets no links."""
    values = {
        "status": error.status,
        "heading": HEADINGS.get(error.status) or http.HTTPStatus(error.status).phrase,
        "message": sentence(error.message),
        "advice": "" if ": " in error.message else ADVICE.get(error.status, ""),
        "linked": error.status != _MISDIRECTED,
    }
    return render("errors/show.html", path=path, notices=list(notices), logged_in=False, **values)
