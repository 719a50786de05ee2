"""The writer: one thread owns the write connection and commits whatever has queued up.

Callers hand over units of work and may wait for their commit. Trouble with the file (locked, full,
read-only) keeps units in memory, bounded, until the store is back.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence

from xgw import clock
from xgw.store.backlog import ALONE, PATIENCE, Backlog, Bodies, Part, Patience, Ticket
from xgw.store.committing import Committing
from xgw.store.database import Store
from xgw.store.outcomes import give_up, log_failure, log_loss, tell
from xgw.store.pins import Kept
from xgw.store.scribe import Employ
from xgw.store.units import Note, Work, is_store_trouble
from xgw.store.untold import Publish, Untold

__all__ = ["ALONE", "Bodies", "Part", "Patience", "Ticket", "Work", "Writer"]

BATCH = 512
RETRY_SECONDS = 0.25
SLOW_SECONDS, WARY_SECONDS = 0.2, 2.0
"""A commit that takes so long, and how long nobody is kept from their own work by one after it."""

log = logging.getLogger("xgw.store")


class Writer:
    """Whatever is written is written here: by its thread, or by one that waits for it.

    One transaction at a time. `publish` gets each commit's events, in order.

    `down`: a request has waited its 2 s in vain, and nothing was committed since. `down_reason`:
    why the last try failed. `lost`: units that were not written before the end. `kept`: what a
    sweep of payloads has to leave alone.
    """

    def __init__(self, store: Store, publish: Publish, employ: Employ | None = None) -> None:
        self._untold = Untold(publish)
        self._turn = threading.Lock()
        self._wary_until = 0.0
        self._wake = threading.Condition(threading.Lock())
        self._backlog = Backlog()
        self.kept = Kept()
        self._committing = Committing(store, employ, self.kept)
        self._in_hand: list[Ticket] = []
        self._singly = 0
        self._is_due = self._all_due = False
        self._stop_by: float | None = None
        self._thread = threading.Thread(target=self._run, name="xgw-writer", daemon=True)
        self.down = False
        self.down_reason: str | None = None
        self.lost = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Commit what has queued up, then end the thread; gives up after `seconds`, see `lost`.

        A scribe that does not answer for half of them is ended: so there is time for its batch.
        """
        with self._wake:
            self._stop_by = clock.monotonic() + seconds
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(seconds / 2)
        if self._thread.is_alive():
            self._committing.handing.abandon()
            self._thread.join(seconds / 2 + 2 * RETRY_SECONDS)
        if self._thread.is_alive():
            with self._wake:
                unfinished = [*self._in_hand, *self._backlog.waiting()]
            self._lose(unfinished, self.down_reason or "a commit does not come to its end")

    @property
    def thread_id(self) -> int | None:
        """The thread's native id, once it has started."""
        return self._thread.native_id

    @property
    def depth(self) -> int:
        """Units that wait."""
        return len(self._backlog) + len(self._in_hand)

    @property
    def crowded(self) -> bool:
        """Whether units come so thick that another process is to write them."""
        return self._committing.handing.crowded

    @property
    def pending_bytes(self) -> int:
        """Memory of the units that wait."""
        return self._backlog.bytes

    @property
    def dropped(self) -> dict[str, int]:
        """What was not recorded for want of memory: `bodies` and `turns`, since the start."""
        return self._backlog.dropped

    @property
    def lag_ms(self) -> float:
        """Age of the oldest unit that waits."""
        with self._wake:
            oldest = self._in_hand[0] if self._in_hand else self._backlog.oldest()
        return 0.0 if oldest is None else (clock.monotonic() - oldest.since) * 1000

    def submit(
        self,
        work: Work,
        *,
        size: int = 2048,
        bodies: Bodies | None = None,
        part: Part = ALONE,
        note: Note | None = None,
        then: Callable[[], None] | None = None,
        urgent: bool = True,
        awaited: bool = False,
    ) -> Ticket:
        """Queue a unit; `size` is its memory without `bodies`, `then` called after its commit.

        One that is not `urgent` wakes nobody: it goes with the next one that is and has to come
        after it, when someone waits for it, or at the next `nudge`. What it begins may have ended
        by then, and is written once. For one that is `awaited` the caller waits next, and calls
        `tell` once its own work is done.
        """
        total = size + (bodies.size() if bodies else 0)
        ticket = Ticket(
            work, total, bodies, part, note=note, then=then, urgent=urgent, awaited=awaited
        )
        with self._wake:
            dropped = self._backlog.add(ticket)
            if urgent:
                self._is_due = True
                if not awaited:
                    self._wake.notify()
        for gone in dropped:
            give_up(gone, RuntimeError("dropped: the store was down for too long"))
        return ticket

    def nudge(self) -> None:
        """Have what has queued up written now."""
        if self._backlog:
            with self._wake:
                self._all_due = True
                self._wake.notify()

    def wait(self, ticket: Ticket, patience: Patience) -> bool:
        """Wait for a commit as long as this request may; nobody waits while the store is down."""
        if ticket.done or self.down:
            return ticket.done
        if not ticket.urgent:
            self._hasten(ticket)
        started = clock.monotonic()
        if ticket.awaited and patience.left:
            self._write_here(started)
        committed = ticket.wait(patience.left - (clock.monotonic() - started))
        patience.spend(clock.monotonic() - started)
        if not committed and patience.left == 0:
            self._lose_patience(ticket)
        return committed

    def tell(self) -> None:
        """Publish what was committed and left to others to be told; never waits."""
        self._untold.tell()

    def _write_here(self, now: float) -> None:
        """Write what has queued up in this thread, if nobody writes: no other one has to be woken.

        Where the store is slow or in trouble the writer's own thread does it: a request waits for
        that no longer than it may.
        """
        in_order = self.down_reason is None and self._stop_by is None and now >= self._wary_until
        alone = in_order and not self.crowded and not self._committing.is_lasting
        if alone and self._turn.acquire(blocking=False):
            try:
                if self._has_work():
                    self._write()
            finally:
                self._turn.release()
            if clock.monotonic() - now > SLOW_SECONDS:
                self._wary_until = clock.monotonic() + WARY_SECONDS
        with self._wake:
            if self._has_work():
                self._wake.notify()

    def _hasten(self, ticket: Ticket) -> None:
        with self._wake:
            ticket.urgent = self._is_due = True
            self._wake.notify()

    def _lose_patience(self, ticket: Ticket) -> None:
        """The store counts as down, unless earlier waits of this request took most of its 2 s."""
        with self._wake:
            stuck = self.down_reason is not None or clock.monotonic() - ticket.since >= PATIENCE
            if ticket.committed or self.down or not stuck:
                return
            self.down = True
            self.down_reason = self.down_reason or "a commit takes longer than 2 s"
            for waiting in (*self._in_hand, *self._backlog.waiting()):
                waiting.wake()
        log.warning("the store cannot be written (%s): rows wait in memory", self.down_reason)

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait_for_work():
            with self._turn:
                trouble = self._write()
            self.tell()
            if trouble is not None:
                self._pause(trouble)
        with self._turn:
            self._committing.handing.end()
            self._committing.disconnect()
        self.tell()

    def _wait_for_work(self) -> bool:
        with self._wake:
            self._wake.wait_for(self._has_work)
            return bool(self._backlog)

    def _has_work(self) -> bool:
        is_due = self._is_due or self._all_due
        return self._stop_by is not None or (is_due and bool(self._backlog))

    def _write(self) -> Exception | None:
        """One transaction over what has queued up by the time that it may begin.

        Returns what is wrong with the file; all that was to be written waits then.
        """
        try:
            in_order = self.down_reason is None and not self._singly
            transaction = self._committing.begin(in_order=in_order)
        except sqlite3.DatabaseError as error:
            return self._in_trouble(error)
        batch = self._take()
        try:
            committed = self._committing.commit(batch, transaction)
        except Exception as error:  # noqa: BLE001 - the driver of units: one that fails must not take others along
            return self._undo(error)
        self._untold.add(committed.events)
        self._settle(batch, committed.hooks)
        return None

    def _take(self) -> list[Ticket]:
        """Units leave the queue only here, so that shedding sees all that cannot be written."""
        with self._wake:
            everything = self._all_due or self._singly or self._stop_by is not None
            take = self._backlog.take if everything else self._backlog.take_due
            self._in_hand = take(1 if self._singly else BATCH)
            self._committing.handing.note(len(self._in_hand))
            self._singly = max(0, self._singly - 1)
            self._all_due = bool(everything and self._backlog)
            self._is_due = self._backlog.is_due
            return self._in_hand

    def _undo(self, error: Exception) -> Exception | None:
        """Nothing was committed. The file's fault: again later; a unit's: it alone will fail."""
        trouble = is_store_trouble(error)
        with self._wake:
            batch, self._in_hand = self._in_hand, []
            self._all_due = True
            if trouble or len(batch) > 1:
                self._backlog.put_back(batch)
                self._singly = 0 if trouble else len(batch)
            else:
                self._backlog.settle(batch)
        if trouble:
            return self._in_trouble(error)
        self._committing.disconnect()
        if len(batch) == 1:
            log_failure(batch[0], error)
            give_up(batch[0], error)
        return None

    def _in_trouble(self, error: Exception) -> Exception:
        """What has queued up stays."""
        self._committing.disconnect()
        self.down_reason = str(error)
        return error

    def _settle(self, batch: list[Ticket], hooks: Sequence[Callable[[], None]]) -> None:
        """After the commit: whoever waits may go on."""
        with self._wake:
            self._in_hand = []
            self._backlog.settle(batch)
            was_down, self.down, self.down_reason = self.down, False, None
            for ticket in batch:
                ticket.committed = True
        if was_down:
            log.warning("the store is back")
        for hook in hooks:
            tell(hook)
        for ticket in batch:
            if ticket.then is not None:
                tell(ticket.then)
            ticket.finish()

    def _pause(self, error: Exception) -> None:
        """The file is in trouble: it is tried again a little later, unless that is too late."""
        with self._wake:
            if not self._wake.wait_for(self._is_too_late, RETRY_SECONDS):
                return
            lost = self._backlog.take(len(self._backlog))
            self._backlog.settle(lost)
        self._lose(lost, str(error))
        for ticket in lost:
            give_up(ticket, RuntimeError("the store could not be written before the end"))

    def _lose(self, units: Sequence[Ticket], why: str) -> None:
        """Once: the thread may come to it after it was given up itself."""
        if units and not self.lost:
            self.lost = len(units)
            log_loss(units, why)

    def _is_too_late(self) -> bool:
        return self._stop_by is not None and clock.monotonic() >= self._stop_by
