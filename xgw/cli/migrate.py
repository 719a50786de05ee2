"""The command `migrate`: the store's schema brought forward, and older stores taken over."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xgw import clock
from xgw.cli import taking_over
from xgw.cli.configuration import load, print_json, with_configuration, with_json
from xgw.cli.server import without_server
from xgw.errors import UsageError

if TYPE_CHECKING:
    from xgw.store.database import Store


@click.command()
@click.option("--status", is_flag=True, help="List the migrations and when each was applied.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@click.option("--to", "upto", type=click.IntRange(1), metavar="N", help="Stop after migration N.")
@click.option(
    "--from-legacy",
    "old",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Take over the store of an older program; a server may run meanwhile.",
)
@with_configuration
@with_json
@click.pass_context
def migrate(
    ctx: click.Context,
    config_path: Path | None,
    db: str | None,
    status: bool,
    dry_run: bool,
    upto: int | None,
    old: Path | None,
    as_json: bool,
) -> None:
    """Bring the store to this version's schema, after a backup beside the file.

    The tables of older programs (conversations, messages and request_logs; task_sessions and
    task_session_messages) are taken over: where they stand in the store itself, or from another
    file with --from-legacy. It goes on where it was if it was interrupted, and may be run again.

    \b
    Examples:
      xgw migrate --status
      xgw migrate --dry-run
      xgw migrate --from-legacy old/gateway.db
    """
    from xgw.store.database import Store

    _refuse_together(status=status, dry_run=dry_run, to=upto is not None, from_legacy=old)
    config = load(config_path, db).config
    store = Store(config.storage.path, config.storage.durability)
    secrets = config.secrets()
    ctx.call_on_close(store.close)
    if status:
        _show_status(store, as_json)
    elif old is not None:
        ctx.exit(taking_over.from_file(store, old, secrets, dry_run=dry_run, as_json=as_json))
    elif upto is None and taking_over.is_due(store):
        ctx.exit(taking_over.in_place(store, secrets, dry_run=dry_run, as_json=as_json))
    else:
        _apply(store, upto, dry_run, as_json)


def _refuse_together(*, status: bool, dry_run: bool, to: bool, from_legacy: Path | None) -> None:
    given = [
        ("--status", status),
        ("--dry-run", dry_run),
        ("--to", to),
        ("--from-legacy", from_legacy is not None),
    ]
    used = [name for name, is_given in given if is_given]
    if len(used) > 1 and (status or (to and from_legacy is not None)):
        raise UsageError(f"{' and '.join(used)} exclude each other")


def _show_status(store: Store, as_json: bool) -> None:
    from xgw.store import migrations

    rows = [
        (name, None if applied is None else clock.to_rfc3339(applied))
        for name, applied in migrations.status(store)
    ]
    taken_over = taking_over.list_taken_over(store)
    if as_json:
        listed = [{"name": name, "applied_at": applied} for name, applied in rows]
        print_json({"migrations": listed, "taken_over": [asdict(one) for one in taken_over]})
        return
    for name, applied in rows:
        click.echo(f"{name}  {applied or 'pending'}")
    for one in taken_over:
        click.echo(one.words)


def _apply(store: Store, upto: int | None, dry_run: bool, as_json: bool) -> None:
    from xgw.store import migrations

    if dry_run:
        report = migrations.migrate(store, dry_run=True, upto=upto)
    else:
        with without_server(store.path):
            report = migrations.migrate(store, upto=upto)
    if as_json:
        backup = None if report.backup is None else str(report.backup)
        print_json({"applied": report.applied, "backup": backup, "dry_run": dry_run})
        return
    taking_over.tell_schema(report, dry_run=dry_run)
    if not report.applied:
        click.echo(f"{store.path} is up to date")
