"""The writer: one thread owns the write connection and commits whatever has queued up.

Callers hand over units of work and may wait for their commit. Trouble with the file (locked, full,
read-only) keeps units in memory, bounded, until the store is back.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xgw import clock
from xgw.events import Envelope
from xgw.store.database import Store
from xgw.store.transaction import Transaction

PENDING_LIMIT = 64 << 20
BATCH = 512
PATIENCE = 2.0
RETRY_SECONDS = 0.25

log = logging.getLogger("xgw.store")

Work = Callable[[Transaction], None]
Publish = Callable[[Sequence[Envelope]], None]


@dataclass(slots=True)
class Bodies:
    """Payload rows that a unit inserts; the first thing to go when memory is short."""

    rows: list[tuple[str, int, str, bytes]] = field(default_factory=list)

    def size(self) -> int:
        """Bytes held."""
        return sum(len(row[3]) for row in self.rows)


class Ticket:
    """A unit of work on its way; `error` is why it was not committed, if it was not."""

    __slots__ = ("_done", "bodies", "closes", "error", "size", "turn_id", "work")

    def __init__(
        self, work: Work, size: int, bodies: Bodies | None, turn_id: str | None, closes: bool
    ) -> None:
        self.work = work
        self.size = size
        self.bodies = bodies
        self.turn_id = turn_id
        self.closes = closes
        self.error: Exception | None = None
        self._done = threading.Event()

    @property
    def done(self) -> bool:
        """Whether it was committed, or given up."""
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for the commit; False when it has not come in time."""
        return self._done.wait(seconds)

    def finish(self, error: Exception | None = None) -> None:
        """Called by the writer."""
        self.error = error
        self.work = _nothing
        self.bodies = None
        self._done.set()


class Patience:
    """How long one request may still wait for the store, 2 s in all."""

    def __init__(self, seconds: float = PATIENCE) -> None:
        self.left = seconds


