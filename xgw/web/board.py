"""The rows of the lists of sessions and of turns without one, and the strip of counts above them.

Pages and sockets read them here, so that both show the same.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from xgw import clock
from xgw.queries import overview, pages, sessions, turns
from xgw.queries.filters import Filters
from xgw.queries.overview import Overview, TurnOverview
from xgw.queries.pages import Page, Row
from xgw.queries.snapshot import snapshot
from xgw.web.imported import root, until
from xgw.web.windows import window_of_session

if TYPE_CHECKING:
    from xgw.web.app import Services

LIMIT = 50
SESSION_FILTERS = ("q", "since")
TURN_FILTERS = ("status", "model", "since")

TURN_EVENTS = frozenset(
    {
        "turn.queued",
        "turn.started",
        "turn.updated",
        "turn.completed",
        "run.started",
        "run.updated",
        "run.completed",
        "step.started",
        "step.completed",
    }
)
"""After these a turn's row is another one."""

SESSION_EVENTS = TURN_EVENTS | {"session.created", "session.updated", "session.deleted"}
"""After these a session's is."""

MOST_ROWS = 200
"""Rows that a page holds while new ones come in on top."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session in the list; `window` is how many tokens its model takes, None if unknown.

    `is_new`: it came in on top. `is_gone`: it does not fit the list's filter any more.
    """

    session: Row
    seen: Overview
    window: int | None
    cursor: str
    is_new: bool = False
    is_gone: bool = False

    @property
    def id(self) -> str:
        """The session's."""
        return str(self.session["id"])

    @property
    def key(self) -> str:
        """The same: events name it."""
        return self.id


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn in the list of those without a session; marks as a `SessionRow` has them."""

    turn: Row
    seen: TurnOverview
    cursor: str
    is_new: bool = False
    is_gone: bool = False

    @property
    def id(self) -> str:
        """The turn's."""
        return str(self.turn["id"])

    @property
    def key(self) -> str:
        """The same: events name it."""
        return self.id


@dataclass(frozen=True, slots=True)
class Rows:
    """One page of a list; `more` is the cursor of the next one, None on the last."""

    rows: list[SessionRow] | list[TurnRow]
    more: str | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """One count of the strip: the colour's state, its words, and the list behind it."""

    state: str
    number: int
    words: str
    href: str


@dataclass(frozen=True, slots=True)
class Counts:
    """What goes on, and the `seq` of the newest event at that moment."""

    strip: list[Count]
    newest: int


# -- sessions --------------------------------------------------------------------------------------


def list_sessions(services: Services, wanted: Filters, page: Page) -> Rows:
    """A page of sessions, the newest activity first."""
    with snapshot(services.store):
        found = sessions.list_sessions(services.store, wanted, page)
        return Rows(_session_rows(services, found.rows), found.next_cursor)


def find_sessions(services: Services, ids: Iterable[str], wanted: Filters) -> list[SessionRow]:
    """The rows of these sessions, as far as they are still there, oldest activity first."""
    with snapshot(services.store):
        return _session_rows(services, sessions.find_listed(services.store, ids, wanted))


def _session_rows(services: Services, rows: list[Row]) -> list[SessionRow]:
    seen = overview.of_sessions(services.store, rows)
    return [
        SessionRow(
            row,
            seen[row["id"]],
            window_of_session(services, row),
            pages.cursor_at(sessions.BY_ACTIVITY, row),
            is_gone=not row.get("fits", True),
        )
        for row in rows
    ]


# -- turns without a session -----------------------------------------------------------------------


def list_turns(services: Services, wanted: Filters, page: Page) -> Rows:
    """A page of turns, the newest first; with a filter it may be short and have more."""
    found = turns.list_alone(services.store, wanted, page)
    return Rows(_turn_rows(services, found.rows), found.next_cursor)


def find_turns(services: Services, ids: Iterable[str], wanted: Filters) -> list[TurnRow]:
    """The rows of these turns, as far as they are still there, oldest first."""
    return _turn_rows(services, turns.find_listed(services.store, ids, wanted))


def _turn_rows(services: Services, rows: list[Row]) -> list[TurnRow]:
    seen = overview.of_turns(services.store, rows)
    return [
        TurnRow(
            row,
            seen[row["id"]],
            pages.cursor_at(turns.BY_START, row),
            is_gone=not row.get("fits", True),
        )
        for row in rows
    ]


# -- the strip -------------------------------------------------------------------------------------


def read_strip(services: Services) -> Counts:
    """What goes on now, each count with the sessions behind it."""
    now = until()
    strip = overview.strip(services.store, None, now)
    since = clock.to_rfc3339(now.replace(microsecond=0) - datetime.timedelta(hours=1))
    counts = [
        Count("running", strip.running, "running", _sought("state:running")),
        Count("waiting", strip.waiting, "waiting for you", _sought("state:waiting")),
        Count("stalled", strip.stalled, "stalled", _sought("state:stalled")),
        Count(
            "error", strip.errors, "errors in the last hour", _sought("state:error", since=since)
        ),
    ]
    return Counts(counts, strip.newest)


def _sought(query: str, **more: str) -> str:
    return f"{root()}/ui/?{urlencode({'q': query, **more})}"
