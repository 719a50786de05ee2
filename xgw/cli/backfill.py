"""The command `backfill-turns`: messages from before turns existed get theirs."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xgw.cli.configuration import load, print_json, with_configuration, with_json
from xgw.cli.server import find_server
from xgw.cli.taking_over import alone_with, bring_forward, progress_bar
from xgw.errors import UsageError, WorkError

if TYPE_CHECKING:
    from xgw.store.database import Store
    from xgw.upkeep.backfill.filling import Tally

STRATEGIES = ("user-message", "session")


@click.command("backfill-turns")
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default="user-message",
    show_default=True,
    help="A turn for each message of a user, or one for each session.",
)
@click.option("--session", metavar="ID", help="Only this session, by id or key.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Sessions in one transaction; 500, beside a running server 20.",
)
@with_configuration
@with_json
def backfill_turns(
    config_path: Path | None,
    db: str | None,
    strategy: str,
    session: str | None,
    dry_run: bool,
    batch: int | None,
    as_json: bool,
) -> None:
    """Give messages and request logs from before turns existed their turn.

    Messages that have a turn stay as they are. Request logs get one only where they name it, or a
    tool call of it. A server may run meanwhile; what was interrupted goes on when it is run again.

    \b
    Examples:
      xgw backfill-turns --dry-run
      xgw backfill-turns
      xgw backfill-turns --strategy session --session 7f3c2a
    """
    from xgw.store.database import Store

    storage = load(config_path, db).config.storage
    store = Store(storage.path, storage.durability)
    if not store.path.exists():
        raise UsageError(f"there is no store {store.path} yet: `xgw migrate` makes one")
    with contextlib.closing(store):
        tally = _run(store, strategy, session, dry_run=dry_run, batch=batch)
    if as_json:
        print_json(_json(tally, strategy, dry_run=dry_run))
    else:
        _tell(tally, dry_run=dry_run)


def _run(
    store: Store, strategy: str, session: str | None, *, dry_run: bool, batch: int | None
) -> Tally:
    from xgw.store import migrations
    from xgw.upkeep.backfill import reading
    from xgw.upkeep.backfill.filling import Backfill
    from xgw.upkeep.pace import Pace

    def is_served() -> bool:
        return find_server(store.path) is not None

    if not dry_run:
        bring_forward(store)
    elif migrations.migrate(store, dry_run=True).applied:
        raise UsageError(f"{store.path} has an older schema: `xgw migrate` brings it forward")
    only = None if session is None else _id_of(store, session)
    with contextlib.ExitStack() as stack:
        pace = None
        if not dry_run:
            stack.enter_context(alone_with(store))
            pace = stack.enter_context(contextlib.closing(Pace(store, is_served)))
        count = reading.count_sessions(store, only)
        progress = stack.enter_context(progress_bar("sessions", count))
        return Backfill(store, pace, strategy, only=only, batch=batch).run(progress)


def _id_of(store: Store, ref: str) -> str:
    from xgw.queries.sessions import find_session

    found = find_session(store, ref)
    if found is None:
        raise WorkError(f"there is no session {ref!r}")
    return str(found["id"])


def _tell(tally: Tally, *, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    click.echo(f"sessions with messages without a turn: {tally.sessions:,}")
    click.echo(f"turns {would}made: {tally.turns:,}, with {tally.steps:,} steps of tools")
    click.echo(f"messages {would}linked: {tally.messages:,}")
    for reason, count in sorted(tally.skipped.items()):
        if count:
            click.echo(f"messages skipped, {reason}: {count:,}")
    if dry_run:
        click.echo(f"request logs that name a turn or a tool call: {tally.named:,}")
    else:
        click.echo(f"request logs linked: {tally.requests:,}")
    for reason, count in sorted(tally.unlinked.items()):
        if count:
            click.echo(f"request logs that {reason}: {count:,}")


def _json(tally: Tally, strategy: str, *, dry_run: bool) -> dict[str, object]:
    return {
        "strategy": strategy,
        "sessions": tally.sessions,
        "turns": tally.turns,
        "steps": tally.steps,
        "messages": tally.messages,
        "skipped": {reason: count for reason, count in tally.skipped.items() if count},
        "requests": None if dry_run else tally.requests,
        "named": tally.named if dry_run else None,
        "unlinked": {reason: count for reason, count in tally.unlinked.items() if count},
        "dry_run": dry_run,
    }