class Writer:
    """The only thread that writes. `publish` gets each commit's events, in order."""

    def __init__(self, store: Store, publish: Publish) -> None:
        self._store = store
        self._publish = publish
        self._wake = threading.Condition(threading.Lock())
        self._queue: deque[Ticket] = deque()
        self._stopping = False
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, name="xgw-writer", daemon=True)
        self.pending_bytes = 0
        self.down = False
        self.down_reason: str | None = None
        self.dropped = {"bodies": 0, "turns": 0}
        self._oldest: float | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Commit what has queued up, then end the thread; gives up after `seconds`."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(seconds)

    @property
    def depth(self) -> int:
        """Units that wait."""
        return len(self._queue)

    @property
    def lag_ms(self) -> float:
        """Age of the oldest unit that waits."""
        oldest = self._oldest
        return 0.0 if oldest is None or not self._queue else (clock.monotonic() - oldest) * 1000

    def submit(
        self,
        work: Work,
        *,
        size: int = 2048,
        bodies: Bodies | None = None,
        turn_id: str | None = None,
        closes: bool = False,
    ) -> Ticket:
        """Queue a unit; `size` is its memory without `bodies`, `closes` says that its turn ends."""
        total = size + (bodies.size() if bodies else 0)
        ticket = Ticket(work, total, bodies, turn_id, closes)
        with self._wake:
            if not self._queue:
                self._oldest = clock.monotonic()
            self._queue.append(ticket)
            self.pending_bytes += total
            if self.pending_bytes > PENDING_LIMIT:
                self._shed()
            self._wake.notify()
        return ticket

    def wait(self, ticket: Ticket, patience: Patience) -> bool:
        """Wait for a commit as long as this request may; nobody waits while the store is down."""
        if ticket.done:
            return True
        if self.down:
            return False
        started = clock.monotonic()
        committed = ticket.wait(max(0.0, patience.left))
        patience.left -= clock.monotonic() - started
        if not committed and not self.down:
            self._set_down(self.down_reason or "a commit takes longer than 2 s")
        return committed

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            self._write(batch)
        if self._connection is not None:
            self._connection.close()

    def _take(self) -> list[Ticket] | None:
        with self._wake:
            while not self._queue:
                if self._stopping:
                    return None
                self._wake.wait()
            return [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]

    def _write(self, batch: list[Ticket]) -> None:
        try:
            self._commit(batch)
        except sqlite3.DatabaseError as error:
            if _is_store_trouble(error):
                self._put_back(batch, error)
            else:
                self._one_by_one(batch)
        except Exception:  # noqa: BLE001 - the driver of units: one that fails must not take others along
            self._one_by_one(batch)

    def _commit(self, batch: list[Ticket]) -> None:
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            transaction = Transaction(connection)
            for ticket in batch:
                _run_unit(ticket, transaction)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._committed(batch)
        if transaction.events:
            self._publish(transaction.events)
        for hook in transaction.after_commit:
            hook()
        for ticket in batch:
            ticket.finish()

    def _one_by_one(self, batch: list[Ticket]) -> None:
        """Each unit by itself, so that only the faulty one fails."""
        for position, ticket in enumerate(batch):
            try:
                self._commit([ticket])
            except sqlite3.DatabaseError as error:
                if _is_store_trouble(error):
                    self._put_back(batch[position:], error)
                    return
                self._give_up(ticket, error)
            except Exception as error:  # noqa: BLE001 - the driver of units, as above
                self._give_up(ticket, error)

    def _give_up(self, ticket: Ticket, error: Exception) -> None:
        log.error("a unit of work could not be recorded", exc_info=error)
        with self._wake:
            self.pending_bytes -= ticket.size
        ticket.finish(error)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._store.open_writer()
        return self._connection

    def _committed(self, batch: list[Ticket]) -> None:
        with self._wake:
            self.pending_bytes -= sum(ticket.size for ticket in batch)
            self._oldest = clock.monotonic() if self._queue else None
        if self.down:
            log.warning("the store is back")
        self.down = False
        self.down_reason = None

    def _put_back(self, batch: list[Ticket], error: sqlite3.DatabaseError) -> None:
        """Keep the units and try again; the connection is opened anew."""
        self.down_reason = str(error)
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        with self._wake:
            self._queue.extendleft(reversed(batch))
            if self._stopping:
                self._abandon()
                return
            self._wake.wait(RETRY_SECONDS)

    def _abandon(self) -> None:
        """Shutting down while the store cannot be written: say what is lost."""
        log.error("%d units of work are lost: %s", len(self._queue), self.down_reason)
        for ticket in self._queue:
            ticket.finish(RuntimeError("the store could not be written before the end"))
        self._queue.clear()

    def _set_down(self, reason: str) -> None:
        self.down = True
        self.down_reason = reason
        log.warning("the store cannot be written (%s): recording waits in memory", reason)

    def _shed(self) -> None:
        """Make room: bodies first, then whole ended turns, oldest first; each is counted."""
        for ticket in self._queue:
            if self.pending_bytes <= PENDING_LIMIT:
                return
            if ticket.bodies is not None and ticket.bodies.rows:
                freed = ticket.bodies.size()
                self.dropped["bodies"] += len(ticket.bodies.rows)
                ticket.bodies.rows.clear()
                ticket.size -= freed
                self.pending_bytes -= freed
        for turn_id in [t.turn_id for t in self._queue if t.closes and t.turn_id]:
            if self.pending_bytes <= PENDING_LIMIT:
                return
            self._drop_turn(turn_id)

    def _drop_turn(self, turn_id: str) -> None:
        gone = [t for t in self._queue if t.turn_id == turn_id]
        self._queue = deque(t for t in self._queue if t.turn_id != turn_id)
        self.pending_bytes -= sum(t.size for t in gone)
        self.dropped["turns"] += 1
        for ticket in gone:
            ticket.finish(RuntimeError("dropped: the store was down for too long"))


def _run_unit(ticket: Ticket, transaction: Transaction) -> None:
    if ticket.bodies is not None and ticket.bodies.rows:
        transaction.insert_payloads(ticket.bodies.rows)
    ticket.work(transaction)


def _nothing(_: Transaction) -> None:
    return None


def _is_store_trouble(error: sqlite3.DatabaseError) -> bool:
    """Whether the file, not the unit, is at fault."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return isinstance(error, sqlite3.OperationalError)
    primary = code & 0xFF
    return primary in (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
    )
