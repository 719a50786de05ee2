"""Reading agents' turns that run or wait, and how much agents are used."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import peewee
from peewee import fn

from xgw.queries import lines
from xgw.queries.conditions import activity_of
from xgw.queries.filters import OPEN_TURN
from xgw.queries.pages import Page, Row
from xgw.queries.snapshot import snapshot
from xgw.queries.texts import bring_back
from xgw.queries.turns import BY_INDEX
from xgw.store.database import Store
from xgw.store.models import Event, Run, Session, Turn

MOST_OPEN = 101
"""Turns of a session that are not over: one that runs, and as many as may wait."""


@dataclass(frozen=True, slots=True)
class Use:
    """How many sessions an agent has, and when the last of them was used."""

    sessions: int = 0
    last_at: datetime.datetime | None = None


def find_holder(store: Store, session_id: str) -> Row | None:
    """The agent's turn that is open in a session, in whatever process: `id`, and of its newest run
    `run_id`, `run_status`, `owner`."""
    query = (
        Turn.select(Turn.id, Run.id.alias("run_id"), Run.status.alias("run_status"), Run.owner)
        .join(Run, on=(Run.turn_id == Turn.id))
        .where(Turn.exclusive_key == session_id)
        .order_by(Run.run_index.desc())
    )
    return store.fetch_one(query)


def find_newest(store: Store, session_id: str) -> Row | None:
    """The newest turn of an agent in a session that has begun."""
    query = Turn.select().where(
        Turn.session_id == session_id, Turn.endpoint.is_null(), Turn.status != "queued"
    )
    return store.fetch_one(query.order_by(Turn.turn_index.desc()))


def list_queued(store: Store) -> list[Row]:
    """The turns that wait, in order, each with `run_id`, `overrides` and `owner` of its run."""
    query = (
        Turn.select(Turn, Run.id.alias("run_id"), Run.overrides, Run.owner)
        .join(Run, on=(Run.turn_id == Turn.id))
        .where(Turn.status == "queued")
        .order_by(Turn.session_id, Turn.turn_index)
    )
    with snapshot(store):
        rows = store.fetch(query)
        bring_back(store, rows, ("user_input",))
    return rows


def find_first_queued(store: Store, session_id: str) -> str | None:
    """The turn that waits the longest in a session, in whatever process; None if none does."""
    waits = [Turn.session_id.concat("") == session_id, Turn.status == "queued"]
    row = store.fetch_one(Turn.select(Turn.id).where(*waits).order_by(Turn.turn_index))
    return None if row is None else row["id"]


def list_open(store: Store, session_id: str) -> list[Row]:
    """An agent's turns in a session that run or wait, as lines in order: one statement."""
    page = Page(MOST_OPEN, None, "asc")
    return lines.fetch(store, open_in(session_id), BY_INDEX, page).rows


def open_in(session_id: str) -> list[peewee.ColumnBase]:
    """The conditions on `turns` that an agent's turns of a session fulfil while they are open."""
    # Not by the index on sessions: a session may have any number of turns, and few are open.
    return [
        Turn.session_id.concat("") == session_id,
        Turn.status.in_(OPEN_TURN),
        Turn.endpoint.is_null(),
    ]


def count_use(store: Store) -> Mapping[str, Use]:
    """The use of each agent that has sessions, by its name: one statement."""
    query = (
        _use(Session.agent_name)
        .where(Session.kind == "agent", Session.agent_name.is_null(False))
        .group_by(Session.agent_name)
    )
    return {row["agent_name"]: Use(row["number"], row["last_at"]) for row in store.fetch(query)}


def find_use(store: Store, name: str) -> tuple[Use, int]:
    """The use of one agent, and the `seq` of the newest event then: one statement."""
    newest = Event.select(fn.COALESCE(fn.MAX(Event.seq), 0)).alias("newest")
    query = _use(newest).where(Session.kind == "agent", Session.agent_name == name)
    [row] = store.fetch(query)
    return Use(row["number"], row["last_at"]), row["newest"]


def names_in(store: Store, session_ids: Collection[str]) -> set[str]:
    """The agents whose sessions are among these: one statement."""
    query = Session.select(Session.agent_name).where(
        Session.id.in_(list(session_ids)), Session.kind == "agent"
    )
    return {row["agent_name"] for row in store.fetch(query.distinct())}


def _use(*columns: Any) -> peewee.ModelSelect[Session]:
    last_at = fn.MAX(activity_of(Session)).converter(Session.created_at.python_value)
    return Session.select(*columns, fn.COUNT(Session.id).alias("number"), last_at.alias("last_at"))
