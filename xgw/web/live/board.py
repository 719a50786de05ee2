"""The open lists of sessions and of turns without one: rows that change, and those that come in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from xgw.events import Envelope
from xgw.queries import filters
from xgw.queries.filters import NONE, Filters
from xgw.queries.snapshot import snapshot
from xgw.web import board
from xgw.web.api.feed import Wanted
from xgw.web.board import SessionRow, TurnRow
from xgw.web.live.screen import Swap
from xgw.web.templating import render

if TYPE_CHECKING:
    from xgw.web.app import Services

PAUSE = 0.5

_TURNS = frozenset({"turn.queued", "turn.started", "turn.updated", "turn.completed"})
_INSIDE = frozenset(
    {"run.started", "run.updated", "run.completed", "step.started", "step.completed"}
)
_SESSIONS = frozenset({"session.created", "session.updated", "session.deleted"})
_BEGINS = frozenset({"session.created", "turn.queued", "turn.started"})

AnyRow = SessionRow | TurnRow
Find = Callable[["Services", Iterable[str], Filters], list[SessionRow] | list[TurnRow]]


class List:
    """One open list. `find` reads the rows of ids, `id_of` tells whose row an event changes.

    Rows that begin come in on top if `grows`: further pages of a list do not.
    """

    pause = PAUSE

    def __init__(
        self,
        services: Services,
        events: Wanted,
        noun: str,
        find: Find,
        fitting: Filters,
        *,
        grows: bool,
    ) -> None:
        self.wanted = events
        self._services = services
        self._noun = noun
        self._find = find
        self._fitting = fitting
        self._grows = grows
        self._begun: dict[str, bool] = {}
        self._strip = ""

    def note(self, envelope: Envelope) -> None:
        """Remember whose row changes, and whether something begins there."""
        id = envelope.session_id
        if self._noun == "turn":
            id = envelope.turn_id if id is None else None
        if id is not None:
            begins = envelope.type in _BEGINS
            self._begun[id] = self._begun.get(id, False) or begins

    def draw(self) -> list[Swap]:
        """The strip, and every row of which something was noted."""
        begun, self._begun = self._begun, {}
        with snapshot(self._services.store):
            counts = board.read_strip(self._services)
            found: Iterable[AnyRow] = (
                self._find(self._services, begun, self._fitting) if begun else ()
            )
        swaps = list(self._counts(render("sessions/_strip.html", strip=counts).strip()))
        for row in found:
            id = _id_of(row)
            swaps += self._row(row, f"{self._noun}-{id}", comes=begun.pop(id))
        return swaps + [Swap(f"{self._noun}-{id}", style="delete") for id in begun]

    def _counts(self, strip: str) -> Iterator[Swap]:
        if strip != self._strip:
            self._strip = strip
            yield Swap("strip", strip)

    def _row(self, row: AnyRow, target: str, *, comes: bool) -> Iterator[Swap]:
        """The row where it stands, and on top; the page keeps the one that it had already."""
        template = f"{self._noun}s/_row.html"
        yield Swap(target, render(template, row=row).strip())
        if comes and self._grows and not row.is_gone:
            html = render(template, row=replace(row, is_new=True)).strip()
            yield Swap("rows-head", html, "afterend")


def open_sessions(services: Services, query: Mapping[str, str]) -> List:
    """The list of sessions with this `q` and `since`; `older` is one of its further pages."""
    wanted = _wanted("sessions", query, ("q", "since"))
    events = Wanted(types=_SESSIONS | _TURNS | _INSIDE)
    grows = "older" not in query
    return List(services, events, "session", board.find_sessions, wanted, grows=grows)


def open_turns(services: Services, query: Mapping[str, str]) -> List:
    """The list of turns without a session; `older` is one of its further pages."""
    wanted = _wanted("turns", query, ("status", "model", "since"))
    wanted = wanted.and_also("session_id", NONE)
    events = Wanted(types=_TURNS | _INSIDE)
    return List(services, events, "turn", board.find_turns, wanted, grows="older" not in query)


def _wanted(noun: str, query: Mapping[str, str], names: Iterable[str]) -> Filters:
    return filters.parse(noun, [(name, query[name]) for name in names if query.get(name)])


def _id_of(row: AnyRow) -> str:
    id: str = row.session["id"] if isinstance(row, SessionRow) else row.turn["id"]
    return id
