"""The open list of requests: each attempt at a model call is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from xgw.events import Envelope
from xgw.web import requestrows
from xgw.web.live import lists
from xgw.web.live.lists import ListScreen, Noun

if TYPE_CHECKING:
    from xgw.web.app import Services


def _attempt_of(envelope: Envelope) -> str | None:
    is_other = envelope.payload.get("step_type", "llm_call") != "llm_call"
    return None if is_other else envelope.step_id


REQUESTS = Noun(
    "request",
    frozenset({"step.started", "step.completed"}),
    frozenset({"step.started"}),
    _attempt_of,
    requestrows.find_requests,
)


def open_requests(services: Services, query: Mapping[str, str]) -> ListScreen:
    """The list of requests with these filters; `older` is one of its further pages."""
    fitting = lists.asked("requests", query, requestrows.FILTERS)
    return ListScreen(services, REQUESTS, fitting, grows=lists.grows(query))
