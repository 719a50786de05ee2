"""The dashboard: pages under `/ui/`, rendered here and kept up to date over one socket each."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from flask import Blueprint

from xgw.web.pages import (
    agents,
    board,
    exports,
    find,
    frame,
    health,
    imports,
    login,
    messages,
    requests,
    runs,
    sessions,
    static,
    steps,
    turns,
)

PAGES_OF_IMPORTS = (find, board, sessions, messages, turns, runs, steps, requests, exports)
"""What is shown of an import: all but what is the server's own."""

NOUNS = (static, login, *PAGES_OF_IMPORTS, agents, health, imports)


def create_pages(nouns: Sequence[ModuleType] = NOUNS) -> Blueprint:
    """The routes of these nouns of the dashboard."""
    pages = Blueprint("ui", __name__)
    pages.before_request(frame.check_form)
    for noun in nouns:
        pages.register_blueprint(noun.routes)
    return pages
