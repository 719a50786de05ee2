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
SHED_STEP = PENDING_LIMIT // 16
BATCH = 512
PATIENCE = 2.0
RETRY_SECONDS = 0.25
REMAINS_BYTES = 1024

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


@dataclass(frozen=True, slots=True)
class Part:
    """A unit's part in a turn: whether it begins the turn, whether it ends it.

    Where the whole turn has to be dropped, `remains` is done all the same: others build on it.
    `lost` is called if the unit is never committed.
    """

    turn_id: str | None = None
    opens: bool = False
    closes: bool = False
    remains: Work | None = None
    lost: Callable[[], None] | None = None


ALONE = Part()


class Ticket:
    """A unit of work on its way; `error` is why it was not committed, if it was not."""

    __slots__ = (
        "_gate",
        "_open",
        "bodies",
        "committed",
        "done",
        "error",
        "part",
        "since",
        "size",
        "work",
    )

    def __init__(self, work: Work, size: int, bodies: Bodies | None, part: Part) -> None:
        self.work = work
        self.size = size
        self.bodies = bodies
        self.part = part
        self.since = clock.monotonic()
        self.error: Exception | None = None
        self.committed = False
        self.done = False
        # A bare lock, held until the end: an Event costs several times as much, twice a request.
        self._gate = threading.Lock()
        self._gate.acquire()
        self._open = False

    def wait(self, seconds: float) -> bool:
        """Wait until it was committed or given up; False when that has not come in time."""
        if not self.done and seconds > 0 and self._gate.acquire(timeout=seconds):
            self._gate.release()  # the next one who waits passes too
        return self.done

    def wake(self) -> None:
        """Called by the writer: nobody has to wait for it any longer."""
        if not self._open:
            self._open = True
            self._gate.release()

    def finish(self, error: Exception | None = None) -> None:
        """Called by the writer: it was committed, or given up."""
        self.error = error
        self.work = _nothing
        self.bodies = None
        self.done = True
        self.wake()
        if error is not None and self.part.lost is not None:
            self.part.lost()

    def keep_remains(self, remains: Work) -> None:
        """Called by the writer: nothing but this is left to do."""
        self.work, self.part = remains, Part(lost=self.part.lost)
        self.size, self.bodies = REMAINS_BYTES, None


class Patience:
    """How long one request may still wait for the store, 2 s in all."""

    def __init__(self, seconds: float = PATIENCE) -> None:
        self.left = seconds


