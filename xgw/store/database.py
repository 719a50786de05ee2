"""The SQLite file: where it lies, how it is opened for reading and for writing."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peewee
from playhouse.pool import PooledSqliteDatabase

from xgw.store.digits import packed_hash, packed_id
from xgw.store.rows import node_list, reference_list

READERS = 64
LOG_PAGES = 4000
"""How long the write-ahead log gets, 16 MB: most pages are changed again and again, and each is
copied into the file once for all changes in a log."""

READ_PRAGMAS = {"query_only": 1, "busy_timeout": 2000, "cache_size": -2000, "foreign_keys": 1}

FUNCTIONS: tuple[tuple[Callable[..., Any], int], ...] = (
    (packed_id, 2),
    (packed_hash, 1),
    (reference_list, 2),
    (node_list, 2),
)
"""What statements may call, by name, and with how many values."""

Params = tuple[Any, ...] | dict[str, Any]


class Store:
    """One store: a path, a pool of read connections, and writers opened on request.

    `durability` is `normal` (what was committed survives `kill -9`) or `full` (power loss too).
    Reading takes short scopes; nothing holds a connection across a network wait.
    """

    def __init__(self, path: Path, durability: str = "normal") -> None:
        self.path = path
        self.durability = durability
        self._file: tuple[int, int] | None = None
        self._readers = PooledSqliteDatabase(
            str(path),
            pragmas=READ_PRAGMAS,
            max_connections=READERS,
            timeout=10,
            autoconnect=False,
            check_same_thread=False,  # the pool hands them from thread to thread
        )
        for function, arguments in FUNCTIONS:
            name = function.__name__
            self._readers.register_function(function, name, arguments, deterministic=True)

    @contextlib.contextmanager
    def reading(self) -> Iterator[peewee.SqliteDatabase]:
        """A connection of the pool for this thread; scopes may nest."""
        if not self._readers.is_closed():
            yield self._readers
            return
        self._readers.connect()
        try:
            yield self._readers
        finally:
            self._readers.close()

    def fetch(self, query: peewee.BaseQuery) -> list[dict[str, Any]]:
        """The rows of a select, as dicts of column name to Python value."""
        with self.reading() as database:
            return list(query.dicts().execute(database))

    def fetch_one(self, query: peewee.Select) -> dict[str, Any] | None:
        """The first row of a select, or None."""
        return next(iter(self.fetch(query.limit(1))), None)

    def sql(
        self, text: str, params: tuple[Any, ...] | dict[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Rows of plain SQL, values as SQLite has them."""
        with self.reading() as database:
            rows: list[tuple[Any, ...]] = database.execute_sql(text, params).fetchall()  # type: ignore[no-untyped-call]
            return rows

    def open_writer(self, busy_ms: int = 250) -> sqlite3.Connection:
        """A connection that may write, in autocommit mode; the caller begins its transactions.

        It never makes a file: sqlite3.OperationalError if there is none (any more).
        """
        pragmas = {
            "busy_timeout": busy_ms,
            "journal_mode": "wal",
            "foreign_keys": 1,
            "synchronous": "full" if self.durability == "full" else "normal",
            "cache_size": -16000,
            "wal_autocheckpoint": LOG_PAGES,
        }
        connection = self._open("mode=rw", pragmas)
        if self._file is None:
            self._file = self._on_disk()
        return connection

    @property
    def was_taken_away(self) -> bool:
        """Whether its path has no file any more, or another one than was written to first."""
        return self._file is not None and self._on_disk() != self._file

    def _on_disk(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def open_reader(self) -> sqlite3.Connection:
        """A connection of its own that only reads, with temporary tables of its own.

        It also reads a file in a folder that is closed to it, as long as nobody else has it open.
        """
        pragmas: dict[str, object] = {"busy_timeout": 5000, "cache_size": -16000}
        try:
            return self._open("mode=ro", pragmas)  # the size of the cache has it look into the file
        except sqlite3.OperationalError:
            if self.path.with_name(f"{self.path.name}-wal").exists():
                raise
            return self._open("mode=ro&immutable=1", pragmas)

    def _open(self, mode: str, pragmas: dict[str, object]) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?{mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        try:
            for function, arguments in FUNCTIONS:
                name = function.__name__
                connection.create_function(name, arguments, function, deterministic=True)
            for name, value in pragmas.items():
                connection.execute(f"PRAGMA {name} = {value}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def size_bytes(self) -> int:
        """Bytes on disk, the write-ahead log included."""
        files = [
            self.path,
            *(self.path.with_name(self.path.name + tail) for tail in ("-wal", "-shm")),
        ]
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Close every read connection; a fork must not inherit one."""
        self._readers.close_all()
