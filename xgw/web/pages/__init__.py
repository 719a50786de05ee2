"""The dashboard: pages under `/ui/`, rendered here and kept up to date over one socket each."""

from __future__ import annotations

from flask import Blueprint

from xgw.web.pages import (
    agents,
    board,
    exports,
    find,
    frame,
    health,
    login,
    messages,
    requests,
    runs,
    sessions,
    static,
    steps,
    turns,
)

NOUNS = (
    static,
    login,
    find,
    board,
    sessions,
    messages,
    turns,
    runs,
    steps,
    requests,
    agents,
    exports,
    health,
)


def create_pages() -> Blueprint:
    """All routes of the dashboard."""
    pages = Blueprint("ui", __name__)
    pages.before_request(frame.check_form)
    for noun in NOUNS:
        pages.register_blueprint(noun.routes)
    return pages