class Writer:
    """The only thread that writes. `publish` gets each commit's events, in order.

    `down`: a request has waited its 2 s in vain, and nothing was committed since. `down_reason`:
    why the last try failed. `dropped` counts what was not recorded for want of memory.
    """

    def __init__(self, store: Store, publish: Publish) -> None:
        self._store = store
        self._publish = publish
        self._wake = threading.Condition(threading.Lock())
        self._queue: deque[Ticket] = deque()
        self._in_hand: list[Ticket] = []
        self._singly = 0
        self._stop_by: float | None = None
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, name="xgw-writer", daemon=True)
        self._shed_above = PENDING_LIMIT
        self.pending_bytes = 0
        self.down = False
        self.down_reason: str | None = None
        self.dropped = {"bodies": 0, "turns": 0}

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Commit what has queued up, then end the thread; gives up after `seconds`."""
        with self._wake:
            self._stop_by = clock.monotonic() + seconds
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(seconds + 2 * RETRY_SECONDS)

    @property
    def depth(self) -> int:
        """Units that wait."""
        return len(self._queue) + len(self._in_hand)

    @property
    def lag_ms(self) -> float:
        """Age of the oldest unit that waits."""
        with self._wake:
            oldest = next(iter(self._in_hand or self._queue), None)
        return 0.0 if oldest is None else (clock.monotonic() - oldest.since) * 1000

    def submit(
        self,
        work: Work,
        *,
        size: int = 2048,
        bodies: Bodies | None = None,
        part: Part = ALONE,
        urgent: bool = True,
    ) -> Ticket:
        """Queue a unit; `size` is its memory without `bodies`.

        One that is not `urgent` wakes nobody: it goes with the next that is, when someone waits for
        it, or at the next `nudge`.
        """
        total = size + (bodies.size() if bodies else 0)
        ticket = Ticket(work, total, bodies, part)
        dropped: list[Ticket] = []
        with self._wake:
            self._queue.append(ticket)
            self.pending_bytes += total
            if self.pending_bytes > self._shed_above:
                dropped = self._shed()
            if urgent:
                self._wake.notify()
        for gone in dropped:
            gone.finish(RuntimeError("dropped: the store was down for too long"))
        return ticket

    def nudge(self) -> None:
        """Have what has queued up written now."""
        if self._queue:
            with self._wake:
                self._wake.notify()

    def wait(self, ticket: Ticket, patience: Patience) -> bool:
        """Wait for a commit as long as this request may; nobody waits while the store is down."""
        if ticket.done or self.down:
            return ticket.done
        self.nudge()
        started = clock.monotonic()
        committed = ticket.wait(max(0.0, patience.left))
        patience.left = max(0.0, patience.left - (clock.monotonic() - started))
        if not committed and patience.left == 0:
            self._lose_patience(ticket)
        return committed

    def _lose_patience(self, ticket: Ticket) -> None:
        """The store counts as down, unless it was this request's earlier waits that took the 2 s."""
        with self._wake:
            stuck = self.down_reason is not None or clock.monotonic() - ticket.since >= PATIENCE
            if ticket.committed or self.down or not stuck:
                return
            self.down = True
            self.down_reason = self.down_reason or "a commit takes longer than 2 s"
            for waiting in (*self._in_hand, *self._queue):
                waiting.wake()
        log.warning("the store cannot be written (%s): rows wait in memory", self.down_reason)

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait_for_work():
            self._write()
        self._disconnect()

    def _wait_for_work(self) -> bool:
        with self._wake:
            self._wake.wait_for(lambda: self._queue or self._stop_by is not None)
            return bool(self._queue)

    def _write(self) -> None:
        """One transaction over what has queued up by the time that it may begin."""
        try:
            transaction = self._begin()
        except sqlite3.DatabaseError as error:
            self._pause(error)
            return
        batch = self._take()
        try:
            for ticket in batch:
                _run_unit(ticket, transaction)
            events = transaction.write_events()
            transaction.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - the driver of units: one that fails must not take others along
            self._undo(error)
            return
        self._settle(batch, transaction.after_commit)
        self._tell(events)

    def _begin(self) -> Transaction:
        if self._connection is None:
            self._connection = self._store.open_writer()
        self._connection.execute("BEGIN IMMEDIATE")
        return Transaction(self._connection)

    def _disconnect(self) -> None:
        """Closing rolls back what is open; the next transaction opens the file anew."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _take(self) -> list[Ticket]:
        """Units leave the queue only here, so that shedding sees all that cannot be written."""
        with self._wake:
            count = 1 if self._singly else BATCH
            self._singly = max(0, self._singly - 1)
            self._in_hand = [self._queue.popleft() for _ in range(min(count, len(self._queue)))]
            return self._in_hand

    def _undo(self, error: Exception) -> None:
        """Nothing was committed. The file's fault: again later; a unit's: it alone will fail."""
        trouble = isinstance(error, sqlite3.DatabaseError) and _is_store_trouble(error)
        with self._wake:
            batch, self._in_hand = self._in_hand, []
            if trouble or len(batch) > 1:
                self._queue.extendleft(reversed(batch))
                self._singly = 0 if trouble else len(batch)
            else:
                self.pending_bytes -= batch[0].size
        if trouble:
            self._pause(error)
            return
        self._disconnect()
        if len(batch) == 1:
            log.error("a unit of work could not be recorded", exc_info=error)
            batch[0].finish(error)

    def _settle(self, batch: list[Ticket], hooks: Sequence[Callable[[], None]]) -> None:
        """After the commit: whoever waits may go on."""
        with self._wake:
            self._in_hand = []
            self.pending_bytes -= sum(ticket.size for ticket in batch)
            self._shed_above = max(PENDING_LIMIT, min(self._shed_above, self.pending_bytes))
            was_down, self.down, self.down_reason = self.down, False, None
            for ticket in batch:
                ticket.committed = True
        if was_down:
            log.warning("the store is back")
        for hook in hooks:
            hook()
        for ticket in batch:
            ticket.finish()

    def _tell(self, events: Sequence[Envelope]) -> None:
        try:
            if events:
                self._publish(events)
        except Exception:  # noqa: BLE001 - around a subscriber: what was committed stays so
            log.exception("events could not be published")

    def _pause(self, error: Exception) -> None:
        """The file is in trouble: what has queued up stays, and is tried again a little later."""
        self._disconnect()
        with self._wake:
            self.down_reason = str(error)
            if self._wake.wait_for(self._is_too_late, RETRY_SECONDS):
                lost = list(self._queue)
                self._queue.clear()
                self.pending_bytes = 0
            else:
                return
        log.error("%d units of work are lost: %s", len(lost), error)
        for ticket in lost:
            ticket.finish(RuntimeError("the store could not be written before the end"))

    def _is_too_late(self) -> bool:
        return self._stop_by is not None and clock.monotonic() >= self._stop_by

    # -- when memory is short ------------------------------------------------------------------

    def _shed(self) -> list[Ticket]:
        """Make room: bodies first, then whole ended turns, oldest first; each is counted.

        A step more than needed goes, so that this is not done for every unit; where nothing more
        can go, it is tried again a step later. Returns the units that were taken out.
        """
        enough = PENDING_LIMIT - SHED_STEP
        for ticket in self._queue:
            if self.pending_bytes <= enough:
                return []
            if ticket.bodies is not None and ticket.bodies.rows:
                freed = ticket.bodies.size()
                self.dropped["bodies"] += len(ticket.bodies.rows)
                ticket.bodies.rows.clear()
                ticket.size -= freed
                self.pending_bytes -= freed
        gone = self._drop_turns(enough)
        self._shed_above = max(PENDING_LIMIT, self.pending_bytes + SHED_STEP)
        return gone

    def _drop_turns(self, enough: int) -> list[Ticket]:
        """Only turns that begin and end here: half a turn would never end in the store."""
        turns: dict[str, list[Ticket]] = {}
        for ticket in self._queue:
            if ticket.part.turn_id is not None:
                turns.setdefault(ticket.part.turn_id, []).append(ticket)
        gone: list[Ticket] = []
        for units in turns.values():
            if self.pending_bytes <= enough:
                break
            if units[0].part.opens and units[-1].part.closes:
                self.dropped["turns"] += 1
                gone += [ticket for ticket in units if not self._reduce(ticket)]
        leaving = set(map(id, gone))
        self._queue = deque(ticket for ticket in self._queue if id(ticket) not in leaving)
        return gone

    def _reduce(self, ticket: Ticket) -> bool:
        """Free a dropped turn's unit; whether something of it remains to be done."""
        self.pending_bytes -= ticket.size
        remains = ticket.part.remains
        if remains is None:
            return False
        ticket.keep_remains(remains)
        self.pending_bytes += ticket.size
        return True


def _run_unit(ticket: Ticket, transaction: Transaction) -> None:
    if ticket.bodies is not None and ticket.bodies.rows:
        transaction.insert_payloads(ticket.bodies.rows)
    ticket.work(transaction)


def _nothing(_: Transaction) -> None:
    return None


TROUBLES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)


def _is_store_trouble(error: sqlite3.DatabaseError) -> bool:
    """Whether the file, not the unit, is at fault."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return isinstance(error, sqlite3.OperationalError)
    return code & 0xFF in TROUBLES
