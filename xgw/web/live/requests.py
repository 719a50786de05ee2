"""The open list of requests, each attempt at a model call being one, and the open page of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from xgw import errors
from xgw.events import Envelope
from xgw.queries import requests
from xgw.web import requestrows
from xgw.web.api.feed import Wanted
from xgw.web.live import lists
from xgw.web.live.lists import ListScreen, Noun
from xgw.web.live.screen import Swap
from xgw.web.requestview import load_view
from xgw.web.templating import render

if TYPE_CHECKING:
    from xgw.web.app import Services

PAUSE = 0.08

_DELETED = "session.deleted"


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


class RequestsScreen(ListScreen):
    """The list of requests with these filters; those of a deleted session go with it."""

    def __init__(self, services: Services, query: Mapping[str, str]) -> None:
        fitting = lists.asked("requests", query, requestrows.FILTERS)
        super().__init__(services, REQUESTS, fitting, grows=lists.grows(query))
        self.wanted = replace(self.wanted, types=REQUESTS.types | {_DELETED})
        self._deleted: list[str] = []

    def note(self, envelope: Envelope) -> None:
        """Of an attempt, or of a session that is gone: it alone knows which rows were its."""
        if envelope.type != _DELETED:
            super().note(envelope)
        elif envelope.session_id is not None:
            self._deleted.append(envelope.session_id)

    def draw(self) -> list[Swap]:
        """The rows, and whose rows are to go."""
        rows = super().draw()
        deleted, self._deleted = self._deleted, []
        if not deleted:
            return rows
        return [*rows, Swap("deleted", render("requests/_deleted.html", sessions=deleted))]


class RequestScreen:
    """A page that shows one request: it changes once, when its attempt ends."""

    pause = PAUSE

    def __init__(self, services: Services, query: Mapping[str, str]) -> None:
        self._services = services
        self._id, turn_id = query.get("id", ""), query.get("turn", "")
        if not self._id or not turn_id:
            raise errors.unprocessable("id and turn must name the request and its turn", param="id")
        self._step_id = query.get("step", "")
        self.wanted = Wanted(turn_id=turn_id, types=frozenset({"step.completed"}))
        self._has_ended = False

    def note(self, envelope: Envelope) -> None:
        """Of its attempt."""
        self._has_ended |= envelope.step_id == self._step_id

    def draw(self) -> list[Swap]:
        """All of it."""
        if not self._has_ended:
            return []
        self._has_ended = False
        log = requests.find_request(self._services.store, self._id)
        if log is None:
            return []
        view = load_view(self._services.store, log)
        return [Swap(f"request-{self._id}", render("requests/_request.html", view=view))]
