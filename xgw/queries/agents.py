"""Reading agents' turns that run or wait."""

from __future__ import annotations

from xgw.queries.pages import Row
from xgw.queries.snapshot import snapshot
from xgw.queries.texts import bring_back
from xgw.store.database import Store
from xgw.store.models import Run, Turn


def find_holder(store: Store, session_id: str) -> str | None:
    """The agent's turn that is under way in a session, in whatever process."""
    query = Turn.select(Turn.id).where(Turn.exclusive_key == session_id)
    row = store.fetch_one(query)
    return None if row is None else str(row["id"])


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
