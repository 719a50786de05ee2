"""The open lists of sessions and of turns without one, with the counts above them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xgw.events import Envelope
from xgw.queries.snapshot import snapshot
from xgw.web import board
from xgw.web.live import lists
from xgw.web.live.lists import ListScreen, Noun
from xgw.web.live.screen import Swap
from xgw.web.templating import render

if TYPE_CHECKING:
    from xgw.web.app import Services

_TURN_BEGINS = frozenset({"turn.queued", "turn.started"})


def _session_of(envelope: Envelope) -> str | None:
    return envelope.session_id


def _turn_alone(envelope: Envelope) -> str | None:
    return envelope.turn_id if envelope.session_id is None else None


SESSIONS = Noun(
    "session",
    board.SESSION_EVENTS,
    _TURN_BEGINS | {"session.created"},
    _session_of,
    board.find_sessions,
)
TURNS = Noun("turn", board.TURN_EVENTS, _TURN_BEGINS, _turn_alone, board.find_turns)


class BoardScreen(ListScreen):
    """A list under the strip of counts, which is drawn whenever it has changed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._numbers: list[int] = []

    def draw(self) -> list[Swap]:
        """The strip and the rows, at one moment."""
        with snapshot(self._services.store):
            counts = board.read_strip(self._services)
            rows = super().draw()
        # Not by its HTML: what it leads to names the second in which it was made.
        numbers = [count.number for count in counts.strip]
        if numbers == self._numbers:
            return rows
        self._numbers = numbers
        return [Swap("strip", render("sessions/_strip.html", strip=counts.strip).strip()), *rows]


def open_sessions(services: Services, query: Mapping[str, str]) -> BoardScreen:
    """The list of sessions with this `q` and `since`; `older` is one of its further pages."""
    fitting = lists.asked("sessions", query, board.SESSION_FILTERS)
    return BoardScreen(services, SESSIONS, fitting, grows=lists.grows(query))


def open_turns(services: Services, query: Mapping[str, str]) -> BoardScreen:
    """The list of turns without a session; `older` is one of its further pages."""
    fitting = lists.asked("turns", query, board.TURN_FILTERS)
    return BoardScreen(services, TURNS, fitting, grows=lists.grows(query))
