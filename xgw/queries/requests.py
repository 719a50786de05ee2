"""Reading request logs: HTTP exchanges with upstreams, as they were on the wire."""

from __future__ import annotations

from collections.abc import Iterable

import peewee
from peewee import fn

from xgw.queries import pages
from xgw.queries.conditions import of_requests
from xgw.queries.filters import Condition, Filters
from xgw.queries.pages import Page, Row, Slice, Sort
from xgw.queries.spelled import Brought, fetch_whole
from xgw.store.database import Store
from xgw.store.models import RequestLog

BY_START = Sort(
    "started_at",
    RequestLog.started_at,
    RequestLog.id,
    lambda row: pages.first_text(row, ("started_at",)),
)

LISTED = [f for f in RequestLog._meta.sorted_fields if f is not RequestLog.frames]
"""A stream's timing has an entry for each read: too much for a list."""


def list_requests(store: Store, filters: Filters, page: Page, project: str | None = None) -> Slice:
    """Request logs by their start, without `frames`."""
    conditions = of_requests(filters, project)
    return pages.fetch(store, RequestLog.select(*LISTED), conditions, BY_START, page)


def search_requests(store: Store, filters: Filters, page: Page) -> Slice:
    """The same in bounded time: a page may be short, even empty, and have more.

    See `pages.search`; what no index finds is looked for among the newest.
    """
    bounds = Filters(tuple(c for c in filters.conditions if _has_index(c)))
    sought = Filters(tuple(c for c in filters.conditions if not _has_index(c)))
    if not sought.conditions:
        return list_requests(store, filters, page)
    select = RequestLog.select(*LISTED)
    conditions = of_requests(bounds, None), of_requests(sought, None)
    return pages.search(store, select, *conditions, BY_START, page)


def _has_index(condition: Condition) -> bool:
    match condition.name:
        case "turn_id" | "session_id" | "since" | "until":
            return True
        case "status":
            return "success" not in condition.values
        case "status_code":
            return all(str(value)[0] in "45" for value in condition.values)
    return False


def find_listed(store: Store, step_ids: Iterable[str], filters: Filters) -> list[Row]:
    """The requests of these attempts, oldest first, as `list_requests` has them.

    Each with `fits`: whether the filters do.
    """
    query = pages.marked(RequestLog, LISTED, of_requests(filters, None))
    query = query.where(RequestLog.step_id.in_(list(step_ids)))
    return store.fetch(query.order_by(RequestLog.started_at, RequestLog.id))


def find_request(store: Store, request_id: str, project: str | None = None) -> Row | None:
    """One request log, whole."""
    query = RequestLog.select().where(RequestLog.id == request_id)
    if project is not None:
        query = query.where(RequestLog.project_id == project)
    return store.fetch_one(query)


def exchanges_of_step(store: Store, step_id: str) -> list[Row]:
    """The exchanges of one attempt in order: their `id`, `method` and `status_code`."""
    query = RequestLog.select(RequestLog.id, RequestLog.method, RequestLog.status_code)
    query = query.where(RequestLog.step_id == step_id)
    return store.fetch(query.order_by(RequestLog.started_at, RequestLog.id))


def last_of_step(store: Store, step_id: str) -> Row | None:
    """The last exchange of one attempt, whole, with how many (`exchanges`) it has in all."""
    return store.fetch_one(_last_of_step(step_id))


def find_last_whole(store: Store, step_id: str) -> tuple[Row, Brought] | None:
    """The same with its bodies: one statement."""
    query = _last_of_step(step_id).limit(1)
    rows, brought = fetch_whole(store, query, hashes=("request_payload", "response_body"))
    return (rows[0], brought) if rows else None


def _last_of_step(step_id: str) -> peewee.ModelSelect[RequestLog]:
    other = RequestLog.alias()
    count = other.select(fn.COUNT(other.id)).where(other.step_id == step_id)
    query = RequestLog.select(RequestLog, count.alias("exchanges"))
    query = query.where(RequestLog.step_id == step_id)
    return query.order_by(RequestLog.started_at.desc(), RequestLog.id.desc())


def of_step(store: Store, step_id: str) -> Row | None:
    """The exchange of one attempt; None where none was begun."""
    return store.fetch_one(RequestLog.select().where(RequestLog.step_id == step_id))
