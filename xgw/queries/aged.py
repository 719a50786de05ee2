"""What has had no activity for long: sessions, and turns and requests without one."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator

from xgw import clock
from xgw.queries.filters import Filters
from xgw.queries.pages import Page, Row
from xgw.queries.sessions import list_sessions
from xgw.store.database import Store
from xgw.store.digits import whole_id
from xgw.store.rows import PRUNED

PAGE = 500
STATUSES = ("active", "archived", "closed")
EVERYTHING = Filters().and_also("status", *STATUSES)

OPEN = "('queued', 'running')"
IDLE = (
    "SELECT 1 FROM sessions s WHERE s.id = ? AND COALESCE(s.last_turn_at, s.created_at) < ? "
    f"AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id AND t.status IN {OPEN})"
)
"""Whether a session has had no activity since then, and nothing is under way in it."""

TURNS_ALONE = (
    "SELECT id FROM turns WHERE session_id IS NULL AND COALESCE(started_at, created_at) < ? "
    f"AND status NOT IN {OPEN} ORDER BY COALESCE(started_at, created_at), id LIMIT ?"
)
REQUESTS_ALONE = (
    "SELECT id FROM request_logs WHERE session_id IS NULL AND turn_id IS NULL "
    "AND started_at < ? AND ended_at IS NOT NULL ORDER BY started_at LIMIT ?"
)
BODY = (
    "SELECT 1 FROM steps s JOIN payloads p ON p.hash = packed_hash(COALESCE(s.input_payload, '')) "
    f"WHERE s.started_at < ? AND s.status <> 'running' AND p.codec <> '{PRUNED}' LIMIT 1"
)
EVENTS_ALONE = (
    "SELECT seq, session_id FROM events WHERE seq > ? AND at < ? AND turn_id IS NULL "
    "AND seq < (SELECT MAX(seq) FROM events) ORDER BY seq LIMIT ?"
)


def sessions(
    store: Store, filters: Filters | None, before: datetime.datetime | None = None
) -> Iterator[Row]:
    """Sessions whose last activity was before then, the oldest first; with filters those that fit.

    None are left out without filters; with them those that `list_sessions` leaves out.
    """
    page, wanted = Page(PAGE, None, "asc"), EVERYTHING if filters is None else filters
    while True:
        found = list_sessions(store, wanted, page)
        for row in found.rows:
            if before is not None and (row["last_turn_at"] or row["created_at"]) >= before:
                return
            yield row
        if not found.has_more:
            return
        page = Page(PAGE, found.next_cursor, "asc")


def is_idle(store: Store, session_id: str, before: datetime.datetime) -> bool:
    """Whether a session has had no activity since then, and nothing is under way in it."""
    return bool(store.sql(IDLE, (session_id, clock.to_db(before))))


def turns_alone(store: Store, before: datetime.datetime, most: int = -1) -> list[str]:
    """The oldest turns without a session that began before then and have ended."""
    return [row[0] for row in store.sql(TURNS_ALONE, (clock.to_db(before), most))]


def requests_alone(store: Store, before: datetime.datetime, most: int = -1) -> list[str]:
    """The oldest requests without a turn that began before then and have ended."""
    return [row[0] for row in store.sql(REQUESTS_ALONE, (clock.to_db(before), most))]


def has_bodies(store: Store, before: datetime.datetime) -> bool:
    """Whether a step that began before then still has the body that it sent."""
    return bool(store.sql(BODY, (clock.to_db(before),)))


def events_alone(store: Store, before: datetime.datetime) -> Iterator[list[int]]:
    """The events before then that tell of no turn, and of no session that there is, by `seq`.

    The newest event of all is none of them: it tells where the next one begins.
    """
    after, passed = 0, clock.to_microseconds(before)
    while rows := store.sql(EVENTS_ALONE, (after, passed, PAGE)):
        after = rows[-1][0]
        named = {seq: whole_id(kept, "sess") for seq, kept in rows if kept is not None}
        found = _existing(store, set(named.values()))
        yield [seq for seq, _ in rows if named.get(seq) not in found]


def _existing(store: Store, sessions: Collection[str]) -> set[str]:
    places = ", ".join("?" * len(sessions))
    return {
        row[0]
        for row in store.sql(f"SELECT id FROM sessions WHERE id IN ({places})", tuple(sessions))
    }
