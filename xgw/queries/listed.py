"""The ids of all that a list has, without its rows, and how many they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import peewee
from peewee import fn

from xgw.frozen import frozen
from xgw.queries import pages, requests, sessions, turns
from xgw.queries.conditions import of_query, of_requests, of_sessions, of_turns
from xgw.queries.filters import Filters
from xgw.queries.pages import Page, Slice, Sort
from xgw.store.database import Store
from xgw.store.models import RequestLog, Session, Turn


@frozen
class _List:
    """A list: its rows, what narrows it, and its order with the columns that this needs."""

    model: Any
    conditions: Any
    sort: Sort
    columns: tuple[Any, ...]


def _of_loose(filters: Filters, project: str | None) -> list[peewee.ColumnBase]:
    of_none = [RequestLog.session_id.is_null(), RequestLog.turn_id.is_null()]
    return [*of_requests(filters, project), *of_none]


_LISTS = {
    "sessions": _List(
        Session, of_sessions, sessions.BY_ACTIVITY, (Session.last_turn_at, Session.created_at)
    ),
    "turns": _List(Turn, of_turns, turns.BY_START, (Turn.started_at, Turn.created_at)),
    "requests": _List(RequestLog, of_requests, requests.BY_START, (RequestLog.started_at,)),
    "loose": _List(RequestLog, _of_loose, requests.BY_START, (RequestLog.started_at,)),
}
"""`loose` are requests of which neither session nor turn is known."""


def list_ids(
    store: Store, noun: str, filters: Filters, project: str | None = None
) -> Iterator[str]:
    """Those that fit, the newest first; `project` bounds them, None is all of them."""
    page = Page(pages.MAX_LIMIT)
    while True:
        found = _page(store, _LISTS[noun], filters, project, page)
        yield from (row["id"] for row in found.rows)
        if not found.has_more:
            return
        page = Page(pages.MAX_LIMIT, found.next_cursor)


def count(store: Store, noun: str, filters: Filters, project: str | None = None) -> int | None:
    """How many fit; None where a query has to be held against each to know."""
    if filters.sought:
        return None
    one = _LISTS[noun]
    conditions = one.conditions(filters, project)
    query = one.model.select(fn.COUNT(one.model.id).alias("number"))
    (row,) = store.fetch(query.where(*conditions) if conditions else query)
    number: int = row["number"]
    return number


def _page(store: Store, one: _List, filters: Filters, project: str | None, page: Page) -> Slice:
    query = one.model.select(one.model.id, *one.columns)
    conditions = one.conditions(filters, project)
    if filters.sought:
        return pages.search(store, query, conditions, of_query(filters), one.sort, page)
    return pages.fetch(store, query, conditions, one.sort, page)
