"""What waits for its commit: units of work in order, within bounds of memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xgw import clock
from xgw.frozen import frozen
from xgw.store.rows import PayloadRow, packed_rows
from xgw.store.transaction import Transaction
from xgw.store.units import Note, Work

PATIENCE = 2.0
PENDING_LIMIT = 64 << 20
SHED_STEP = PENDING_LIMIT // 16
REMAINS_BYTES = 1024


@dataclass(slots=True)
class Bodies:
    """Payload rows that a unit inserts; the first thing to go when memory is short."""

    rows: list[tuple[str, int, str, bytes]] = field(default_factory=list)

    def size(self) -> int:
        """Bytes held."""
        return sum(len(row[3]) for row in self.rows)

    def pack(self) -> None:
        """Have the rows as the store has them. Another thread may take them at the same time."""
        self.rows = list(packed_rows(self.rows, set()))


@frozen
class Part:
    """A unit's part in a turn: whether it begins the turn, whether it ends it.

    Where the whole turn has to be dropped, `remains` is done all the same: others build on it.
    `lost` is called if the unit is never committed. `apart` names what alone the unit concerns, a
    session or a turn without one: only among units of the same its order matters. None is
    everything.
    """

    turn_id: str | None = None
    opens: bool = False
    closes: bool = False
    remains: Work | None = None
    lost: Callable[[], None] | None = None
    apart: str | None = None


ALONE = Part()


class Patience:
    """How long one request may still wait for the store, 2 s in all."""

    def __init__(self, seconds: float = PATIENCE) -> None:
        self.left = seconds

    def spend(self, seconds: float) -> None:
        """So much of it is gone."""
        self.left = max(0.0, self.left - seconds)


class Ticket:
    """A unit of work on its way; `error` is why it was not committed, if it was not.

    One that is not `urgent` may wait until others are due. Whoever made one that is `awaited` waits
    for it at once. `note` says the same as `work`, where another process can do it; `then` is
    called after the commit.
    """

    __slots__ = (
        "_gate",
        "awaited",
        "bodies",
        "committed",
        "done",
        "error",
        "note",
        "part",
        "since",
        "size",
        "then",
        "urgent",
        "work",
    )

    def __init__(
        self,
        work: Work,
        size: int,
        bodies: Bodies | None,
        part: Part,
        *,
        note: Note | None = None,
        then: Callable[[], None] | None = None,
        urgent: bool = True,
        awaited: bool = False,
    ) -> None:
        self.work = work
        self.note = note
        self.then = then
        self.urgent = urgent
        self.awaited = awaited
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

    def wait(self, seconds: float) -> bool:
        """Wait until it was committed or given up; False when that has not come in time."""
        gate = self._gate
        if not self.done and seconds > 0 and gate.acquire(timeout=seconds):
            gate.release()  # the next one who waits passes too
        return self.done

    def wake(self) -> None:
        """Called by the writer: those who wait for it now need not wait any longer."""
        gate, self._gate = self._gate, threading.Lock()
        self._gate.acquire()
        gate.release()

    def finish(self, error: Exception | None = None) -> None:
        """Called by the writer: it was committed, or given up."""
        self.error = error
        self.work = _nothing
        self.bodies = self.note = self.then = None
        self.done = True
        self._gate.release()

    def keep_remains(self, remains: Work) -> None:
        """Called by the writer: nothing but this is left to do."""
        self.work, self.part = remains, Part(lost=self.part.lost)
        self.size, self.bodies = REMAINS_BYTES, None
        self.note = self.then = None


class Backlog:
    """Units that wait, oldest first. Not for several threads: the writer's lock guards it.

    `bytes` is the memory of everything that was added and is neither settled nor dropped, `dropped`
    what was not recorded for want of memory.
    """

    def __init__(self) -> None:
        self._queue: deque[Ticket] = deque()
        self._shed_above = PENDING_LIMIT
        self.bytes = 0
        self.dropped = {"bodies": 0, "turns": 0}

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, ticket: Ticket) -> list[Ticket]:
        """Queue a unit; returns those that had to go for it."""
        self._queue.append(ticket)
        self.bytes += ticket.size
        return self._shed() if self.bytes > self._shed_above else []

    def take(self, most: int) -> list[Ticket]:
        """The oldest units, to be committed."""
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def take_due(self, most: int) -> list[Ticket]:
        """The oldest units that are urgent, and those whose order among them matters."""
        due = {ticket.part.apart for ticket in self._queue if ticket.urgent}
        if not due or None in due or any(ticket.part.apart is None for ticket in self._queue):
            return self.take(most)
        taken: list[Ticket] = []
        left: deque[Ticket] = deque()
        for ticket in self._queue:
            is_due = ticket.part.apart in due and len(taken) < most
            (taken if is_due else left).append(ticket)
        self._queue = left
        return taken

    @property
    def is_due(self) -> bool:
        """Whether any is urgent."""
        return any(ticket.urgent for ticket in self._queue)

    def put_back(self, batch: list[Ticket]) -> None:
        """They could not be committed."""
        self._queue.extendleft(reversed(batch))

    def settle(self, batch: list[Ticket]) -> None:
        """They are gone: committed, or given up."""
        self.bytes -= sum(ticket.size for ticket in batch)
        self._shed_above = max(PENDING_LIMIT, min(self._shed_above, self.bytes))

    def waiting(self) -> list[Ticket]:
        """All of them."""
        return list(self._queue)

    def oldest(self) -> Ticket | None:
        """The next one to be committed."""
        return self._queue[0] if self._queue else None

    def _shed(self) -> list[Ticket]:
        """Make room: bodies first, then whole ended turns, oldest first; each is counted.

        A step more than needed goes, so that this is not done for every unit; where nothing more
        can go, it is tried again a step later.
        """
        enough = PENDING_LIMIT - SHED_STEP
        for ticket in self._queue:
            if self.bytes <= enough:
                return []
            if ticket.bodies is not None and ticket.bodies.rows:
                freed = ticket.bodies.size()
                self.dropped["bodies"] += len(ticket.bodies.rows)
                ticket.bodies.rows.clear()
                ticket.size -= freed
                self.bytes -= freed
        gone = self._drop_turns(enough)
        self._shed_above = max(PENDING_LIMIT, self.bytes + SHED_STEP)
        return gone

    def _drop_turns(self, enough: int) -> list[Ticket]:
        """Only turns that begin and end here: half a turn would never end in the store."""
        turns: dict[str, list[Ticket]] = {}
        for ticket in self._queue:
            if ticket.part.turn_id is not None:
                turns.setdefault(ticket.part.turn_id, []).append(ticket)
        gone: list[Ticket] = []
        for units in turns.values():
            if self.bytes <= enough:
                break
            if units[0].part.opens and units[-1].part.closes:
                self.dropped["turns"] += 1
                gone += [ticket for ticket in units if not self._reduce(ticket)]
        leaving = set(map(id, gone))
        self._queue = deque(ticket for ticket in self._queue if id(ticket) not in leaving)
        return gone

    def _reduce(self, ticket: Ticket) -> bool:
        """Free a dropped turn's unit; whether something of it remains to be done."""
        self.bytes -= ticket.size
        remains = ticket.part.remains
        if remains is None:
            return False
        ticket.keep_remains(remains)
        self.bytes += ticket.size
        return True


def _nothing(_: Transaction) -> None:
    return None


def bodies_of(batch: Sequence[Ticket]) -> list[PayloadRow]:
    """What all units of a transaction refer to."""
    return [row for ticket in batch if ticket.bodies is not None for row in ticket.bodies.rows]
