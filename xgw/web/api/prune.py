"""Pruning on request: what is old goes while the server records."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from flask import Blueprint, Response

from xgw import clock
from xgw.errors import WorkError, conflict, forbidden, overloaded, unprocessable
from xgw.queries import filters
from xgw.upkeep import older_tables
from xgw.upkeep.prune import Wanted
from xgw.upkeep.sweep import Stopped
from xgw.web import serialize
from xgw.web.api import edge, fields

routes = Blueprint("prune", __name__)


@routes.post("/prune")
def prune() -> Response:
    """POST /prune: what went, once it is gone"""
    edge.only()
    if not edge.caller().sees_all:
        message = "a client key cannot prune: it is for whoever has the token"
        raise forbidden(message, code="token_needed")
    if not edge.services().serves:
        raise overloaded("another process may serve this store: it alone prunes", retry_after=1)
    wanted = _wanted(fields.read(PRUNING, needed=True))
    if wanted.legacy:
        _refuse_unfinished()
    try:
        done = edge.services().prune.run(wanted)
    except Stopped:
        raise overloaded("the server stops: the rest goes next time", retry_after=1) from None
    return edge.answer(serialize.pruned(done))


def _refuse_unfinished() -> None:
    try:
        older_tables.refuse_unfinished(edge.services().store)
    except WorkError as error:
        raise conflict(str(error), code="not_taken_over") from None


def _moment(name: str, value: Any) -> datetime.datetime | None:
    """A time as RFC 3339 has it, or null."""
    if value is None:
        return None
    try:
        return clock.parse_time(fields.text(name, value))
    except ValueError as error:
        raise unprocessable(f"{name}: {error}", param=name) from None


def _filters(name: str, value: Any) -> list[tuple[str, str]] | None:
    """Filters by name, each a text or several: the pairs that a query would have; or null.

    None at all is refused, also by an empty list: whoever narrows never means every session.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise unprocessable(f"{name} must be an object", param=name)
    if not value or [] in value.values():
        raise unprocessable(f"{name} must not be empty, nor have an empty list", param=name)
    given = [(key, text) for key, texts in value.items() for text in _listed(texts)]
    if not all(isinstance(text, str) for _, text in given):
        raise unprocessable(f"{name} must have texts, or lists of texts", param=name)
    return given


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


PRUNING: Mapping[str, fields.Check] = {
    "before": _moment,
    "bodies_before": _moment,
    "filters": _filters,
    "legacy": fields.flag,
}


def _wanted(given: Mapping[str, Any]) -> Wanted:
    pairs = given.get("filters")
    wanted = Wanted(
        given.get("before"),
        given.get("bodies_before"),
        None if pairs is None else filters.parse("sessions", pairs),
        bool(given.get("legacy")),
    )
    if wanted == Wanted():
        message = "say what is to go: before, bodies_before, filters or legacy"
        raise unprocessable(message, param="before")
    return wanted
