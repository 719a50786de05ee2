"""Statistics."""

from __future__ import annotations

import datetime

from flask import Blueprint, Response

from xgw import clock, errors
from xgw.queries import stats
from xgw.web import serialize
from xgw.web.api import edge

routes = Blueprint("stats", __name__)


@routes.get("/stats")
def get_stats() -> Response:
    """GET /stats"""
    edge.only("group", "since", "until")
    asked = edge.parameter("group", "day")
    group = next((known for known in stats.GROUPS if known == asked), None)
    if group is None:
        raise errors.unprocessable(f"group must be one of {', '.join(stats.GROUPS)}", param="group")
    found = stats.collect(
        edge.services().store,
        group,
        since=_time("since"),
        until=_time("until"),
        project=edge.project(),
    )
    return edge.answer(serialize.stats(found))


def _time(name: str) -> datetime.datetime | None:
    text = edge.parameter(name)
    try:
        return None if text is None else clock.parse_time(text)
    except ValueError as error:
        raise errors.unprocessable(f"{name}: {error}", param=name) from None
