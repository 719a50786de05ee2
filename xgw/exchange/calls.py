"""The calls under way: counted against `max_calls`, found again to be cancelled."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from xgw.errors import overloaded
from xgw.providers.transport import Call

PATIENCE = 2.0
"""Seconds that a cancelled call may take to end, and its client to read what it is told."""


class Calls:
    """Every model call of this process, by turn."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # A lock of its own: to take it by way of the condition costs four times as much.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._taken = 0
        self._by_turn: dict[str, set[Call]] = {}
        self.closing = False
        """Whether everything is being cancelled because the server ends."""

    @property
    def count(self) -> int:
        """How many are under way."""
        return self._taken

    def enter(self) -> None:
        """Take a place; ApiError 503 with Retry-After when there is none."""
        with self._lock:
            if self._taken >= self._limit:
                raise overloaded(
                    f"{self._limit} calls are under way already: try again shortly.", retry_after=1
                )
            self._taken += 1

    def leave(self) -> None:
        """Give the place back."""
        with self._lock:
            self._taken -= 1
            if self._waiting:
                self._changed.notify_all()

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """A place for as long as the block runs."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def add(self, turn_id: str, call: Call) -> None:
        """This call works for that turn."""
        with self._lock:
            self._by_turn.setdefault(turn_id, set()).add(call)
            closing = self.closing
        if closing:
            call.cancel()

    def remove(self, turn_id: str, call: Call) -> None:
        """The call has ended."""
        with self._lock:
            calls = self._by_turn.get(turn_id, set())
            calls.discard(call)
            if not calls:
                self._by_turn.pop(turn_id, None)
            if self._waiting:
                self._changed.notify_all()

    def cancel(self, turn_id: str) -> frozenset[Call]:
        """Cancel every call of a turn; returns them."""
        with self._lock:
            calls = frozenset(self._by_turn.get(turn_id, ()))
        for call in calls:
            call.cancel()
        return calls

    def end(self, turn_id: str) -> int:
        """Cancel every call of a turn and wait until they have ended; returns how many there were.

        Calls that begin meanwhile are let alone.
        """
        calls = self.cancel(turn_id)
        self.wait_for_ends(turn_id, calls)
        return len(calls)

    def wait_for_ends(self, turn_id: str, calls: frozenset[Call]) -> None:
        """Wait until these calls of a turn, which are cancelled, have ended.

        A client that takes nothing would keep its call from ending: it is cut off after a while.
        """
        if not self._have_ended(turn_id, calls, PATIENCE):
            with self._lock:
                for call in calls & self._by_turn.get(turn_id, set()):
                    call.sever()
            self._have_ended(turn_id, calls, PATIENCE)

    def _have_ended(self, turn_id: str, calls: frozenset[Call], seconds: float) -> bool:
        return self._wait_until(lambda: calls.isdisjoint(self._by_turn.get(turn_id, ())), seconds)

    def drain(self, seconds: float) -> bool:
        """Wait until no call is under way; False if some still are after `seconds`."""
        return self._wait_until(lambda: self._taken == 0, seconds)

    def _wait_until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait for what comes with a call's end; False if it has not come in time."""
        with self._changed:
            self._waiting += 1
            try:
                return self._changed.wait_for(holds, seconds)
            finally:
                self._waiting -= 1

    def cancel_all(self) -> None:
        """Cancel everything, and whatever still begins: the process ends."""
        with self._lock:
            self.closing = True
            turns = list(self._by_turn)
        for turn_id in turns:
            self.cancel(turn_id)
