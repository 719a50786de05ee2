"""Writing beside a running server: it waits for every commit, so it gets most of the time.

Units are prepared before the lock on the file is taken, and after each one there is a rest that is
many times as long as preparing and writing took.
"""

from __future__ import annotations

import gc
import sqlite3
import threading
from collections.abc import Callable

from xgw import clock
from xgw.errors import WorkError
from xgw.store.database import Store
from xgw.store.transaction import Transaction

RESTS = 4.0
"""How many times as long as the work since the last one a rest is."""

BUSY_MS = 60_000
PAGES_ALONE, PAGES_SERVED = 16_000, 1000
"""Pages of the write-ahead log from which a commit brings them to the file."""

CACHE_KIB = 32_000
"""Pages that are kept in memory: keys come in no order, to pages all over the file."""

COLLECTED_FROM = 100_000
"""Rows are many, and none of them is in a cycle: to look for these among them takes long."""

Unit = Callable[[Transaction], None]


class Pace:
    """One writer of a store in a process of its own; `is_served` tells whether a server runs.

    What its units refer to they make themselves, or look for in the same transaction.
    """

    def __init__(self, store: Store, is_served: Callable[[], bool]) -> None:
        self._is_served = is_served
        self._path = store.path
        self._connection = store.open_writer(BUSY_MS)
        self._connection.execute(f"PRAGMA cache_size = {-CACHE_KIB}")
        # SQLite would look up every session and turn again for each row that refers to it.
        self._connection.execute("PRAGMA foreign_keys = 0")
        self._collected_from = gc.get_threshold()
        gc.freeze()
        gc.set_threshold(COLLECTED_FROM)
        self._pages = 0
        self._worked_since = clock.monotonic()
        self._pause = threading.Event()
        self._look()

    def close(self) -> None:
        """Close the connection; what is not committed is undone."""
        gc.set_threshold(*self._collected_from)
        gc.unfreeze()
        self._connection.close()

    def write(self, unit: Unit) -> None:
        """One transaction, and a rest if a server runs. WorkError if the file cannot be written."""
        try:
            waiting = clock.monotonic()
            self._connection.execute("BEGIN IMMEDIATE")
            self._worked_since += clock.monotonic() - waiting
            self._commit(unit)
        except sqlite3.OperationalError as error:
            raise WorkError(
                f"the store {self._path} cannot be written ({error}): "
                "what was committed stays, run the command again to go on"
            ) from error
        self._look()
        if self.served:
            self._pause.wait((clock.monotonic() - self._worked_since) * RESTS)
        self._worked_since = clock.monotonic()

    def _look(self) -> None:
        """Alone, pages go from the log to the file seldom; else a server's commit would bring them.

        What is written many times is brought once then.
        """
        self.served = self._is_served()
        pages = PAGES_SERVED if self.served else PAGES_ALONE
        if pages != self._pages:
            self._pages = pages
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")

    def _commit(self, unit: Unit) -> None:
        transaction = Transaction(self._connection)
        try:
            unit(transaction)
            transaction.write()
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        for hook in transaction.after_commit:
            hook()
