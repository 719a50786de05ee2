"""What `migrate` does about older stores, and what it tells of that."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xgw import clock
from xgw.cli.configuration import print_json
from xgw.cli.server import find_server, without_server
from xgw.cli.terminal import note
from xgw.errors import UsageError
from xgw.queries.wording import counted

if TYPE_CHECKING:
    from xgw.store.database import Store
    from xgw.store.migrations import MigrationReport
    from xgw.upkeep.legacy.report import Report
    from xgw.upkeep.legacy.source import Source

MOST_REFUSALS = 20
Progress = Callable[[int], None]


def is_due(store: Store) -> bool:
    """Whether the store's file has older tables that are not all taken over."""
    from xgw.upkeep.legacy import inplace

    return inplace.is_due(store.path)


def from_file(
    store: Store, old: Path, secrets: Sequence[str], *, dry_run: bool, as_json: bool
) -> int:
    """Take over the store in another file; the exit code."""
    from xgw.store import migrations
    from xgw.upkeep.legacy.source import Source

    if store.path.exists() and old.exists() and old.samefile(store.path):
        raise UsageError(f"{old} is the store itself: run `xgw migrate` without --from-legacy")
    if is_due(store):
        raise UsageError(f"{store.path} holds older tables itself: run `xgw migrate` first")
    with contextlib.closing(Source(old)) as source:
        if dry_run:
            schema = migrations.migrate(store, dry_run=True)
            return _tell(_looked_through(source, secrets), str(old), schema, as_json, dry_run=True)
        schema = bring_forward(store)
        report = _copy(store, source, str(old.resolve()), secrets)
        return _tell(report, str(old), schema, as_json)


def in_place(store: Store, secrets: Sequence[str], *, dry_run: bool, as_json: bool) -> int:
    """Take over the older tables in the store's own file; the exit code."""
    from xgw.store import migrations
    from xgw.upkeep.legacy import inplace
    from xgw.upkeep.legacy.source import Source

    name = str(store.path)
    if dry_run:
        with contextlib.closing(Source(store.path, kept=not inplace.are_named(store.path))) as old:
            schema = migrations.MigrationReport([], None)
            return _tell(_looked_through(old, secrets), name, schema, as_json, dry_run=True)
    with without_server(store.path):
        backup = None
        if inplace.are_named(store.path):
            Source(store.path).close()  # refused, if at all, before anything has changed
            backup = migrations.make_backup(store.path)
            inplace.rename(store.path)
        applied = migrations.migrate(store, backup=False, taking_over=True).applied
        with contextlib.closing(Source(store.path, kept=True)) as source:
            report = _copy(store, source, migrations.IN_PLACE, secrets)
    return _tell(report, name, migrations.MigrationReport(applied, backup), as_json)


def tell_schema(report: MigrationReport, *, dry_run: bool) -> None:
    """Which migrations were applied, and where the copy from before is."""
    if report.backup is not None:
        note(f"backup: {report.backup}")
    for name in report.applied:
        click.echo(f"{'would apply' if dry_run else 'applied'} {name}")


@dataclass(frozen=True)
class TakenOver:
    """An older store, how many rows it has, and when taking it over began and ended (RFC 3339)."""

    source: str
    rows: int
    started_at: str
    finished_at: str | None

    @property
    def words(self) -> str:
        """All of that in one line."""
        ended = f"finished {self.finished_at}" if self.finished_at else "not finished"
        return f"taken over: {self.source}, {self.rows:,} rows, {ended}"


def list_taken_over(store: Store) -> list[TakenOver]:
    """Every older store that was taken over, or partly; none where the schema has no such table."""
    import orjson
    import peewee

    if not store.path.exists():
        return []
    try:
        rows = store.sql("SELECT source, state, started_at, finished_at FROM takeovers ORDER BY id")
    except peewee.DatabaseError:
        return []
    return [
        TakenOver(
            source,
            sum(orjson.loads(state)["found"].values()),
            clock.to_rfc3339(clock.from_db(started)),
            clock.to_rfc3339(clock.from_db(finished)) if finished else None,
        )
        for source, state, started, finished in rows
    ]


@contextlib.contextmanager
def progress_bar(label: str, length: int) -> Iterator[Progress]:
    """A bar on stderr, on a terminal alone."""
    bar: Any = click.progressbar(
        length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty(), show_pos=True
    )
    with bar:
        yield bar.update


@contextlib.contextmanager
def alone_with(store: Store) -> Iterator[None]:
    """No other upkeep of the store is under way meanwhile; it is waited for."""
    from xgw.upkeep.alone import alone

    with alone(store.path, wait=False) as is_alone:
        if is_alone:
            yield
            return
    note("other upkeep of this store is under way: waiting for it to end")
    with alone(store.path, wait=True):
        yield


