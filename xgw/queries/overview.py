"""What a list of sessions says beyond their rows: the state of each, and a title."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import peewee
from peewee import fn

from xgw.queries.pages import Row
from xgw.queries.texts import bring_back
from xgw.store.database import Store
from xgw.store.models import Run, Session, Turn


@dataclass(frozen=True, slots=True)
class Overview:
    """`state` in one word; `title` is the first user input while the session has none."""

    state: str
    title: str


def of_sessions(store: Store, rows: Iterable[Row]) -> Mapping[str, Overview]:
    """By session id: two statements, whatever the length of the histories."""
    sessions = {row["id"]: row for row in rows}
    if not sessions:
        return {}
    states = {row["id"]: row for row in store.fetch(_states(sessions))}
    titles = {row["id"]: row["title"] for row in _titles(store, sessions)}
    return {
        id: Overview(_state(row, states.get(id)), row["title"] or titles.get(id) or "")
        for id, row in sessions.items()
    }


def state_of_turn(status: str, run_status: str | None) -> str:
    """The state of a turn in one word, from its status and that of its newest run."""
    if status == "running" and run_status in ("waiting_tool", "paused"):
        return "waiting" if run_status == "waiting_tool" else "paused"
    return "done" if status == "success" else status


def _states(ids: Iterable[str]) -> peewee.ModelSelect[Session]:
    """The turn that counts (the active one, else the newest) and its newest run."""
    other = Turn.alias()
    newest = other.select(other.id).where(other.session_id == Session.id)
    newest = newest.order_by(other.turn_index.desc()).limit(1)
    run = Run.select(Run.status).where(Run.turn_id == Turn.id)
    run = run.order_by(Run.run_index.desc()).limit(1)
    return (
        Session.select(Session.id, Turn.status.alias("turn"), run.alias("run"))
        .join(Turn, on=(Turn.id == fn.COALESCE(Session.active_turn_id, newest)))
        .where(Session.id.in_(list(ids)))
    )


def _titles(store: Store, ids: Iterable[str]) -> list[Row]:
    rows = store.fetch(_first_inputs(ids))
    bring_back(store, rows, ("title",))
    return rows


def _first_inputs(ids: Iterable[str]) -> peewee.ModelSelect[Session]:
    first = (
        Turn.select(fn.SUBSTR(Turn.user_input, 1, 400))
        .where(Turn.session_id == Session.id, Turn.user_input.is_null(False))
        .order_by(Turn.turn_index)
        .limit(1)
    )
    return Session.select(Session.id, first.alias("title")).where(Session.id.in_(list(ids)))


def _state(session: Row, found: Row | None) -> str:
    if found is None:
        return "empty" if session["status"] == "active" else str(session["status"])
    state = state_of_turn(found["turn"], found["run"])
    is_over = state in ("done", "error", "cancelled")
    return str(session["status"]) if is_over and session["status"] != "active" else state
