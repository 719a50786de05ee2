"""Reading turns, alone and with all that was done in them."""

from __future__ import annotations

from xgw.queries import pages, runs
from xgw.queries.conditions import of_turns, start_of
from xgw.queries.filters import NONE, Filters
from xgw.queries.pages import Page, Row, Slice, Sort
from xgw.queries.snapshot import snapshot
from xgw.store.database import Store
from xgw.store.models import Turn

BY_START = Sort(
    "start",
    start_of(Turn),
    Turn.id,
    lambda row: pages.first_text(row, ("started_at", "created_at")),
)
BY_INDEX = Sort("turn_index", Turn.turn_index, Turn.id, lambda row: int(row["turn_index"]))


def list_turns(store: Store, filters: Filters, page: Page, project: str | None = None) -> Slice:
    """Turns by their start, those of one session by their index in it."""
    one_session = filters.has("session_id") and filters.values("session_id") != (NONE,)
    conditions = of_turns(filters, project)
    return pages.fetch(
        store, Turn.select(), conditions, BY_INDEX if one_session else BY_START, page
    )


def find_turn(store: Store, turn_id: str, project: str | None = None) -> Row | None:
    """One turn's own row."""
    query = Turn.select().where(Turn.id == turn_id)
    if project is not None:
        query = query.where(Turn.project_id == project)
    return store.fetch_one(query)


def find_turn_with_runs(store: Store, turn_id: str, project: str | None = None) -> Row | None:
    """One turn with `runs`, each with its `steps`: three statements."""
    with snapshot(store):
        turn = find_turn(store, turn_id, project)
        if turn is not None:
            turn["runs"] = runs.of_turn(store, turn_id)
    return turn
