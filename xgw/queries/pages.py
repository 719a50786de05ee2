"""Keyset pagination: a page starts after the last row of the one before, never at an offset."""

from __future__ import annotations

import base64
import binascii
import datetime
import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
import peewee

from xgw import clock, errors
from xgw.queries.snapshot import snapshot
from xgw.store.database import Store

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
EXAMINED = 5000
"""Rows that a page of a search looks at: some ten milliseconds' worth."""

Row = dict[str, Any]
Order = Literal["asc", "desc"]


@dataclass(frozen=True, slots=True)
class Page:
    """Which page is asked for; `cursor` is the `next_cursor` of the page before."""

    limit: int = DEFAULT_LIMIT
    cursor: str | None = None
    order: Order = "desc"


@dataclass(frozen=True, slots=True)
class Slice:
    """One page of rows; `next_cursor` is None on the last one."""

    rows: list[Row] = field(default_factory=list)
    has_more: bool = False
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Sort:
    """What a list is sorted by: an expression that is never null, then the unique `id`.

    `value_of` reads the expression's value from a row, as the store spells it; `name` keeps a
    cursor from being used on a list that is sorted by something else.
    """

    name: str
    expression: peewee.ColumnBase
    id: peewee.Field
    value_of: Callable[[Row], str | int]


def fetch(
    store: Store,
    query: peewee.ModelSelect[Any],
    conditions: Iterable[peewee.ColumnBase],
    sort: Sort,
    page: Page,
) -> Slice:
    """One page of `query` under `conditions`, in one statement.

    Raises ApiError 400 `invalid_cursor`.
    """
    rows = store.fetch(_sorted(query, conditions, sort, page).limit(page.limit + 1))
    return _slice(rows, sort, page)


def fetch_beside(
    store: Store,
    query: peewee.ModelSelect[Any],
    conditions: Iterable[peewee.ColumnBase],
    others: Iterable[peewee.ColumnBase],
    sort: Sort,
    page: Page,
) -> tuple[Slice, list[Row]]:
    """One page of `query` as `fetch` gives it, and all rows under `others`: one statement."""
    shown: Any = _sorted(query.model.select(sort.id), conditions, sort, page)
    shown = shown.limit(page.limit + 1).alias("shown")
    on_page: Any = peewee.Select((shown,), (shown.c.id, peewee.SQL("1").alias("is_shown")))
    beside = query.model.select(sort.id, peewee.SQL("0")).where(*others)
    named = on_page.union_all(beside).alias("named")
    query = query.select_extend(named.c.is_shown).join(
        named, on=(named.c.id == sort.id), src=query.model
    )
    term = sort.expression.asc() if page.order == "asc" else sort.expression.desc()
    parted: tuple[list[Row], list[Row]] = ([], [])
    for row in store.fetch(query.order_by(term)):
        parted[row.pop("is_shown")].append(row)
    return _slice(parted[1], sort, page), parted[0]


def search(
    store: Store,
    query: peewee.ModelSelect[Any],
    conditions: Iterable[peewee.ColumnBase],
    sought: Iterable[peewee.ColumnBase],
    sort: Sort,
    page: Page,
) -> Slice:
    """One page of those rows under `conditions` for which `sought` holds, that no index finds.

    At most EXAMINED rows are looked at: the page may hold less than its limit, even nothing, and
    have more all the same. Its cursor then goes on behind the last row that was looked at.
    """
    bounds = list(conditions)
    with snapshot(store):
        last = _last_examined(store, query, bounds, sort, page)
        if last is not None:
            bounds += _upto(sort, sort.value_of(last), last["id"], page.order == "asc")
        found = fetch(store, query, [*bounds, *sought], sort, page)
    if found.has_more or last is None:
        return found
    return Slice(found.rows, True, cursor_at(sort, last))