def bring_forward(store: Store) -> MigrationReport:
    """The newest schema: brought about without a server, required with one."""
    from xgw.store import migrations

    if find_server(store.path) is None:
        with without_server(store.path):
            return migrations.migrate(store)
    report = migrations.migrate(store, dry_run=True)
    if report.applied:
        raise UsageError(
            f"the server on {store.path} has an older schema: stop it and run `xgw migrate` first"
        )
    return report


def _copy(store: Store, source: Source, name: str, secrets: Sequence[str]) -> Report:
    from xgw.masking import Masker
    from xgw.upkeep.bodies import Bodies
    from xgw.upkeep.legacy.takeover import Takeover
    from xgw.upkeep.pace import Pace

    def is_served() -> bool:
        return find_server(store.path) is not None

    with alone_with(store), contextlib.closing(Pace(store, is_served)) as pace:
        takeover = Takeover(store, pace, source, name, Bodies(Masker(secrets)))
        found = sum(takeover.state.found.values())
        with progress_bar("taking over", found) as progress:
            progress(takeover.state.done())
            return takeover.run(progress)


def _looked_through(source: Source, secrets: Sequence[str]) -> Report:
    """What taking it over would do; rows that may be in the store already are not looked for."""
    from xgw.masking import Masker
    from xgw.upkeep.bodies import Bodies
    from xgw.upkeep.legacy.takeover import look_through

    found = source.counts()
    with progress_bar("looking through", sum(found.values())) as progress:
        return look_through(source, Bodies(Masker(secrets)), progress)


def _tell(
    report: Report, name: str, schema: MigrationReport, as_json: bool, *, dry_run: bool = False
) -> int:
    if as_json:
        print_json(_json(report, name, schema, dry_run=dry_run))
        return 0 if report.balances else 1
    if not dry_run:
        tell_schema(schema, dry_run=False)
    click.echo(f"{name}: {'would be taken over' if dry_run else 'taken over'}")
    _tell_counts(report, dry_run=dry_run)
    for table, row, reason in report.refusals[:MOST_REFUSALS]:
        click.echo(f"refused: {table} {row}: {reason}")
    refused = sum(one.refused for one in report.counts)
    if refused > MOST_REFUSALS:
        click.echo(f"and {refused - MOST_REFUSALS:,} more: --json lists them")
    _tell_rest(report, dry_run=dry_run)
    return 0 if report.balances else 1


def _tell_counts(report: Report, *, dry_run: bool) -> None:
    width = max(len(one.table) for one in report.counts)
    head = ("found", "would copy" if dry_run else "copied", "there before", "refused", "stored")
    click.echo(f"{'':{width}}" + "".join(f"  {word:>12}" for word in head))
    for one in report.counts:
        stored = "" if report.stored is None else f"{report.stored[one.table]:,}"
        figures = (f"{n:,}" for n in (one.found, one.copied, one.there, one.refused))
        cells = "".join(f"  {figure:>12}" for figure in (*figures, stored))
        click.echo(f"{one.table:{width}}{cells}".rstrip())


def _tell_rest(report: Report, *, dry_run: bool) -> None:
    total = sum(one.found for one in report.counts)
    if not report.balances:
        note("xgw: the counts do not balance: the older store has changed meanwhile, run it again")
        return
    click.echo(f"the counts balance: all {total:,} rows are accounted for")
    if report.orphans:
        click.echo(
            f"in the session `orphans`: {counted(report.orphans, 'message')} without a session"
        )
    if report.renamed:
        click.echo(
            f"with a new key: {counted(report.renamed, 'session')} whose own is another session's"
        )
    if report.again:
        click.echo("all of it was taken over before: nothing was done")
    elif not dry_run:
        click.echo("next: `xgw backfill-turns` gives the messages their turns")


def _json(
    report: Report, name: str, schema: MigrationReport, *, dry_run: bool
) -> dict[str, object]:
    tables = [
        {
            "table": one.table,
            "found": one.found,
            "copied": one.copied,
            "there": one.there,
            "refused": one.refused,
            "stored": None if report.stored is None else report.stored[one.table],
        }
        for one in report.counts
    ]
    return {
        "source": name,
        "tables": tables,
        "balances": report.balances,
        "refusals": [
            {"table": table, "row": row, "reason": reason} for table, row, reason in report.refusals
        ],
        "orphans": report.orphans,
        "renamed": report.renamed,
        "again": report.again,
        "applied": schema.applied,
        "backup": None if schema.backup is None else str(schema.backup),
        "dry_run": dry_run,
    }
