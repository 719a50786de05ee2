"""The sweep: payloads that nothing refers to any more are deleted, soon after a deletion.

First everything is marked that the store refers to, then what has no mark is deleted in small
units. What is queued or handed out meanwhile is never deleted: the shelf pins it. What other
processes commit meanwhile is marked before each deletion, in its transaction; none of them takes
anything for being there that it has not looked up in its own. So only the one process that serves
a store, or has its lock, may sweep.
"""

from __future__ import annotations

import datetime
import logging
import math
import sqlite3
import threading
from collections.abc import Collection

import peewee

from xgw import clock
from xgw.errors import WorkError
from xgw.frozen import frozen
from xgw.recording.edits import count_deletion
from xgw.store.database import Store
from xgw.store.digits import packed_hash
from xgw.store.payloads import Shelf
from xgw.store.rows import PRUNED
from xgw.store.transaction import Transaction
from xgw.store.writer import Ticket, Writer
from xgw.upkeep.alone import alone
from xgw.upkeep.marks import Found, Marks

PAUSE_SECONDS = 20.0
"""Between two sweeps: what was deleted meanwhile goes with the next one."""

WAIT_SECONDS = 0.5
"""Between two looks whether other upkeep of the store has ended."""

DELETED_AT_ONCE = 200

DELETE = "DELETE FROM payloads WHERE hash IN ({})"
EMPTY = f"UPDATE payloads SET codec = '{PRUNED}', data = x'' WHERE hash IN ({{}})"

log = logging.getLogger("xgw.upkeep")


@frozen
class Aged:
    """Bodies of turns that ended before a moment; of these sessions alone, if they are given."""

    before: datetime.datetime
    sessions: Collection[str] | None = None


@frozen
class Amount:
    """Payloads, and the bytes that they took."""

    count: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.count + other.count, self.bytes + other.bytes)


NOTHING = Amount()


@frozen
class Swept:
    """What a sweep did: of the emptied ones the size is still known, the deleted ones are gone."""

    emptied: Amount = NOTHING
    deleted: Amount = NOTHING


class Stopped(Exception):
    """The process ends: the rest is for the next time."""


class Sweep:
    """Sweeps in a thread of its own whenever it was asked to, or was not done when xgw ended."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        shelf: Shelf,
        *,
        patience: float = math.inf,
        rests: bool = True,
    ) -> None:
        """`patience`: the seconds that a commit may take; `rests`: leave others half the time."""
        self._rests = rests
        self._patience = patience
        self._store = store
        self._writer = writer
        self._shelf = shelf
        self._asked = threading.Event()
        self._stopping = threading.Event()
        self._worked_since = 0.0
        self._mine = threading.Lock()
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

    def sweep(self, aged: Aged | None = None) -> Swept:
        """Sweep now, once the bodies that have aged were emptied. Raises Stopped.

        What was emptied before it ended early is swept by the next one.
        """
        with self._mine:
            while True:
                with alone(self._store.path, wait=False) as is_alone:
                    if is_alone:
                        return self._sweep(aged)
                if self._stopping.wait(WAIT_SECONDS):
                    raise Stopped

    def _sweep(self, aged: Aged | None) -> Swept:
        if aged is not None:
            self.wait(self._writer.submit(count_deletion))
        count = self._count()
        needed = self._shelf.begin_sweep()
        self._writer.kept.begin()
        try:
            # What refers to bodies that were handed out before is committed then.
            self.wait(self._writer.submit(lambda tx: None))
            self._worked_since = clock.monotonic()
            with Marks(self._store, self._breathe) as marks:
                if aged is not None:
                    marks.spend(clock.to_db(aged.before), aged.sessions)
                marks.mark(needed)
                marks.mark_referenced()
                emptied = self._empty(marks) if aged is not None else Amount()
                deleted = sum(
                    (self._take(marks, DELETE, some) for some in marks.unmarked()), Amount()
                )
            self.wait(self._writer.submit(lambda tx: _settle(tx, count)))
            return Swept(emptied, deleted)
        finally:
            self._writer.kept.end()
            self._shelf.end_sweep()

    def _run(self) -> None:
        while self._asked.wait() and not self._stopping.is_set():
            self._asked.clear()
            try:
                self.sweep()
            except Stopped:
                return
            except (sqlite3.Error, peewee.DatabaseError, WorkError, OSError) as error:
                log.warning("payloads could not be swept, later again: %s", error)
                self._asked.set()
            self._stopping.wait(PAUSE_SECONDS)

    def _empty(self, marks: Marks) -> Amount:
        """Leave nothing but the size of bodies that count no more."""
        emptied = Amount()
        for there, empty in marks.spent_bodies():
            emptied += self._take(marks, EMPTY, there)
            # Their rows stay for those that name them.
            marks.mark([*empty, *(key for key, _ in there)])
        return emptied

    def _take(self, marks: Marks, statement: str, found: Found) -> Amount:
        """Do this to those that nobody needs by then."""
        taken = Amount()
        for at in range(0, len(found), DELETED_AT_ONCE):
            some = dict(found[at : at + DELETED_AT_ONCE])
            gone: list[str] = []

            def work(tx: Transaction, some: dict[str, int] = some, gone: list[str] = gone) -> None:
                if self._stopping.is_set():
                    return
                marks.catch_up(hurry=True)
                gone[:] = [key for key in some if not self._is_needed(marks, key)]
                places = ", ".join("?" * len(gone))
                tx.execute(statement.format(places), map(packed_hash, gone))

            marks.catch_up()
            self.wait(self._writer.submit(work))
            taken += Amount(len(gone), sum(some[key] for key in gone))
        return taken

    def _is_needed(self, marks: Marks, key: str) -> bool:
        return self._shelf.pins.hold(key) or self._writer.kept.hold(key) or marks.has(key)

    def wait(self, ticket: Ticket) -> None:
        """Wait for a commit, by default as long as it takes: a store that is down may come back.

        Stopped if that ends before; WorkError if the patience does, or for a unit that failed.
        """
        give_up_at = clock.monotonic() + self._patience
        while not ticket.done:
            if self._stopping.is_set():
                raise Stopped
            if clock.monotonic() > give_up_at:
                raise WorkError(f"the store cannot be written: {self._writer.down_reason}")
            ticket.wait(0.5)
            if not ticket.done and self._writer.down:
                self._stopping.wait(0.5)
        if ticket.error is not None:
            raise WorkError(f"the store cannot be written: {ticket.error}") from ticket.error

    def _breathe(self) -> None:
        """Rest for as long as it worked: serving comes first."""
        now = clock.monotonic()
        if self._stopping.wait(now - self._worked_since if self._rests else 0):
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
