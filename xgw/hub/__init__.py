"""The hub: what was committed (and live frames) goes out to everyone who subscribed.

Each subscriber has a bounded mailbox of its own. A slow one loses live frames first, then is told
that it lags and is closed; it never slows a publisher.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType

from xgw.events import Envelope

MAILBOX = 4096
LIVE_ROOM = 512
CHARACTERS = 1 << 20
LIGHT = 32
"""Events that a mailbox takes without a look at their size."""

log = logging.getLogger("xgw.hub")

Wants = Callable[[Envelope], bool]
ReadEvents = Callable[[int, int], list[Envelope]]


class Subscription:
    """One reader's mailbox. `lagged` is the `seq` to resume after, once the reader was too slow."""

    def __init__(self, hub: Hub, wants: Wants, live: bool, capacity: int) -> None:
        self._hub = hub
        self._wants = wants
        self._live = live
        self._capacity = capacity
        self._ready = threading.Condition(threading.Lock())
        self._box: deque[Envelope] = deque()
        self._live_held = 0
        self._characters = 0
        self._starved: set[tuple[str | None, object, object]] = set()
        self._last_seq = hub.newest
        self.lagged: int | None = None
        self.closed = False

    def get(self, timeout: float) -> list[Envelope]:
        """Everything that has arrived; waits up to `timeout` seconds for something, else []."""
        with self._ready:
            if not self._box and not self.closed and self.lagged is None:
                self._ready.wait(timeout)
            arrived = list(self._box)
            self._box.clear()
            self._live_held = self._characters = 0
            return arrived

    def offer(self, envelopes: Sequence[Envelope]) -> None:
        """Put what this reader wants into its mailbox; never waits."""
        wanted = [e for e in envelopes if (self._live or e.seq is not None) and self._wants(e)]
        if not wanted:
            return
        with self._ready:
            if self.closed or self.lagged is not None:
                return
            for envelope in wanted:
                self._put(envelope)
            self._ready.notify()

    def _put(self, envelope: Envelope) -> None:
        if self.lagged is not None:
            return
        if envelope.seq is None:
            if self._live_held < LIVE_ROOM and not self._full:
                self._hold(envelope)
                self._live_held += 1
            elif envelope.type == "step.delta":
                self._starved.add(_stream_of(envelope))
            return
        if self._full:
            self._drop_live()
        if self._full:
            self.lagged = self._last_seq
            return
        self._hold(envelope)
        self._last_seq = envelope.seq

    @property
    def _full(self) -> bool:
        return len(self._box) >= self._capacity or self._characters >= CHARACTERS

    def _hold(self, envelope: Envelope) -> None:
        self._box.append(envelope)
        if len(self._box) > LIGHT:
            self._characters += len(str(envelope.payload))

    def _drop_live(self) -> None:
        self._starved.update(_stream_of(e) for e in self._box if e.type == "step.delta")
        stored = [e for e in self._box if e.seq is not None]
        self._box.clear()
        self._live_held = self._characters = 0
        for envelope in stored:
            self._hold(envelope)

    def take_starved(self) -> set[tuple[str | None, object, object]]:
        """Streams (step, kind, index) that lost frames since last asked: send their whole text."""
        with self._ready:
            starved, self._starved = self._starved, set()
            return starved

    def close(self) -> None:
        """Stop receiving; wakes a blocked `get`."""
        self._hub.drop(self)
        self.end()

    def end(self) -> None:
        """Called by the hub: nothing more comes; wakes a blocked `get`."""
        with self._ready:
            self.closed = True
            self._ready.notify_all()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Hub:
    """Publishes in the order of `seq`; `newest` is the highest one that went out.

    `read_events(after, upto)` brings events that another process committed in between.
    """

    def __init__(self, read_events: ReadEvents | None = None, newest: int = 0) -> None:
        self.newest = newest
        self._read_events = read_events
        self._lock = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._closed = False

    def subscribe(
        self, wants: Wants, *, live: bool = True, capacity: int = MAILBOX
    ) -> Subscription:
        """A mailbox for everything published from now on that `wants` says yes to.

        Once the hub is closed, a closed one.
        """
        with self._lock:
            subscription = Subscription(self, wants, live, capacity)
            if self._closed:
                subscription.end()
            else:
                self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def drop(self, subscription: Subscription) -> None:
        """Forget a subscriber."""
        with self._lock:
            self._subscriptions = tuple(s for s in self._subscriptions if s is not subscription)

    @property
    def watched(self) -> bool:
        """Whether anyone subscribes: live frames are not even made for nobody."""
        return bool(self._subscriptions)

    def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Stored events after their commit, or live frames; each stored one goes out once."""
        with self._lock:
            self._send(envelopes)

    def follow(self, upto: int) -> None:
        """Publish what others committed up to `upto` and nobody here has published."""
        with self._lock:
            if self._read_events is not None and upto > self.newest:
                self._send(self._read_events(self.newest, upto))

    def _send(self, envelopes: Sequence[Envelope]) -> None:
        fresh = [e for e in envelopes if e.seq is None or e.seq > self.newest]
        stored = [e.seq for e in fresh if e.seq is not None]
        if stored:
            if self._read_events is not None and stored[0] > self.newest + 1:
                fresh = [*self._read_events(self.newest, stored[0] - 1), *fresh]
            self.newest = stored[-1]
        for subscription in self._subscriptions:
            try:
                subscription.offer(fresh)
            except Exception:  # around a subscriber: the others get their events all the same
                log.exception("a subscriber failed and is closed")
                self._subscriptions = tuple(s for s in self._subscriptions if s is not subscription)
                subscription.end()

    def close(self) -> None:
        """Wake and close every subscriber, now and from now on."""
        with self._lock:
            self._closed = True
            subscriptions, self._subscriptions = self._subscriptions, ()
        for subscription in subscriptions:
            subscription.end()


def _stream_of(envelope: Envelope) -> tuple[str | None, object, object]:
    return envelope.step_id, envelope.payload.get("kind"), envelope.payload.get("index")
