"""The rows of a list of sessions, for someone who is told when they change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from xgw import clock
from xgw.errors import unprocessable
from xgw.events import Envelope
from xgw.queries import filters
from xgw.queries.filters import Filters
from xgw.web import board, serialize
from xgw.web.api.feed import Wanted
from xgw.web.board import SessionRow

if TYPE_CHECKING:
    from xgw.web.app import Services

PAUSE = 0.5
"""Seconds between two readings: what changed meanwhile is told once, as it is then."""

AT_ONCE = 200
"""Rows that are read together."""

KEPT = 10_000

Json = dict[str, Any]


class Rows:
    """The sessions that fit these filters; for one thread."""

    def __init__(self, services: Services, project: str | None, fitting: Filters) -> None:
        self.wanted = Wanted(project=project, types=board.SESSION_EVENTS)
        self._services = services
        self._fitting = fitting
        self._changed: dict[str, None] = {}
        self._told_gone: set[str] = set()
        self._read_at = clock.monotonic() - PAUSE

    def note(self, envelopes: Iterable[Envelope]) -> None:
        """Remember whose row changes."""
        for envelope in envelopes:
            if envelope.session_id is not None:
                self._changed[envelope.session_id] = None

    def due_in(self) -> float | None:
        """In how many seconds there is something to tell, 0 for now; None while there is not."""
        if not self._changed:
            return None
        return max(0.0, self._read_at + PAUSE - clock.monotonic())

    def read(self) -> list[Json]:
        """The payloads of rows that changed, the oldest change first."""
        self._read_at = clock.monotonic()
        ids = list(self._changed)[:AT_ONCE]
        for id in ids:
            del self._changed[id]
        found = {row.id: row for row in board.find_sessions(self._services, ids, self._fitting)}
        return [_payload(id, found.get(id)) for id in ids if self._is_news(id, found.get(id))]

    def _is_news(self, id: str, row: SessionRow | None) -> bool:
        """That a session does not fit is told once, until it does again."""
        if row is not None and not row.is_gone:
            self._told_gone.discard(id)
            return True
        if id in self._told_gone:
            return False
        if len(self._told_gone) >= KEPT:
            self._told_gone.clear()
        self._told_gone.add(id)
        return True


def fitting(payload: Json) -> Filters:
    """The filters of `GET /sessions` from a JSON object: texts, true or false, or lists of them."""
    pairs = [
        (name, _text(name, value)) for name, given in payload.items() for value in _all(name, given)
    ]
    return filters.parse("sessions", pairs)


def _all(name: str, given: Any) -> list[Any]:
    if given == []:
        raise unprocessable(f"{name[:64]} must not be an empty list", param=name[:64])
    return given if isinstance(given, list) else [given]


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool) and filters.NOUNS["sessions"].get(name) is filters.FLAG:
        return "true" if value else "false"
    if not isinstance(value, str):
        raise unprocessable(f"{name[:64]} must be a text, or a list of texts", param=name[:64])
    return value


def _payload(id: str, row: SessionRow | None) -> Json:
    """`fits` tells whether the list has it; null for both others once it is deleted."""
    return {
        "session_id": id,
        "fits": row is not None and not row.is_gone,
        "session": row and serialize.session_summary(row.session, row.window),
        "standing": row and serialize.standing(row.seen),
    }
