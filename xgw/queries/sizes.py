"""How much of the store each kind of row takes, and how fast it grows, without reading it all.

Of a large table rows from all over it are looked at, and the whole is reckoned from them. How many
rows came in a time is told by the row numbers at its two ends, which an index finds.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from dataclasses import dataclass

from xgw import clock
from xgw.store.database import Store
from xgw.store.models import Event, Message, Payload, RequestLog, Run, Session, Step, Table, Turn

SAMPLED = 500
"""Rows of each table that are looked at."""

DAYS = 7

_TABLES: tuple[type[Table], ...] = (
    Payload,
    Event,
    RequestLog,
    Step,
    Message,
    Turn,
    Run,
    Session,
)
_PAGES = ("page_size", "page_count", "freelist_count")


@dataclass(frozen=True, slots=True)
class Kind:
    """The rows of one table, without its indexes; reckoned unless `is_exact`."""

    table: str
    rows: int
    bytes: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Sizes:
    """What takes the room at the moment `at`: `total_bytes` are those of the file.

    `rest_bytes` are indexes and what pages have over, `free_bytes` those of pages to be used again.
    """

    at: datetime.datetime
    kinds: tuple[Kind, ...]
    rest_bytes: int
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Day:
    """About how many requests began on a day (UTC), and how many of them so far if it is today."""

    date: datetime.date
    requests: int


def measure(store: Store) -> Sizes:
    """The sizes now, in two statements."""
    names = [model._meta.table_name for model in _TABLES]
    ends = [f"(SELECT {end}(rowid) FROM {name})" for name in names for end in ("MIN", "MAX")]
    pages = [f"(SELECT {name} FROM pragma_{name})" for name in _PAGES]
    with store.reading():
        row = list(store.sql(f"SELECT {', '.join([*ends, *pages])}")[0])
        page_size, page_count, free = row[-3:]
        bounds = list(zip(row[:-3:2], row[1:-3:2], strict=True))
        samples = [_spread(first, last) for first, last in bounds]
        kinds = _kinds(store, names, bounds, samples)
    total, free_bytes = page_size * page_count, page_size * free
    rest = max(0, total - free_bytes - sum(kind.bytes for kind in kinds))
    return Sizes(clock.now(), tuple(kinds), rest, free_bytes, total)


def requests_by_day(store: Store, today: datetime.date) -> list[Day]:
    """The last DAYS days, the newest first: one statement."""
    dates = [today - datetime.timedelta(days=back) for back in range(DAYS)]
    starts = [datetime.datetime.combine(date, datetime.time()) for date in dates]
    first = (
        "(SELECT rowid FROM request_logs WHERE started_at >= ? ORDER BY started_at, rowid LIMIT 1)"
    )
    columns = ", ".join([first] * DAYS + ["(SELECT MAX(rowid) FROM request_logs)"])
    *firsts, last = store.sql(f"SELECT {columns}", tuple(map(clock.to_db, starts)))[0]
    days, after = [], (last or 0) + 1
    for date, rowid in zip(dates, firsts, strict=True):
        begin = after if rowid is None else rowid
        days.append(Day(date, max(0, after - begin)))
        after = min(after, begin)
    return days


def _spread(first: int | None, last: int | None) -> Sequence[int]:
    """Row numbers from the first to the last: all of them, or SAMPLED ones."""
    if first is None or last is None:
        return ()
    span = last - first + 1
    if span <= SAMPLED:
        return range(first, last + 1)
    # Not evenly: every second row may be of another kind, or gone.
    chance = random.Random(span)
    return sorted(
        {first + int((number + chance.random()) * span / SAMPLED) for number in range(SAMPLED)}
    )


def _kinds(
    store: Store,
    names: Sequence[str],
    bounds: Sequence[tuple[int | None, int | None]],
    samples: Sequence[Sequence[int]],
) -> list[Kind]:
    asked = [(model, sample) for model, sample in zip(_TABLES, samples, strict=True)]
    text = " UNION ALL ".join(_sum_of(model, len(sample)) for model, sample in asked)
    found = store.sql(text, tuple(rowid for _, sample in asked for rowid in sample))
    kinds = []
    for name, (first, last), sample, (count, size) in zip(
        names, bounds, samples, found, strict=True
    ):
        span = 0 if first is None or last is None else last - first + 1
        share = span / len(sample) if sample else 0
        kinds.append(Kind(name, round(count * share), round(size * share), span <= SAMPLED))
    return kinds


def _sum_of(model: type[Table], count: int) -> str:
    """How many of these rows there are, and the bytes of their values."""
    marks = ", ".join("?" * count)
    table = model._meta.table_name
    return f"SELECT COUNT(*), TOTAL({lengths(model)}) FROM {table} WHERE rowid IN ({marks})"


def lengths(model: type[Table]) -> str:
    """An expression for the bytes of a row's values."""
    return " + ".join(_length(field.column_name) for field in model._meta.sorted_fields)


def _length(column: str) -> str:
    # Of a blob the length is known without reading it; that of a text would count characters.
    return f"COALESCE(LENGTH({column if column == 'data' else f'CAST({column} AS BLOB)'}), 0)"
