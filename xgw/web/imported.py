"""Whether what is shown is an import: under which address, as of when, and that nothing acts on it.

Answered for the request in hand; what is drawn outside of one is the server's own.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from flask import current_app, has_app_context, request

from xgw import clock
from xgw.errors import ApiError

if TYPE_CHECKING:
    from xgw.portable.imports import Import
    from xgw.web.app import Services

HOME = "/ui/"
READING = frozenset({"GET", "HEAD", "OPTIONS"})


def imported() -> Import | None:
    """The import that is shown; None where it is the server's own store."""
    running = _running()
    return None if running is None else running.imported


def root() -> str:
    """What the addresses on a page begin with: "" for the server's own."""
    one = imported()
    return "" if one is None else root_of(one.id)


def root_of(id: str) -> str:
    """Where an import is shown."""
    return f"/imports/{id}"


def until() -> datetime.datetime:
    """The moment up to which work under way is shown: now, or that of the export."""
    one = imported()
    return clock.now() if one is None else one.exported_at


def refuse_acting() -> None:
    """ApiError 409 for what would change something that is imported."""
    if request.method not in READING and request.routing_exception is None:
        message = "this was imported and can only be read: nothing in it can be changed or run"
        raise ApiError(409, "invalid_request_error", message, code="read_only")


def _running() -> Services | None:
    running: Services | None = current_app.extensions.get("xgw") if has_app_context() else None
    return running


GLOBALS = {"imported": imported, "root": root, "until": until, "own_home": HOME}
"""What templates know."""