def marked(
    model: Any, columns: Iterable[Any], conditions: Iterable[peewee.ColumnBase]
) -> peewee.ModelSelect[Any]:
    """These columns of each row, and `fits`: 1 where all of these conditions hold, else 0."""
    fits: Any = functools.reduce(operator.and_, conditions, peewee.SQL("1"))
    query: peewee.ModelSelect[Any] = model.select(
        *columns, peewee.Case(None, ((fits, 1),), 0).alias("fits")
    )
    return query


def parse(limit: str | None, cursor: str | None, order: str | None) -> Page:
    """A page from query parameters. Raises ApiError 422 that names the parameter."""
    if order not in (None, "asc", "desc"):
        raise errors.unprocessable("order must be asc or desc", param="order")
    return Page(_limit(limit), cursor, "asc" if order == "asc" else "desc")


def first_text(row: Row, names: Iterable[str]) -> str:
    """The first of these times that a row has, as the store spells it."""
    moment: datetime.datetime = next(row[name] for name in names if row[name] is not None)
    return clock.to_db(moment)


def cursor_at(sort: Sort, row: Row) -> str:
    """The cursor of the page that begins after this row."""
    position = orjson.dumps([sort.name, sort.value_of(row), row["id"]])
    return base64.urlsafe_b64encode(position).rstrip(b"=").decode()


def _slice(rows: list[Row], sort: Sort, page: Page) -> Slice:
    """A page, from one row more than it has."""
    has_more = len(rows) > page.limit
    del rows[page.limit :]
    return Slice(rows, has_more, cursor_at(sort, rows[-1]) if has_more else None)


def _sorted(
    query: peewee.ModelSelect[Any],
    conditions: Iterable[peewee.ColumnBase],
    sort: Sort,
    page: Page,
) -> peewee.ModelSelect[Any]:
    """Everything that comes after the page before."""
    ascending = page.order == "asc"
    bounds = list(conditions)
    if page.cursor is not None:
        bounds += _beyond(sort, *_decoded(page.cursor, sort.name), ascending)
    if bounds:
        query = query.where(*bounds)
    terms = (sort.expression, sort.id)
    return query.order_by(*(term.asc() if ascending else term.desc() for term in terms))


def _beyond(sort: Sort, value: str | int, last: str, ascending: bool) -> list[peewee.Expression]:
    # The comparison of pairs alone finds the rows, but SQLite uses no expression index for it.
    pair, limit = peewee.Tuple(sort.expression, sort.id), peewee.Tuple(value, last)
    if ascending:
        return [sort.expression >= value, pair > limit]
    return [sort.expression <= value, pair < limit]


def _upto(sort: Sort, value: str | int, last: str, ascending: bool) -> list[peewee.Expression]:
    pair, limit = peewee.Tuple(sort.expression, sort.id), peewee.Tuple(value, last)
    if ascending:
        return [sort.expression <= value, pair <= limit]
    return [sort.expression >= value, pair >= limit]


def _last_examined(
    store: Store,
    query: peewee.ModelSelect[Any],
    conditions: list[peewee.ColumnBase],
    sort: Sort,
    page: Page,
) -> Row | None:
    """The last row that a page looks at; None if it looks at all that there are."""
    rows = store.fetch(_sorted(query, conditions, sort, page).limit(2).offset(EXAMINED - 1))
    return rows[0] if len(rows) == 2 else None


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MAX_LIMIT:
        return int(text)
    raise errors.unprocessable(f"limit must be a whole number from 1 to {MAX_LIMIT}", param="limit")


def _decoded(cursor: str, name: str) -> tuple[str | int, str]:
    try:
        raw = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), b"-_", validate=True)
        match orjson.loads(raw):
            case [str(of), str(text), str(last)] if of == name:
                return text, last
            case [str(of), int(number), str(last)] if of == name and abs(number) < 1 << 63:
                return number, last
    except (binascii.Error, orjson.JSONDecodeError, UnicodeEncodeError):
        pass
    raise errors.bad_request(
        "cursor is not one that this list gave out", code="invalid_cursor", param="cursor"
    )
