"""The hub: what was committed (and live frames) goes out to everyone who subscribed.

Each subscriber has a bounded mailbox of its own. A slow one loses live frames first, then is told
that it lags and is closed; it never slows a publisher.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from xgw.events import Envelope
from xgw.hub.mailbox import (
    CHARACTERS,
    LIGHT,
    LIVE_ROOM,
    MAILBOX,
    Batch,
    Stream,
    Subscription,
    stream_of,
)
from xgw.hub.waking import Waking

__all__ = [
    "CHARACTERS",
    "LIGHT",
    "LIVE_ROOM",
    "MAILBOX",
    "Batch",
    "Hub",
    "Stream",
    "Subscription",
    "stream_of",
]

log = logging.getLogger("xgw.hub")

Wants = Callable[[Envelope], bool]
ReadEvents = Callable[[int, int], list[Envelope]]


@dataclass(frozen=True, slots=True)
class _Wish:
    """What subscribers may have in common; `session_id` None is every session."""

    wants: Wants
    session_id: str | None
    live: bool

    def of(self, envelopes: Iterable[Envelope]) -> list[Envelope]:
        return [e for e in envelopes if (self.live or e.seq is not None) and self.wants(e)]


class Hub:
    """Publishes in the order of `seq`; `newest` is the highest one that went out.

    `read_events(after, upto)` brings events that another process committed in between.
    """

    def __init__(self, read_events: ReadEvents | None = None, newest: int = 0) -> None:
        self.newest = newest
        self._read_events = read_events
        self._lock = threading.Lock()
        self._waking = Waking()
        self._members: dict[_Wish, list[Subscription]] = {}
        self._wishes: dict[str | None, list[_Wish]] = {}
        self._wishes_of: dict[Subscription, list[_Wish]] = {}
        self._closed = False

    def subscribe(
        self,
        wants: Wants,
        *,
        session_id: str | None = None,
        live: bool = True,
        capacity: int = MAILBOX,
    ) -> Subscription:
        """A mailbox for what is published from now on, of one session or of all.

        `wants` says which events; it is asked once for all subscribers with an equal one. Once the
        hub is closed, a closed mailbox.
        """
        with self._lock:
            subscription = self._open(capacity)
            self._add(subscription, _Wish(wants, session_id, live))
        return subscription

    def open(self, capacity: int = MAILBOX) -> Subscription:
        """A mailbox for nothing yet: see `add`."""
        with self._lock:
            return self._open(capacity)

    def add(
        self, subscription: Subscription, wants: Wants, *, session_id: str | None = None
    ) -> None:
        """From now on the mailbox also gets what `wants` says; its batches tell which is which.

        An event that several of them want comes once for each.
        """
        with self._lock:
            self._add(subscription, _Wish(wants, session_id, live=True))

    def remove(self, subscription: Subscription, wants: Wants) -> None:
        """Nothing more of what was added with `wants`; what is in the mailbox stays there."""
        with self._lock:
            wishes = self._wishes_of.get(subscription, [])
            for wish in [wish for wish in wishes if wish.wants == wants]:
                wishes.remove(wish)
                self._leave(subscription, wish)

    def drop(self, subscription: Subscription) -> None:
        """Forget a subscriber."""
        with self._lock:
            for wish in self._wishes_of.pop(subscription, ()):
                self._leave(subscription, wish)

    @property
    def watched(self) -> bool:
        """Whether anyone subscribes: live frames are not even made for nobody."""
        return bool(self._members)

    @property
    def busy(self) -> bool:
        """Whether some readers are still to be woken for what went out: more can wait."""
        return self._waking.busy

    def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Stored events after their commit, or live frames; each stored one goes out once."""
        with self._lock:
            self._send(envelopes)

    def missed(self, upto: int) -> list[Envelope]:
        """What was committed up to `upto` and nobody here has published."""
        if self._read_events is None or upto <= self.newest:
            return []
        return self._read_events(self.newest, upto)

    def close(self) -> None:
        """Wake and close every subscriber, now and from now on."""
        with self._lock:
            self._closed = True
            subscriptions = list(self._wishes_of)
            for registry in (self._members, self._wishes, self._wishes_of):
                registry.clear()
        for subscription in subscriptions:
            subscription.end()

    # -- sending -------------------------------------------------------------------------------

    def _send(self, envelopes: Sequence[Envelope]) -> None:
        fresh = [e for e in envelopes if e.seq is None or e.seq > self.newest]
        stored = [e.seq for e in fresh if e.seq is not None]
        if stored and self._read_events is not None and stored[0] > self.newest + 1:
            fresh = [*self._read_events(self.newest, stored[0] - 1), *fresh]
        sleepers: list[Subscription] = []
        for session_id, some in self._by_session(fresh):
            for wish in tuple(self._wishes.get(session_id, ())):
                sleepers += self._offer(wish, some)
        if stored:
            # Only now: who has seen this number finds everything up to it in the mailbox.
            self.newest = stored[-1]
        self._waking.call(sleepers)

    def _by_session(
        self, envelopes: Sequence[Envelope]
    ) -> list[tuple[str | None, Sequence[Envelope]]]:
        """What may concern those who watch every session, and those of each one watched."""
        found: dict[str | None, list[Envelope]] = {}
        if len(self._wishes) > (None in self._wishes):
            for envelope in envelopes:
                if envelope.session_id is not None and envelope.session_id in self._wishes:
                    found.setdefault(envelope.session_id, []).append(envelope)
        if envelopes and None in self._wishes:
            return [(None, envelopes), *found.items()]
        return list(found.items())

    def _offer(self, wish: _Wish, envelopes: Sequence[Envelope]) -> list[Subscription]:
        """Put what they want into their mailboxes; returns those who have to be woken."""
        members = self._members.get(wish, [])
        try:
            wanted = wish.of(envelopes)
        except Exception:  # around a subscriber: the others get their events all the same
            log.exception("a subscriber failed and is closed")
            for subscription in tuple(members):
                for each in self._wishes_of.pop(subscription):
                    self._leave(subscription, each)
                subscription.end()
            return []
        if not wanted:
            return []
        batch = Batch(wanted, wish.wants)
        return [subscription for subscription in members if subscription.offer(batch)]

    # -- who subscribes ------------------------------------------------------------------------

    def _open(self, capacity: int) -> Subscription:
        subscription = Subscription(self.drop, self._waking, self.newest, capacity)
        if self._closed:
            subscription.end()
        else:
            self._wishes_of[subscription] = []
        return subscription

    def _add(self, subscription: Subscription, wish: _Wish) -> None:
        wishes = self._wishes_of.get(subscription)
        if wishes is None or wish in wishes:
            return  # closed; or there already
        wishes.append(wish)
        if wish not in self._members:
            self._members[wish] = []
            self._wishes.setdefault(wish.session_id, []).append(wish)
        self._members[wish].append(subscription)

    def _leave(self, subscription: Subscription, wish: _Wish) -> None:
        self._members[wish].remove(subscription)
        if self._members[wish]:
            return
        del self._members[wish]
        self._wishes[wish.session_id].remove(wish)
        if not self._wishes[wish.session_id]:
            del self._wishes[wish.session_id]
