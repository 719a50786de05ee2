"""Reading sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from xgw import ids
from xgw.queries import pages, payloads, steps
from xgw.queries.conditions import Reader, activity_of, of_query, of_sessions, session_id_of
from xgw.queries.filters import Filters
from xgw.queries.pages import Page, Row, Slice, Sort
from xgw.store.database import Store
from xgw.store.models import Session

BY_ACTIVITY = Sort(
    "activity",
    activity_of(Session),
    Session.id,
    lambda row: pages.first_text(row, ("last_turn_at", "created_at")),
)


def list_sessions(store: Store, filters: Filters, page: Page, project: str | None = None) -> Slice:
    """Sessions by their last activity; `project` bounds them, None is all of them.

    With a query a page may be short, even empty, and have more: see `pages.search`.
    """
    conditions = of_sessions(filters, project)
    if not filters.sought:
        return pages.fetch(store, Session.select(), conditions, BY_ACTIVITY, page)
    sought = of_query(filters)
    return pages.search(store, Session.select(), conditions, sought, BY_ACTIVITY, page)


def find_listed(store: Store, ids: Iterable[str], filters: Filters) -> list[Row]:
    """Those of these sessions that are still there, oldest activity first.

    Each with `fits`: whether `list_sessions` with these filters has it.
    """
    query = pages.marked(Session, [Session], [*of_sessions(filters, None), *of_query(filters)])
    query = query.where(Session.id.in_(list(ids))).order_by(activity_of(Session), Session.id)
    return store.fetch(query)


def find_session(store: Store, ref: str, project: str | None = None) -> Row | None:
    """One session by its id, else by its session key in `project` (None: in `default`)."""
    try:
        named = session_id_of(ids.client_identifier(ref), Reader(project))
    except ValueError:
        return None
    query = Session.select().where(Session.id == named)
    if project is not None:
        query = query.where(Session.project_id == project)
    return store.fetch_one(query)


def find_tools(store: Store, session_id: str) -> list[Any]:
    """The tools that the session's newest model call offered, as they were sent; [] for none."""
    call = steps.last_call(store, session_id)
    body = payloads.find_body(store, call["input_payload"]) if call else None
    sent = payloads.decoded(body) if body else None
    tools = sent.get("tools") if isinstance(sent, dict) else None
    return tools if isinstance(tools, list) else []
