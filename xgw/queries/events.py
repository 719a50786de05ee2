"""Reading stored events, in the order of `seq`."""

from __future__ import annotations

from collections.abc import Collection

from xgw.events import Envelope
from xgw.queries.snapshot import snapshot
from xgw.queries.texts import bring_back_events
from xgw.store.database import Store
from xgw.store.models import Event

NEWEST = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"


def list_events(
    store: Store,
    after: int,
    limit: int = 500,
    *,
    project: str | None = None,
    session_id: str | None = None,
    turn_id: str | None = None,
    types: Collection[str] | None = None,
) -> list[Envelope]:
    """At most `limit` events with a `seq` above `after`; None for a bound means no bound."""
    query = Event.select().where(Event.seq > after)
    if project is not None:
        query = query.where(Event.project_id == project)
    if session_id is not None:
        query = query.where(Event.session_id == session_id)
    if turn_id is not None:
        query = query.where(Event.turn_id == turn_id)
    if types is not None:
        query = query.where(Event.type.in_(types))
    with snapshot(store):
        rows = store.fetch(query.order_by(Event.seq).limit(limit))
        bring_back_events(store, rows)
    return [Envelope(**row) for row in rows]


def newest_failure(store: Store, turn_id: str) -> Envelope | None:
    """A turn's newest `llm.error`: what came of its newest attempt that failed."""
    query = Event.select().where(Event.turn_id == turn_id, Event.type == "llm.error")
    with snapshot(store):
        rows = store.fetch(query.order_by(Event.seq.desc()).limit(1))
        bring_back_events(store, rows)
    return Envelope(**rows[0]) if rows else None


def newest(store: Store) -> int:
    """The highest `seq` that there has been, 0 for none: its event may be pruned by now."""
    found = store.sql(NEWEST)
    return int(found[0][0]) if found else 0
