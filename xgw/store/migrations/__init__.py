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
LEGACY_TABLES = frozenset({"conversations", "task_sessions", "task_session_messages"})

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
    store: Store, *, dry_run: bool = False, backup: bool = True, directory: Path = DIRECTORY
) -> MigrationReport:
    """Bring the store to the newest schema; create it if it is not there.

    A store with data is copied beside itself first. Raises UsageError, with nothing changed, for a
    store of a newer xgw, of older shapes, or one that is no database or cannot be opened.
    """
    with _translated(store.path):
        pending = _pending(store, directory)
        if dry_run or not pending:
            return MigrationReport(pending, None)
        store.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(store.path), _opened(store, directory) as runner:
            _refuse_foreign(runner, store.path)
            _refuse_newer(runner, store.path)
            applied = runner.applied()
            if set(applied) == set(_scripts(directory)):
                return MigrationReport([], None)
            copied = _backup(store.path) if backup and applied else None
            runner.database.execute_sql("PRAGMA journal_mode = wal")
            return MigrationReport(list(runner.up()), copied)


def _pending(store: Store, directory: Path) -> list[str]:
    """The names of the migrations to apply; looks only, so that what is refused stays as it was."""
    if not store.path.exists():
        return _scripts(directory)
    with _opened(store, directory) as runner:
        _refuse_foreign(runner, store.path)
        _refuse_newer(runner, store.path)
        return [m.name for m in runner.status() if m.applied is None]


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
        ours = not tables
    if ours:
        return
    if tables & LEGACY_TABLES:
        raise UsageError(f"{path} holds tables of an older program: use another store (--db PATH)")
    raise UsageError(f"{path} is a database of another program: use another store (--db PATH)")


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
            "check its folder or use --db PATH"
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


def _backup(path: Path) -> Path:
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
