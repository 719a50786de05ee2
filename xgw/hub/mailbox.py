"""A subscriber's mailbox: bounded, and where it is too small, live frames are lost first."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import cached_property
from types import TracebackType
from typing import Any

from xgw.events import Envelope
from xgw.hub.waking import Waking

MAILBOX = 4096
LIVE_ROOM = 512
CHARACTERS = 1 << 20
LIGHT = 32
"""Events that a mailbox takes without a look at their size."""

FIELD = 16
"""Characters that a field counts for beside its text: its name, or a number's digits."""

Stream = tuple[str | None, object, object]
"""What text belongs together: step, kind and index of its deltas."""


class Batch:
    """Events that go out together: one object for all who want the same ones.

    `wants` is what they were subscribed to with, for a mailbox that holds several such things.
    """

    def __init__(self, envelopes: Iterable[Envelope], wants: object = None) -> None:
        self.envelopes = tuple(envelopes)
        self.wants = wants
        seqs = [e.seq for e in self.envelopes if e.seq is not None]
        self.live = len(self.envelopes) - len(seqs)
        self.last_seq = seqs[-1] if seqs else None
        self._made: dict[Callable[[Envelope], bytes], bytes] = {}

    def encoded(self, encode: Callable[[Envelope], bytes]) -> bytes:
        """The events as `encode` writes them: done once, however many readers ask."""
        made = self._made.get(encode)
        if made is None:
            made = self._made[encode] = b"".join(map(encode, self.envelopes))
        return made

    @cached_property
    def characters(self) -> int:
        """About how much there is in the events."""
        return sum(_characters(envelope.payload) for envelope in self.envelopes)

    @cached_property
    def streams(self) -> frozenset[Stream]:
        """The texts that it has pieces of."""
        return frozenset(stream_of(e) for e in self.envelopes if e.type == "step.delta")


class Subscription:
    """One reader's mailbox, read by one thread.

    `lagged` is the `seq` to resume after, once the reader was too slow. `leave` has the hub forget
    it; `newest` is the last event that went out before it was there.
    """

    def __init__(
        self, leave: Callable[[Subscription], None], waking: Waking, newest: int, capacity: int
    ) -> None:
        self._leave = leave
        self._waking = waking
        self._capacity = capacity
        self._lock = threading.Lock()
        # A bare lock, held while nothing has come: a Condition makes a new one for each wait.
        self._gate = threading.Lock()
        self._gate.acquire()
        self._asleep = self._roused = self._nudged = False
        self._box: deque[Batch] = deque()
        self._held = self._live_held = self._characters = 0
        self._starved: set[Stream] = set()
        self._last_seq = newest
        self.called = False
        self.lagged: int | None = None
        self.closed = False

    # -- for the reader ------------------------------------------------------------------------

    def get(self, timeout: float) -> list[Envelope]:
        """Everything that has arrived; waits up to `timeout` seconds for something, else []."""
        return [envelope for batch in self.take(timeout) for envelope in batch.envelopes]

    def take(self, timeout: float) -> list[Batch]:
        """The same, in the batches in which it arrived."""
        with self._lock:
            if self._ready or timeout <= 0:
                self._nudged = False
                return self._empty()
            self._asleep = True
        opened = self._gate.acquire(timeout=timeout)
        with self._lock:
            if not opened and not self._asleep:
                self._gate.acquire()  # it was opened after all, just then
            self._asleep = self._nudged = False
            roused, self._roused = self._roused, False
            arrived = self._empty()
        if roused:
            self._waking.next()
        return arrived

    def nudge(self) -> None:
        """Have `take` return with what there is, now or when it is called next; never waits."""
        with self._lock:
            self._nudged = True
            self._open_gate()

    def take_starved(self) -> set[Stream]:
        """Streams that lost frames since last asked: send their whole text."""
        with self._lock:
            starved, self._starved = self._starved, set()
            return starved

    def close(self) -> None:
        """Stop receiving; wakes a blocked `get`."""
        self._leave(self)
        self.end()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _ready(self) -> bool:
        return bool(self._box) or self.closed or self.lagged is not None or self._nudged

    def _empty(self) -> list[Batch]:
        arrived = list(self._box)
        self._box.clear()
        self._held = self._live_held = self._characters = 0
        return arrived

    # -- for the hub ---------------------------------------------------------------------------

    def offer(self, batch: Batch) -> bool:
        """Put events into the mailbox; never waits. Whether the reader is to be woken for them."""
        with self._lock:
            if self.closed or self.lagged is not None:
                return False
            if not self._put_whole(batch):
                self._put_singly(batch)
            return self._asleep

    def rouse(self) -> bool:
        """Wake the reader; False if it is awake, or has taken what it was called for."""
        with self._lock:
            if not self._asleep or not (self._box or self.lagged is not None):
                return False
            self._asleep, self._roused = False, True
            self._gate.release()
            return True

    def end(self) -> None:
        """Nothing more comes; wakes a blocked `get`."""
        with self._lock:
            self.closed = True
            self._open_gate()

    def _open_gate(self) -> None:
        if self._asleep:
            self._asleep = False
            self._gate.release()

    def _put_whole(self, batch: Batch) -> bool:
        """Whether there was room for all of it, or for none and nothing is lost but live frames."""
        if batch.last_seq is None and (self._live_held >= LIVE_ROOM or self._full):
            self._starved |= batch.streams
            return True
        held = self._held + len(batch.envelopes)
        if held > self._capacity or self._live_held + batch.live > LIVE_ROOM:
            return False
        if held > LIGHT:
            if self._characters + batch.characters > CHARACTERS:
                return False
            self._characters += batch.characters
        self._box.append(batch)
        self._held = held
        self._live_held += batch.live
        self._last_seq = batch.last_seq or self._last_seq
        return True

    def _put_singly(self, batch: Batch) -> None:
        for envelope in batch.envelopes:
            if self.lagged is not None:
                return
            self._put(envelope, batch.wants)

    def _put(self, envelope: Envelope, wants: object) -> None:
        if envelope.seq is None:
            if self._live_held < LIVE_ROOM and not self._full:
                self._hold(envelope, wants)
                self._live_held += 1
            elif envelope.type == "step.delta":
                self._starved.add(stream_of(envelope))
            return
        if self._full:
            self._drop_live()
        if self._full:
            # With several wishes a later event may be there already, for another of them.
            self.lagged = min(self._last_seq, envelope.seq - 1)
            return
        self._hold(envelope, wants)
        self._last_seq = envelope.seq

    @property
    def _full(self) -> bool:
        return self._held >= self._capacity or self._characters >= CHARACTERS

    def _hold(self, envelope: Envelope, wants: object) -> None:
        batch = Batch((envelope,), wants)
        self._box.append(batch)
        self._held += 1
        if self._held > LIGHT:
            self._characters += batch.characters

    def _drop_live(self) -> None:
        for batch in self._box:
            self._starved |= batch.streams
        for batch in self._empty():
            for envelope in batch.envelopes:
                if envelope.seq is not None:
                    self._hold(envelope, batch.wants)


def _characters(payload: dict[str, Any]) -> int:
    """Spelling a payload out only to see how long it gets would take longer than handing it on."""
    size = FIELD * len(payload)
    for value in payload.values():
        kind = type(value)
        if kind is str:
            size += len(value)
        elif value and (kind is dict or kind is list):
            size += len(str(value))
    return size


def stream_of(envelope: Envelope) -> Stream:
    """The text that a delta belongs to."""
    return envelope.step_id, envelope.payload.get("kind"), envelope.payload.get("index")
