"""The command `stats`: the figures of `GET /stats` as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xgw import spelling
from xgw.cli import reading
from xgw.cli.configuration import with_configuration, with_json
from xgw.cli.tables import Cell, Column, render
from xgw.cli.terminal import Role, Screen, note, stdout, write, write_json

if TYPE_CHECKING:
    from xgw.queries.pages import Row
    from xgw.queries.stats import Stats

GROUPS = ("day", "model", "provider", "agent")
TOTAL = "total"

# The first to go where the terminal is narrow is the one with the highest number.
_COLUMNS = (
    Column("requests", right=True),
    Column("errors", right=True),
    Column("in", right=True, spare=3),
    Column("out", right=True, spare=2),
    Column("cached", right=True, spare=7),
    Column("reasoning", right=True, spare=9),
    Column("cost", right=True, spare=4),
    Column("unpriced", right=True, spare=6),
    Column("p50", right=True, spare=1),
    Column("p90", right=True, spare=8),
    Column("p99", right=True, spare=5),
)


@click.command()
@click.option("--by", "group", type=click.Choice(GROUPS), default="day", show_default=True)
@click.option("--since", metavar="TIME", help="Calls begun from then on: RFC 3339, a date, 2h, 7d.")
@click.option("--until", metavar="TIME", help="Calls begun before then.")
@with_configuration
@with_json
def stats(
    config_path: Path | None,
    db: str | None,
    as_json: bool,
    group: Any,
    since: str | None,
    until: str | None,
) -> None:
    """Requests, errors, tokens, cost and latency, by day, model, provider or agent.

    Every attempt counts as a request. `unpriced` are those whose cost is not known: it is missing
    in the sums. The percentiles are of calls that succeeded. Days are UTC.

    \b
    Examples:
      xgw stats
      xgw stats --by model --since 7d
    """
    from xgw.queries.stats import collect
    from xgw.web import serialize

    period = {"since": reading.time_of("since", since), "until": reading.time_of("until", until)}
    with reading.opened(config_path, db) as (loaded, store):
        found = collect(store, group, **period)
    if as_json:
        write_json(serialize.stats(found))
    elif found.rows:
        _print(stdout(), found, reading.demos(loaded.config))
    else:
        note(
            "No calls to providers are recorded"
            + (" for this time." if since or until else " yet.")
        )


def _print(screen: Screen, found: Stats, demos: frozenset[str]) -> None:
    columns = (Column(found.group), *_COLUMNS)
    rows = [_row(_name(found.group, row, demos), row, "plain") for row in found.rows]
    if len(rows) > 1:
        rows.append(_row(TOTAL, found.totals, "name"))
    write(render(screen, columns, rows))


def _name(group: str, row: Row, demos: frozenset[str]) -> str:
    name = row[group] or spelling.UNKNOWN
    return f"{name} (scripted)" if group == "provider" and name in demos else str(name)


def _row(name: str, row: Row, role: Role) -> list[Cell]:
    latency = row.get("latency_ms") or {}
    return [
        Cell(name, "name"),
        Cell(spelling.count(row["requests"]), role),
        Cell(spelling.count(row["errors"]), "bad" if row["errors"] else role),
        Cell(spelling.count(row["input_tokens"]), role),
        Cell(spelling.count(row["output_tokens"]), role),
        Cell(spelling.count(row["cached_tokens"]), role),
        Cell(spelling.count(row["reasoning_tokens"]), role),
        Cell(spelling.usd(row["cost_usd"]), role),
        Cell(spelling.count(row["unpriced"]), "waiting" if row["unpriced"] else role),
        *(
            Cell(spelling.duration(latency[p]) if p in latency else "", role)
            for p in ("p50", "p90", "p99")
        ),
    ]
