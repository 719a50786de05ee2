"""Older tables in the store's own file: they get other names, so that the store's can be made."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from xgw.errors import UsageError
from xgw.store.migrations import KEPT, is_taken_over, old_tables
from xgw.upkeep.legacy.files import BUSY_MS, open_to_read

_INDEX = re.compile(
    r"(CREATE\s+(?:UNIQUE\s+)?INDEX\s+)(?:IF\s+NOT\s+EXISTS\s+)?"
    r'("(?:[^"]|"")+"|\[[^\]]+\]|`[^`]+`|[^\s(]+)',
    re.IGNORECASE,
)


def is_due(path: Path) -> bool:
    """Whether the file has older tables that are not, or not all, taken over. Changes nothing."""
    if not path.is_file():
        return False
    try:
        with contextlib.closing(open_to_read(path)) as connection:
            return bool(old_tables(connection)) or (
                bool(old_tables(connection, KEPT)) and not is_taken_over(connection)
            )
    except (OSError, sqlite3.Error):
        return False  # whatever reads it next says what is wrong


def are_named(path: Path) -> bool:
    """Whether the older tables still have their own names."""
    with contextlib.closing(open_to_read(path)) as connection:
        return bool(old_tables(connection))


def rename(path: Path) -> None:
    """Rename the older tables and their indexes, all or none. UsageError if that cannot be."""
    try:
        with _connected(path) as connection:
            tables = old_tables(connection)
            connection.execute("BEGIN EXCLUSIVE")
            for table in tables:
                connection.execute(f"ALTER TABLE {table} RENAME TO {KEPT}{table}")
                _rename_indexes(connection, f"{KEPT}{table}")
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise UsageError(
            f"the older tables in {path} cannot be renamed ({error}): take the file over with "
            "--from-legacy PATH into another store (--db PATH)"
        ) from error


def _rename_indexes(connection: sqlite3.Connection, table: str) -> None:
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_master "
        "WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL",
        (table,),
    ).fetchall()
    for name, statement in rows:
        quoted, kept = (text.replace('"', '""') for text in (name, f"{KEPT}{name}"))
        connection.execute(f'DROP INDEX "{quoted}"')
        connection.execute(_INDEX.sub(lambda m, kept=kept: f'{m[1]}"{kept}"', statement, count=1))  # type: ignore[misc]


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        yield connection
