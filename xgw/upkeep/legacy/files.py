"""Files of older programs, opened to be read: nothing in them changes, nothing is left behind."""

from __future__ import annotations

import sqlite3
from pathlib import Path

BUSY_MS = 5000

_JOURNAL = slice(18, 20)
_IN_WAL_MODE = b"\x02\x02"
"""What SQLite's header has there in a file whose changes go to a log beside it."""


def open_to_read(path: Path) -> sqlite3.Connection:
    """The file, in autocommit mode. OSError or sqlite3.Error if it cannot be opened."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={_mode(path)}",
        uri=True,
        isolation_level=None,
        cached_statements=64,
    )
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    return connection


def _mode(path: Path) -> str:
    """SQLite itself makes a log to read a file in WAL mode, and whoever might write removes it.

    Of a log that is there already they would bring the changes to the file.
    """
    with path.open("rb") as file:
        is_in_wal_mode = file.read(_JOURNAL.stop)[_JOURNAL] == _IN_WAL_MODE
    has_log = path.with_name(f"{path.name}-wal").exists()
    return "rw" if is_in_wal_mode and not has_log else "ro"
