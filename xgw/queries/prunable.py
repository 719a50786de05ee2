"""About how much a prune would take, by age, without looking at all of it.

Rows are counted, up to MOST; of bodies those of the oldest and of the newest of these turns are
looked at, and the whole is reckoned from them. What turns share may stay.
"""

from __future__ import annotations

import datetime

import orjson

from xgw import clock
from xgw.frozen import frozen
from xgw.store.database import Store

SAMPLED = 200
"""Turns whose bodies are looked at, for each age."""

MOST = 100_000
"""Rows that are counted: more than these are as many."""

AGES = (7, 30, 90, 365)
"""Days."""

SESSIONS = (
    "SELECT COUNT(*) FROM (SELECT 1 FROM sessions "
    "WHERE COALESCE(last_turn_at, created_at) < ? LIMIT ?)"
)
TURNS = (
    "SELECT COUNT(*) FROM (SELECT 1 FROM turns WHERE COALESCE(started_at, created_at) < ? LIMIT ?)"
)
SOME = (
    "SELECT id FROM turns WHERE COALESCE(started_at, created_at) < ? "
    "ORDER BY COALESCE(started_at, created_at) {}, id {} LIMIT ?"
)
BODIES = (
    "WITH some(id) AS (SELECT value FROM json_each(?)), named(hash) AS ("
    "SELECT input_payload FROM steps WHERE turn_id IN (SELECT id FROM some) UNION "
    "SELECT output_payload FROM steps WHERE turn_id IN (SELECT id FROM some) UNION "
    "SELECT request_payload FROM request_logs WHERE turn_id IN (SELECT id FROM some) UNION "
    "SELECT response_body FROM request_logs WHERE turn_id IN (SELECT id FROM some)) "
    "SELECT TOTAL(length(p.data)) FROM named n JOIN payloads p "
    "ON p.hash = packed_hash(COALESCE(n.hash, ''))"
)


@frozen
class Prunable:
    """What is older than so many days.

    `sessions` and `turns` are MOST where there are at least as many, `body_bytes` are reckoned
    unless `is_exact`.
    """

    days: int
    sessions: int
    turns: int
    body_bytes: int
    is_exact: bool


def reckon(store: Store, now: datetime.datetime) -> list[Prunable]:
    """For each of AGES, the youngest first; five short statements each."""
    return [_older(store, clock.to_db(now - datetime.timedelta(days=n)), n) for n in AGES]


def _older(store: Store, before: str, days: int) -> Prunable:
    [(sessions,)], [(turns,)] = (store.sql(text, (before, MOST)) for text in (SESSIONS, TURNS))
    some = {
        id
        for way in ("ASC", "DESC")
        for (id,) in store.sql(SOME.format(way, way), (before, SAMPLED // 2))
    }
    [(size,)] = store.sql(BODIES, (orjson.dumps(sorted(some)).decode(),))
    share = turns / len(some) if some else 0
    return Prunable(days, sessions, turns, round(size * share), len(some) == turns)
