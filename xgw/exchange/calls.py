"""The calls under way: counted against `max_calls`, found again to be cancelled."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from xgw.errors import overloaded
from xgw.providers.transport import Call


class Calls:
    """Every model call of this process, by turn."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Condition(threading.Lock())
        self._taken = 0
        self._by_turn: dict[str, set[Call]] = {}

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
            self._lock.notify_all()

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

    def remove(self, turn_id: str, call: Call) -> None:
        """The call has ended."""
        with self._lock:
            calls = self._by_turn.get(turn_id, set())
            calls.discard(call)
            if not calls:
                self._by_turn.pop(turn_id, None)

    def cancel(self, turn_id: str) -> int:
        """Cancel every call of a turn; returns how many there were."""
        with self._lock:
            calls = list(self._by_turn.get(turn_id, ()))
        for call in calls:
            call.cancel()
        return len(calls)

    def drain(self, seconds: float) -> bool:
        """Wait until no call is under way; False if some still are after `seconds`."""
        with self._lock:
            return self._lock.wait_for(lambda: self._taken == 0, seconds)

    def cancel_all(self) -> None:
        """Cancel everything: the process ends."""
        with self._lock:
            turns = list(self._by_turn)
        for turn_id in turns:
            self.cancel(turn_id)
