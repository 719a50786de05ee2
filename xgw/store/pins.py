"""Bodies on their way to the store: what a sweep of payloads must leave alone.

A body is handed out as rows to write, or as nothing but a hash where the store surely has it; the
unit that refers to it follows later. So a sweep takes for needed what was handed out before it
began and is still in someone's hands, and everything handed out since. What transactions put there
by themselves is noted likewise.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xgw.store.payloads import Stored


LOOKED_AT_FROM = 1024
"""So many bodies are handed out before it is seen which of them are in nobody's hands any more."""


class Pins:
    """The bodies in someone's hands, and during a sweep every hash handed out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Not a WeakSet: that works at each that comes and at each that goes, a request has several.
        self._in_hands: list[weakref.ref[Stored]] = []
        self._look_at = LOOKED_AT_FROM
        self._pinned: set[str] | None = None
        self.epoch = 0
        """Changes when a sweep begins: what was prepared before may rely on what will go."""
        self.sweeping = False
        """Whether a sweep is under way: then nothing is surely in the store."""

    def hand_out(self, stored: Stored, epoch: int) -> bool:
        """Note a body that was prepared in this epoch; False if it has to be prepared anew."""
        with self._lock:
            if epoch != self.epoch:
                return False
            self._in_hands.append(weakref.ref(stored))
            if len(self._in_hands) >= self._look_at:
                self._forget_gone()
            if self._pinned is not None:
                self._pinned.add(stored.hash)
                self._pinned.update(row[0] for row in stored.rows)
            return True

    def begin(self) -> list[Stored]:
        """A sweep begins; returns the bodies that are in someone's hands."""
        with self._lock:
            self.epoch += 1
            self._pinned = set()
            self.sweeping = True
            return [stored for found in self._in_hands if (stored := found()) is not None]

    def end(self) -> None:
        """The sweep is over."""
        with self._lock:
            self._pinned = None
            self.sweeping = False

    def _forget_gone(self) -> None:
        self._in_hands = [found for found in self._in_hands if found() is not None]
        self._look_at = max(LOOKED_AT_FROM, 2 * len(self._in_hands))

    def hold(self, key: str) -> bool:
        """Whether this hash must stay; without a sweep every one."""
        pinned = self._pinned
        return pinned is None or key in pinned


class Kept:
    """The payloads that transactions refer to of their own accord, noted during a sweep.

    Sweeps delete in transactions of the same thread, one after the other: no lock is needed.
    """

    def __init__(self) -> None:
        self._noted: set[str] | None = None

    @property
    def sweeping(self) -> bool:
        """Whether a sweep is under way: then nothing is surely in the store."""
        return self._noted is not None

    def begin(self) -> None:
        """A sweep begins. It marks once transactions under way are committed."""
        self._noted = set()

    def end(self) -> None:
        """The sweep is over."""
        self._noted = None

    def note(self, key: str) -> None:
        """A transaction has put it there, or put it there again."""
        if self._noted is not None:
            self._noted.add(key)

    def hold(self, key: str) -> bool:
        """Whether this hash must stay; without a sweep every one."""
        return self._noted is None or key in self._noted
