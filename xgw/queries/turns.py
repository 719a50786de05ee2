"""Reading turns, alone and with all that was done in them."""

from __future__ import annotations

from collections.abc import Iterable

from xgw.queries import pages, runs
from xgw.queries.conditions import of_turns, start_of
from xgw.queries.filters import NONE, Filters
from xgw.queries.pages import Page, Row, Slice, Sort
from xgw.queries.snapshot import snapshot
from xgw.queries.texts import OF_TURNS, bring_back, take_text, with_text
from xgw.store.database import Store
from xgw.store.models import Turn

BY_START = Sort(
    "start",
    start_of(Turn),
    Turn.id,
    lambda row: pages.first_text(row, ("started_at", "created_at")),
)
_HEAD = [f for f in Turn._meta.sorted_fields if f is not Turn.final_output]
BY_INDEX = Sort("turn_index", Turn.turn_index, Turn.id, lambda row: int(row["turn_index"]))


def list_turns(store: Store, filters: Filters, page: Page, project: str | None = None) -> Slice:
    """Turns by their start, those of one session by their index in it."""
    conditions = of_turns(filters, project)
    with snapshot(store):
        found = pages.fetch(store, Turn.select(), conditions, sort_of(filters), page)
        bring_back(store, found.rows, OF_TURNS)
    return found


def sort_of(filters: Filters) -> Sort:
    """What a list of turns is sorted by: of one session by their index, else by their start."""
    one_session = filters.has("session_id") and filters.values("session_id") != (NONE,)
    return BY_INDEX if one_session else BY_START


def list_alone(store: Store, filters: Filters, page: Page) -> Slice:
    """Turns without a session by their start, without what they answered.

    With a filter a page may be short, even empty, and have more: see `pages.search`.
    """
    heads = with_text(Turn.select(*_HEAD), Turn.user_input)
    alone = [Turn.session_id.is_null()]
    if filters.conditions:
        sought = of_turns(filters, None)
        found = pages.search(store, heads, alone, sought, BY_START, page)
    else:
        found = pages.fetch(store, heads, alone, BY_START, page)
    take_text(found.rows, "user_input")
    return found


def find_listed(store: Store, ids: Iterable[str], filters: Filters) -> list[Row]:
    """Those of these turns that are still there, oldest first, as `list_alone` has them.

    Each with `fits`: whether the filters do.
    """
    query = pages.marked(Turn, _HEAD, of_turns(filters, None))
    query = query.where(Turn.id.in_(list(ids))).order_by(start_of(Turn), Turn.id)
    with snapshot(store):
        rows = store.fetch(query)
        bring_back(store, rows, ("user_input",))
    return rows


def find_turn(store: Store, turn_id: str, project: str | None = None) -> Row | None:
    """One turn's own row."""
    query = Turn.select().where(Turn.id == turn_id)
    if project is not None:
        query = query.where(Turn.project_id == project)
    with snapshot(store):
        rows = store.fetch(query)
        bring_back(store, rows, OF_TURNS)
    return rows[0] if rows else None


def find_turn_with_runs(store: Store, turn_id: str, project: str | None = None) -> Row | None:
    """One turn with `runs`, each with its `steps`: three statements."""
    with snapshot(store):
        turn = find_turn(store, turn_id, project)
        if turn is not None:
            turn["runs"] = runs.of_turn(store, turn_id)
    return turn
