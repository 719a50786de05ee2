"""Reading request logs: HTTP exchanges with upstreams, as they were on the wire."""

from __future__ import annotations

from collections.abc import Iterable

from xgw.queries import pages
from xgw.queries.conditions import of_requests
from xgw.queries.filters import Filters
from xgw.queries.pages import Page, Row, Slice, Sort
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


def find_listed(store: Store, step_ids: Iterable[str], filters: Filters) -> list[Row]:
    """The requests of these attempts, oldest first, as `list_requests` has them.

    Each with `fits`: whether `list_requests` with these filters has it.
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


def of_step(store: Store, step_id: str) -> Row | None:
    """The exchange of one attempt; None where none was begun."""
    return store.fetch_one(RequestLog.select().where(RequestLog.step_id == step_id))
