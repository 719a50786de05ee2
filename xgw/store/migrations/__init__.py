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


def status(store: Store) -> list[tuple[str, datetime.datetime | None]]:
    """Every migration by name with the time it was applied, None while it is pending."""
    if not store.path.exists():
        return [(path.stem, None) for path in _scripts()]
    with _translated(store.path), _opened(store) as runner:
        return [(m.name, m.applied) for m in runner.status()]


def migrate(store: Store, *, dry_run: bool = False, backup: bool = True) -> MigrationReport:
    """Bring the store to the newest schema; create it if it is not there.

    A store with data is copied beside itself first. Raises UsageError for a store of a newer xgw,
    of older shapes, or one that is no database or cannot be opened.
    """
    with _translated(store.path):
        if not store.path.exists() and dry_run:
            return MigrationReport([path.stem for path in _scripts()], None)
        store.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(store.path), _opened(store) as runner:
            _refuse_unknown(runner, store.path)
            pending = [m.name for m in runner.status() if m.applied is None]
            if dry_run or not pending:
                return MigrationReport(pending, None)
            copied = _backup(store.path) if backup and runner.applied() else None
            return MigrationReport(list(runner.up()), copied)


def schema_version(store: Store) -> str | None:
    """The name of the newest applied migration."""
    rows = store.sql(f"SELECT max(name) FROM {HISTORY}")
    return rows[0][0] if rows else None


def _scripts() -> list[Path]:
    return sorted(DIRECTORY.glob("[0-9]*.py"))


def _refuse_unknown(runner: Runner, path: Path) -> None:
    known = {script.stem for script in _scripts()}
    newer = sorted(set(runner.applied()) - known)
    if newer:
        raise UsageError(
            f"{path} was written by a newer xgw (schema {newer[-1]}): upgrade xgw or use another"
        )
    tables = set(runner.database.get_tables())
    if HISTORY not in tables and tables & LEGACY_TABLES:
        raise UsageError(f"{path} holds tables of an older program: use another store (--db PATH)")
    if HISTORY not in tables and tables:
        raise UsageError(f"{path} is a database of another program: use another store (--db PATH)")


@contextlib.contextmanager
def _opened(store: Store) -> Iterator[Runner]:
    database = peewee.SqliteDatabase(
        str(store.path), pragmas={"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 5000}
    )
    database.connect()
    try:
        runner = Runner(database, directory=str(DIRECTORY), table_name=HISTORY)
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
    except (peewee.DatabaseError, sqlite3.DatabaseError) as error:
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
    stamp = clock.now().strftime("%Y%m%dT%H%M%S")
    target = path.with_name(f"{path.name}.backup-{stamp}")
    source, copy = sqlite3.connect(path), sqlite3.connect(target)
    try:
        source.backup(copy)
    except sqlite3.Error as error:
        raise WorkError(
            f"the backup {target} could not be written ({error}); nothing was migrated"
        ) from error
    finally:
        copy.close()
        source.close()
    return target
