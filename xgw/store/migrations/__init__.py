"""The store's schema: numbered scripts beside this file, applied in order under a lock."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peewee
from playhouse.migrations import Runner

from xgw import clock
from xgw.errors import UsageError, WorkError
from xgw.store.database import Store

DIRECTORY = Path(__file__).parent
HISTORY = "schema_migrations"
KEPT = "legacy_"
"""What the names of an older store's tables begin with once the store is in the same file."""

IN_PLACE = "the store itself"
"""The source of a takeover whose older tables stand in the store."""

OLD_TABLES: dict[str, frozenset[str]] = {
    "conversations": frozenset({"id"}),
    "messages": frozenset({"conversation_id"}),
    "request_logs": frozenset({"id"}),
    "task_sessions": frozenset({"id"}),
    "task_session_messages": frozenset({"task_session_id"}),
}
"""The tables of the older shapes, and columns without which they are none."""

logging.getLogger("peewee.migrations").setLevel(logging.WARNING)


@dataclass(frozen=True)
class MigrationReport:
    """What a run of migrations did: names in order, and the copy made before."""

    applied: list[str]
    backup: Path | None


def status(
    store: Store, *, directory: Path = DIRECTORY
) -> list[tuple[str, datetime.datetime | None]]:
    """Every migration by name with the time it was applied, None while it is pending.

    Changes nothing. Raises UsageError as `migrate` does, but not for the store of a newer xgw.
    """
    if not store.path.exists():
        return [(name, None) for name in _scripts(directory)]
    with _translated(store.path), _opened(store, directory) as runner:
        _refuse_foreign(runner, store.path)
        return [(m.name, m.applied) for m in runner.status()]


def migrate(
    store: Store,
    *,
    dry_run: bool = False,
    backup: bool = True,
    upto: int | None = None,
    taking_over: bool = False,
    directory: Path = DIRECTORY,
) -> MigrationReport:
    """Bring the store to the newest schema, or to number `upto`; create it if it is not there.

    A store with data is copied beside itself first. Raises UsageError, with nothing changed, for a
    store of a newer xgw, of older shapes, or one that is no database or cannot be opened; without
    `taking_over` for one whose older tables are not taken over yet, too.
    """
    with _translated(store.path):
        pending = _pending(store, directory, upto, taking_over)
        if dry_run or not pending:
            return MigrationReport(pending, None)
        store.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(store.path), _opened(store, directory) as runner:
            pending = _due(runner, store.path, upto, taking_over)
            if not pending:
                return MigrationReport([], None)
            copied = make_backup(store.path) if backup and runner.applied() else None
            runner.database.execute_sql("PRAGMA journal_mode = wal")
            return MigrationReport(list(runner.up(pending[-1])), copied)


def refuse_unwritable(path: Path) -> None:
    """UsageError for a file that is there and may only be read: a current schema shows nothing."""
    with _translated(path), contextlib.suppress(FileNotFoundError):
        os.close(os.open(path, os.O_RDWR))


def _pending(
    store: Store, directory: Path, upto: int | None, taking_over: bool = False
) -> list[str]:
    """The names of the migrations to apply; looks only, so that what is refused stays as it was."""
    if not store.path.exists():
        return _chosen(_scripts(directory), [], upto)
    with _opened(store, directory) as runner:
        return _due(runner, store.path, upto, taking_over)


def _due(runner: Runner, path: Path, upto: int | None, taking_over: bool) -> list[str]:
    _refuse_foreign(runner, path)
    _refuse_newer(runner, path)
    if not taking_over:
        _refuse_unfinished(runner.database.connection(), path)
    applied = set(runner.applied())
    names = _scripts(Path(runner.directory))
    return [name for name in _chosen(names, sorted(applied), upto) if name not in applied]


def _chosen(names: list[str], applied: list[str], upto: int | None) -> list[str]:
    """The migrations up to this number. UsageError if there is none, or the store is beyond it."""
    if upto is None:
        return names
    chosen = [name for name in names if int(name.partition("_")[0]) <= upto]
    if not chosen or int(chosen[-1].partition("_")[0]) != upto:
        raise UsageError(f"there is no migration {upto}: `xgw migrate --status` lists them")
    if applied and applied[-1] > chosen[-1]:
        raise UsageError(
            f"the store is at {applied[-1]} already: migrations only go forward, "
            "and an earlier state is in the backup beside the file"
        )
    return chosen


