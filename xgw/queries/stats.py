"""Sums and latency percentiles over calls to providers."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import peewee
from peewee import fn

from xgw import clock
from xgw.queries.pages import Row
from xgw.queries.snapshot import snapshot
from xgw.store.database import Store
from xgw.store.models import Step, Turn

Group = Literal["day", "model", "provider", "agent"]
GROUPS: tuple[Group, ...] = ("day", "model", "provider", "agent")
PERCENTILES = (50, 90, 99)

SUMS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "cost_usd")
COUNTS = ("requests", "errors", "unpriced")


@dataclass(frozen=True, slots=True)
class Stats:
    """`totals` and a row for each value of `group`.

    `requests` counts calls to providers, every attempt; `errors` those that failed; `unpriced`
    those that ended with an unknown cost. Sums are of what is known, None where nothing is.
    `latency_ms` has the percentiles of calls that succeeded, None without any.
    """

    group: Group
    totals: Row
    rows: list[Row]


def collect(
    store: Store,
    group: Group = "day",
    *,
    since: datetime.datetime | None = None,
    until: datetime.datetime | None = None,
    project: str | None = None,
) -> Stats:
    """Statistics of the calls that began from `since` on and before `until`: two statements."""
    key = _key(group)
    conditions = _conditions(since, until)
    with snapshot(store):
        sums = store.fetch(
            _bounded(_sums(key), group, project).where(*conditions).group_by(peewee.SQL("1"))
        )
        ranks = _bounded(_ranked(key), group, project).where(*conditions, *_SUCCEEDED)
        latencies = _latencies(store.fetch(_picked(ranks)))
    rows = [{group: row.pop("key"), **row} for row in sums]
    for row in rows:
        row["latency_ms"] = latencies.get(row[group])
    return Stats(group, _totals(rows), sorted(rows, key=_order(group)))


_SUCCEEDED = (Step.status == "success", Step.latency_ms.is_null(False))


def _key(group: Group) -> peewee.ColumnBase:
    if group == "day":
        return fn.SUBSTR(Step.started_at, 1, 10).coerce(False)
    return {"model": Step.model, "provider": Step.provider_name, "agent": Turn.agent_name}[group]


def _conditions(
    since: datetime.datetime | None, until: datetime.datetime | None
) -> list[peewee.Expression]:
    conditions = [Step.step_type == "llm_call"]
    if since is not None:
        conditions.append(Step.started_at >= clock.to_db(since))
    if until is not None:
        conditions.append(Step.started_at < clock.to_db(until))
    return conditions


def _bounded(
    query: peewee.ModelSelect[Step], group: Group, project: str | None
) -> peewee.ModelSelect[Step]:
    if project is None and group != "agent":
        return query
    query = query.join(Turn, on=(Turn.id == Step.turn_id))
    return query if project is None else query.where(Turn.project_id == project)


def _count(condition: peewee.Expression) -> peewee.ColumnBase:
    return fn.SUM(peewee.Case(None, ((condition, 1),), 0))


def _sums(key: peewee.ColumnBase) -> peewee.ModelSelect[Step]:
    used = Step.input_tokens.is_null(False) | Step.output_tokens.is_null(False)
    unpriced = Step.cost_usd.is_null() & ((Step.status == "success") | used)
    return Step.select(
        key.alias("key"),
        fn.COUNT(Step.id).alias("requests"),
        _count(Step.status == "error").alias("errors"),
        *(fn.SUM(getattr(Step, name)).alias(name) for name in SUMS),
        _count(unpriced & Step.ended_at.is_null(False)).alias("unpriced"),
    )


def _ranked(key: peewee.ColumnBase) -> peewee.ModelSelect[Step]:
    rank = fn.ROW_NUMBER().over(partition_by=[key], order_by=[Step.latency_ms])
    count = fn.COUNT(Step.id).over(partition_by=[key])
    return Step.select(
        key.alias("key"), Step.latency_ms.alias("ms"), rank.alias("rank"), count.alias("count")
    )


def _picked(ranks: peewee.ModelSelect[Step]) -> peewee.Select:
    """The rows at the percentiles' ranks (nearest rank: the smallest that covers the share)."""
    rows = ranks.alias("ranks")
    at = [(rows.c.count * percent + 99) / 100 == rows.c.rank for percent in PERCENTILES]
    return peewee.Select((rows,), (rows.c.key, rows.c.ms, rows.c.rank, rows.c.count)).where(
        at[0] | at[1] | at[2]
    )


def _latencies(rows: Iterable[Row]) -> dict[Any, Row]:
    found: dict[Any, Row] = {}
    for row in rows:
        for percent in PERCENTILES:
            if row["rank"] == math.ceil(row["count"] * percent / 100):
                found.setdefault(row["key"], {})[f"p{percent}"] = row["ms"]
    return found


def _totals(rows: list[Row]) -> Row:
    """Every call is in exactly one row."""
    totals: Row = {}
    for name in ("requests", "errors", *SUMS, "unpriced"):
        known = [row[name] for row in rows if row[name] is not None]
        totals[name] = sum(known) if known or name in COUNTS else None
    return totals


def _order(group: Group) -> Any:
    if group == "day":
        return lambda row: row["day"]
    return lambda row: (-row["requests"], row[group] or "")
