"""The command `prune`: what is old goes, through the running server or, without one, in here."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xgw import clock, spelling
from xgw.cli import reading, room
from xgw.cli.asking import ask
from xgw.cli.configuration import with_configuration, with_json
from xgw.cli.listing import SESSION_FILTERS
from xgw.cli.server import ServerAddress, ServerLock, find_server
from xgw.cli.terminal import note, write, write_json
from xgw.errors import UsageError, WorkError

if TYPE_CHECKING:
    from xgw.store.database import Store
    from xgw.upkeep.prune import Prune, Wanted
    from xgw.web.serialize import Json

PATIENCE_SECONDS = 30.0
AGE = "How long ago (90s, 15m, 12h, 30d), a date, or an RFC 3339 time."


@click.command()
@click.argument("query", nargs=-1)
@click.option("--bodies-older-than", metavar="TIME", help=f"Bodies of turns that ended then. {AGE}")
@click.option("--older-than", metavar="TIME", help="Sessions, and turns without one, idle since.")
@click.option("--legacy", is_flag=True, help="The tables that a migration in place has left.")
@click.option("--vacuum", is_flag=True, help="Give the room that is free back to the disk.")
@click.option("--dry-run", is_flag=True, help="Say what would go and how large it is; no more.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask on a terminal.")
@reading.with_filters(**SESSION_FILTERS)
@with_configuration
@with_json
def prune(
    config_path: Path | None,
    db: str | None,
    as_json: bool,
    query: tuple[str, ...],
    bodies_older_than: str | None,
    older_than: str | None,
    legacy: bool,
    vacuum: bool,
    dry_run: bool,
    yes: bool,
    **given: Any,
) -> None:
    """Delete what is old; whatever is under way stays.

    --older-than deletes sessions with everything in them, and turns without a session.
    --bodies-older-than deletes what was sent and received as it was on the wire: rows, messages and
    events stay, and each body's size and hash. QUERY and the filters, those of `xgw sessions`,
    narrow both to the sessions that fit; without any age, those sessions are deleted.

    A server may go on recording. `[retention]` in xgw.toml does the same once a day.

    \b
    Examples:
      xgw prune --bodies-older-than 30d --older-than 365d --dry-run
      xgw prune --older-than 2026-01-31 --vacuum
      xgw prune 'agent:demo state:done' --older-than 12h
    """
    pairs = reading.pairs_of(given | ({"q": " ".join(query)} if query else {}))
    wanted = _wanted(older_than, bodies_older_than, pairs, legacy)
    if wanted is None and not vacuum:
        raise UsageError(
            "say what is to go: --bodies-older-than, --older-than, a filter, --legacy or --vacuum"
        )
    with reading.opened(config_path, db) as (loaded, store):
        asks = not (dry_run or yes or wanted is None) and sys.stdin.isatty()
        shown = _preview(store, wanted) if wanted is not None and (dry_run or asks) else None
        if shown is not None and not as_json:
            write(_lines(shown, "would go"))
        if asks and not click.confirm("Delete this?", err=True):
            note("Nothing was deleted.")
            return
        if not dry_run:
            shown = (
                None
                if wanted is None
                else _run(store, loaded.config.storage.durability, wanted, pairs)
            )
            if shown is not None and not as_json:
                write(_lines(shown, "gone"))
        sizes = _compact(store) if vacuum and not dry_run else None
    if as_json:
        write_json({**(shown or {}), "dry_run": dry_run, "vacuum": sizes})
    elif sizes is not None:
        write(
            [f"the store had {spelling.size(sizes['before'])}, now {spelling.size(sizes['after'])}"]
        )


def _wanted(
    older: str | None, bodies_older: str | None, pairs: list[tuple[str, str]], legacy: bool
) -> Wanted | None:
    from xgw.queries import filters
    from xgw.upkeep.prune import Wanted

    with reading.refused_as_usage():
        wanted = Wanted(
            reading.time_of("older_than", older),
            reading.time_of("bodies_older_than", bodies_older),
            filters.parse("sessions", pairs) if pairs else None,
            legacy,
        )
    return None if wanted == Wanted() else wanted


def _preview(store: Store, wanted: Wanted) -> Json:
    from xgw.upkeep.prune import preview
    from xgw.web import serialize

    return serialize.pruned(preview(store, wanted))


def _run(store: Store, durability: str, wanted: Wanted, pairs: list[tuple[str, str]]) -> Json:
    from xgw.web import serialize

    room.refuse_to_prune(store.path)
    server = find_server(store.path)
    if server is not None:
        return _ask(server, wanted, pairs)
    with _alone(store.path, durability) as prune:
        return serialize.pruned(prune.run(wanted))


def _ask(server: ServerAddress, wanted: Wanted, pairs: list[tuple[str, str]]) -> Json:
    """The server does it: it knows what is on its way into the store."""
    filters: dict[str, list[str]] = {}
    for name, text in pairs:
        filters.setdefault(name, []).append(text)
    moments = {"before": wanted.before, "bodies_before": wanted.bodies_before}
    body = {name: at and clock.to_rfc3339(at) for name, at in moments.items()}
    more = {"filters": filters or None, "legacy": wanted.legacy}
    try:
        done: Json = ask(server, "POST", "/prune", body | more, seconds=None)
    except KeyboardInterrupt:
        note("The server goes on with it.")
        raise
    return done


@contextlib.contextmanager
def _alone(path: Path, durability: Any) -> Iterator[Prune]:
    """Without a server, and none can start meanwhile."""
    from xgw.cli.doors import is_writable
    from xgw.recording.edits import Edits
    from xgw.store.database import Store
    from xgw.store.payloads import Shelf
    from xgw.store.writer import Writer
    from xgw.upkeep.prune import Prune, delete_alone
    from xgw.upkeep.sweep import Sweep

    if not is_writable(path):
        raise WorkError(f"the store {path} cannot be written: nothing was deleted")
    lock = ServerLock.acquire(path)
    store = Store(path, durability)
    writer = Writer(store, lambda events: None)
    sweep = Sweep(store, writer, Shelf(), patience=PATIENCE_SECONDS, rests=False)
    writer.start()
    try:
        yield Prune(store, writer, sweep, delete_alone(Edits(writer), sweep.wait))
    finally:
        writer.stop()
        store.close()
        lock.release()


def _compact(store: Store) -> dict[str, int]:
    from xgw.upkeep.compacting import compact

    room.refuse_to_compact(store.path)
    before = store.size_bytes()
    compact(store)
    return {"before": before, "after": store.size_bytes()}


def _lines(shown: Json, title: str) -> Iterator[str]:
    yield f"{title}:"
    rows: list[tuple[str, int, int | None]] = [
        ("sessions", shown["sessions"], None),
        ("turns without a session", shown["turns"], None),
        ("requests without a turn", shown["requests"], None),
        ("bodies, of which hash and size stay", shown["bodies"]["count"], shown["bodies"]["bytes"]),
        ("payloads", shown["payloads"]["count"], shown["payloads"]["bytes"]),
        *((f"rows of {one['table']}", one["rows"], one["bytes"]) for one in shown["legacy"]),
    ]
    for name, number, size in rows:
        told = "" if size is None else f"  {spelling.size(size):>9}"
        yield f"  {spelling.count(number):>10}  {name:<36}{told}".rstrip()
    if shown["row_bytes"] is not None:
        told = spelling.size(shown["row_bytes"])
        yield f"  {'':>10}  {'rows of these sessions and turns':<36}  {told:>9}"
    if shown["busy_sessions"]:
        count = spelling.count(shown["busy_sessions"])
        yield f"  sessions that stay, for something is under way in them: {count}"
