"""The sweep: payloads that nothing refers to any more are deleted, soon after a deletion.

First everything is marked that the store refers to, then what has no mark is deleted in small
units. What is queued or handed out meanwhile is never deleted: the shelf pins it.
"""

from __future__ import annotations

import logging
import sqlite3
import threading

import peewee

from xgw import clock
from xgw.store.database import Store
from xgw.store.digits import packed_hash
from xgw.store.payloads import Shelf
from xgw.store.transaction import Transaction
from xgw.store.writer import Ticket, Writer
from xgw.upkeep.alone import alone
from xgw.upkeep.marks import Marks

PAUSE_SECONDS = 20.0
"""Between two sweeps: what was deleted meanwhile goes with the next one."""

DELETED_AT_ONCE = 200

log = logging.getLogger("xgw.upkeep")


class Stopped(Exception):
    """The process ends: the rest is for the next time."""


class Sweep:
    """Sweeps in a thread of its own whenever it was asked to, or was not done when xgw ended."""

    def __init__(self, store: Store, writer: Writer, shelf: Shelf) -> None:
        self._store = store
        self._writer = writer
        self._shelf = shelf
        self._asked = threading.Event()
        self._stopping = threading.Event()
        self._worked_since = 0.0
        self._thread = threading.Thread(target=self._run, name="xgw-sweep", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        if self._count():
            self.ask()
        self._thread.start()

    def stop(self) -> None:
        """End the thread, in the middle of a sweep too."""
        self._stopping.set()
        self._asked.set()
        if self._thread.is_alive():
            self._thread.join(2)

    def ask(self) -> None:
        """Something was deleted."""
        self._asked.set()

    def sweep(self) -> int:
        """Sweep now; returns how many payloads were deleted. Raises Stopped."""
        count = self._count()
        needed = self._shelf.begin_sweep()
        self._writer.kept.begin()
        try:
            # What refers to bodies that were handed out before is committed then.
            self._wait(self._writer.submit(lambda tx: None))
            self._worked_since = clock.monotonic()
            with Marks(self._store, self._breathe) as marks:
                marks.mark(needed)
                marks.mark_referenced()
                deleted = sum(self._delete(batch) for batch in marks.unmarked())
            self._wait(self._writer.submit(lambda tx: _settle(tx, count)))
            return deleted
        finally:
            self._writer.kept.end()
            self._shelf.end_sweep()

    def _run(self) -> None:
        while self._asked.wait() and not self._stopping.is_set():
            self._asked.clear()
            try:
                with alone(self._store.path, wait=False) as is_alone:
                    if is_alone:
                        self.sweep()
                    else:
                        self._asked.set()
            except Stopped:
                return
            except (sqlite3.Error, peewee.DatabaseError, OSError) as error:
                log.warning("payloads could not be swept, later again: %s", error)
                self._asked.set()
            self._stopping.wait(PAUSE_SECONDS)

    def _delete(self, batch: list[str]) -> int:
        deleted = 0
        for at in range(0, len(batch), DELETED_AT_ONCE):
            some = batch[at : at + DELETED_AT_ONCE]
            gone: list[str] = []

            def work(tx: Transaction, some: list[str] = some, gone: list[str] = gone) -> None:
                gone[:] = [key for key in some if not self._is_needed(key)]
                marks = ", ".join("?" * len(gone))
                tx.execute(f"DELETE FROM payloads WHERE hash IN ({marks})", map(packed_hash, gone))

            self._wait(self._writer.submit(work))
            deleted += len(gone)
        return deleted

    def _is_needed(self, key: str) -> bool:
        return self._shelf.pins.hold(key) or self._writer.kept.hold(key)

    def _wait(self, ticket: Ticket) -> None:
        """For as long as it takes: a store that is down may come back."""
        while not ticket.done:
            if self._stopping.is_set():
                raise Stopped
            ticket.wait(0.5)
            if not ticket.done and self._writer.down:
                self._stopping.wait(0.5)
        if ticket.error is not None:
            raise Stopped from ticket.error

    def _breathe(self) -> None:
        """Rest for as long as it worked: serving comes first."""
        now = clock.monotonic()
        if self._stopping.wait(now - self._worked_since):
            raise Stopped
        self._worked_since = clock.monotonic()

    def _count(self) -> int:
        """How many deletions the file has seen since the last sweep; 0 for none."""
        return int(self._store.sql("PRAGMA user_version")[0][0])


def _settle(tx: Transaction, count: int) -> None:
    """Nothing is left to be swept, unless something was deleted meanwhile."""
    row = tx.one("PRAGMA user_version")
    if row and row[0] == count:
        tx.execute("PRAGMA user_version = 0")