def old_tables(connection: Any, prefix: str = "") -> dict[str, tuple[str, ...]]:
    """The tables of older shapes in a file, and their columns; `prefix` stands before the names."""
    found = {}
    for name, needed in OLD_TABLES.items():
        rows = connection.execute(f"PRAGMA main.table_info({prefix}{name})").fetchall()
        columns = tuple(row[1] for row in rows)
        folded = {column.lower() for column in columns}
        if needed <= folded and "project_id" not in folded:
            found[name] = columns
    return found


def schema_version(store: Store) -> str | None:
    """The name of the newest applied migration."""
    rows = store.sql(f"SELECT max(name) FROM {HISTORY}")
    return rows[0][0] if rows else None


def _scripts(directory: Path) -> list[str]:
    return sorted(path.stem for path in directory.glob("[0-9]*.py"))


def _refuse_newer(runner: Runner, path: Path) -> None:
    newer = sorted(set(runner.applied()) - set(_scripts(Path(runner.directory))))
    if newer:
        raise UsageError(
            f"{path} was written by a newer xgw (schema {newer[-1]}): upgrade xgw or use another"
        )


def _refuse_foreign(runner: Runner, path: Path) -> None:
    database = runner.database
    tables = set(database.get_tables())
    if HISTORY in tables:
        columns = {column.name for column in database.get_columns(HISTORY)}
        ours = {"id", "name", "applied"} <= columns and _begins_as_ours(runner)
    else:
        ours = all(name.startswith((KEPT, "sqlite_")) for name in tables)
    refuse_old_tables(database.connection(), path)
    if ours:
        return
    raise UsageError(f"{path} is a database of another program: use another store (--db PATH)")


def refuse_old_tables(connection: Any, path: Path) -> None:
    """UsageError where tables of an older program stand in a file, with what takes them over."""
    if old_tables(connection):
        raise UsageError(
            f"{path} holds tables of an older program: `xgw migrate` takes them over, "
            "or use another store (--db PATH)"
        )


def _refuse_unfinished(connection: Any, path: Path) -> None:
    if old_tables(connection, KEPT) and not is_taken_over(connection):
        raise UsageError(
            f"the older tables in {path} are not all taken over yet: "
            "`xgw migrate` goes on where it was"
        )


def is_taken_over(connection: Any) -> bool:
    """Whether the older tables that are kept in the file were taken over to the end."""
    if not connection.execute("PRAGMA main.table_info(takeovers)").fetchall():
        return False
    query = "SELECT finished_at FROM takeovers WHERE source = ?"
    row = connection.execute(query, (IN_PLACE,)).fetchone()
    return row is not None and row[0] is not None


def _begins_as_ours(runner: Runner) -> bool:
    applied = runner.applied()
    return not applied or _scripts(Path(runner.directory))[0] in applied


@contextlib.contextmanager
def _opened(store: Store, directory: Path) -> Iterator[Runner]:
    database = peewee.SqliteDatabase(
        str(store.path), pragmas={"foreign_keys": 1, "busy_timeout": 5000}
    )
    database.connect()
    try:
        runner = Runner(database, directory=str(directory), table_name=HISTORY)
        runner.History._meta.fields["applied"].default = clock.now
        yield runner
    finally:
        database.close()


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    """SQLite's and the file system's errors as one clear sentence."""
    try:
        yield
    except (peewee.OperationalError, sqlite3.OperationalError, OSError) as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"the store {path} cannot be opened for writing ({text}): "
            "see who may write it and its folder, or use --db PATH"
        ) from error
    except (peewee.DatabaseError, sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} is not a usable SQLite database ({error}): move it away or use --db PATH"
        ) from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process migrates; the operating system lets go of the lock if it dies."""
    with open(path.with_name(path.name + ".migrate.lock"), "w") as lock:
        _lock_file(lock)
        yield


def _lock_file(lock: Any) -> None:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(lock.fileno(), msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    import fcntl

    fcntl.flock(lock, fcntl.LOCK_EX)


def make_backup(path: Path) -> Path:
    """A consistent copy beside the file, made by SQLite while others may write."""
    stamp = clock.now().strftime("%Y%m%dT%H%M%S.%f")
    target = path.with_name(f"{path.name}.backup-{stamp}")
    try:
        with (
            contextlib.closing(sqlite3.connect(path)) as source,
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            source.backup(copy)
    except (sqlite3.Error, OSError) as error:
        with contextlib.suppress(OSError):
            target.unlink(missing_ok=True)
        raise WorkError(
            f"the backup {target} could not be written ({error}); nothing was migrated"
        ) from error
    return target
