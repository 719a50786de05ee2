"""Turns as lines of a list: their light columns with those of the newest run, and texts cut short.

The run's are `run_id`, `run_index`, `run_kind`, `run_status`, `run_started_at` and `run_ms` (its
`latency_ms`); `user_input` and `error_message`
have at most CHARACTERS. Beside the columns a line has
- `state`: in one word, as in `overview`;
- `began_at`, `took_ms`: when it began and how long it took, of one with several runs the newest,
  for the time between two runs is no work;
- `limit`: the limit that ended it (`iterations`, `turn_tokens`, `cost` …), else None;
- `last_index`: of the newest turn in its session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import peewee
from peewee import JOIN, fn

from xgw.queries import pages
from xgw.queries.conditions import of_turns
from xgw.queries.filters import Filters
from xgw.queries.overview import state_of_turn
from xgw.queries.pages import Page, Row, Slice, Sort
from xgw.queries.texts import take_text, with_text
from xgw.queries.turns import sort_of
from xgw.store.database import Store
from xgw.store.models import Run, Turn

CHARACTERS = 200

_HEAVY = frozenset(
    {"input_payload", "final_output", "error_message", "config_snapshot", "metadata"}
)
_COLUMNS = [f for f in Turn._meta.sorted_fields if f.name not in _HEAVY]


def list_lines(store: Store, filters: Filters, page: Page, project: str | None = None) -> Slice:
    """Turns by their start, those of one session by their index in it: one statement."""
    return fetch(store, of_turns(filters, project), sort_of(filters), page)


def fetch(store: Store, conditions: Iterable[peewee.ColumnBase], sort: Sort, page: Page) -> Slice:
    """One page of lines under conditions on turns: one statement."""
    found = pages.fetch(store, _lines(), conditions, sort, page)
    _finish(found.rows)
    return found


def fetch_beside(
    store: Store,
    conditions: Iterable[peewee.ColumnBase],
    others: Iterable[peewee.ColumnBase],
    sort: Sort,
    page: Page,
) -> tuple[Slice, list[Row]]:
    """The same, and all lines under other conditions, in the order of the page: one statement.

    These lines have what is told of a turn by itself, too: `metadata`, `config_snapshot`, and
    `whole_error`, the error's message uncut.
    """
    query = _lines().select_extend(
        Turn.metadata, Turn.config_snapshot, Turn.error_message.alias("whole_error")
    )
    found, beside = pages.fetch_beside(store, query, conditions, others, sort, page)
    _finish([*found.rows, *beside])
    return found, beside


def _finish(rows: list[Row]) -> None:
    take_text(rows, "user_input")
    for row in rows:
        if row["user_input"] is not None:
            row["user_input"] = row["user_input"][:CHARACTERS]
        row["state"] = state_of_turn(row["status"], row["run_status"])
        row["limit"] = limit_of(row)
        of_run = bool(row["run_index"])
        row["began_at"] = row["run_started_at" if of_run else "started_at"]
        row["took_ms"] = row["run_ms" if of_run else "latency_ms"]


def limit_of(row: Row) -> str | None:
    """The limit that ended a turn, None where none did."""
    return str(row["error_type"]).removeprefix("limit_") if row["ended_by"] == "limit" else None


def _lines() -> peewee.ModelSelect[Any]:
    other, later = Run.alias(), Turn.alias()
    newest = other.select(other.id).where(other.turn_id == Turn.id)
    newest = newest.order_by(other.run_index.desc()).limit(1)
    last = later.select(fn.MAX(later.turn_index)).where(later.session_id == Turn.session_id)
    query = Turn.select(
        *_COLUMNS,
        fn.SUBSTR(Turn.error_message, 1, CHARACTERS).alias("error_message"),
        Run.id.alias("run_id"),
        Run.run_index,
        Run.kind.alias("run_kind"),
        Run.status.alias("run_status"),
        Run.started_at.alias("run_started_at"),
        Run.latency_ms.alias("run_ms"),
        last.alias("last_index"),
    ).join(Run, JOIN.LEFT_OUTER, on=(Run.id == newest))
    return with_text(query, Turn.user_input)
