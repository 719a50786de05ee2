"""The command `migrate`: the store's schema, looked at and brought forward."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from xgw import clock
from xgw.cli.configuration import load, print_json, with_configuration, with_json
from xgw.cli.server import ServerLock
from xgw.errors import UsageError

if TYPE_CHECKING:
    from xgw.store.database import Store


@click.command()
@click.option("--status", is_flag=True, help="List the migrations and when each was applied.")
@click.option("--dry-run", is_flag=True, help="Say what would be applied; change nothing.")
@with_configuration
@with_json
def migrate(
    config_path: Path | None, db: str | None, status: bool, dry_run: bool, as_json: bool
) -> None:
    """Bring the store to this version's schema, after a backup beside the file."""
    from xgw.store.database import Store

    if status and dry_run:
        raise UsageError("--status and --dry-run exclude each other")
    storage = load(config_path, db).config.storage
    store = Store(storage.path, storage.durability)
    if status:
        _show_status(store, as_json)
    else:
        _apply(store, dry_run, as_json)


def _show_status(store: Store, as_json: bool) -> None:
    from xgw.store import migrations

    rows = [
        (name, None if applied is None else clock.to_rfc3339(applied))
        for name, applied in migrations.status(store)
    ]
    if as_json:
        print_json([{"name": name, "applied_at": applied} for name, applied in rows])
        return
    for name, applied in rows:
        click.echo(f"{name}  {applied or 'pending'}")


def _apply(store: Store, dry_run: bool, as_json: bool) -> None:
    from xgw.store import migrations

    if dry_run:
        report = migrations.migrate(store, dry_run=True)
    else:
        # A server keeps working with the schema that it started with.
        lock = ServerLock.acquire(store.path)
        try:
            report = migrations.migrate(store)
        finally:
            lock.release()
    if as_json:
        backup = None if report.backup is None else str(report.backup)
        print_json({"applied": report.applied, "backup": backup, "dry_run": dry_run})
        return
    if report.backup is not None:
        click.echo(f"backup: {report.backup}", err=True)
    for name in report.applied:
        click.echo(f"{'would apply' if dry_run else 'applied'} {name}")
    if not report.applied:
        click.echo(f"{store.path} is up to date")
