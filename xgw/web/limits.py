"""How many may be inside at once: calls, watchers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from xgw.errors import overloaded

RETRY_AFTER_SECONDS = 1


class Places:
    """A bounded number of places for `what` ("calls"); taking one never waits.

    A place is given back where the answer ends, which for a stream is another function than where
    it was taken: `take` and `leave` are for that, `taken` for everything else.
    """

    def __init__(self, limit: int, what: str) -> None:
        self.limit = limit
        self._what = what
        self._count = 0
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many places are taken."""
        return self._count

    def take(self) -> None:
        """Take a place; ApiError 503 with Retry-After if there is none."""
        with self._lock:
            if self._count < self.limit:
                self._count += 1
                return
        message = f"too many {self._what} at once (the limit is {self.limit})"
        raise overloaded(message, RETRY_AFTER_SECONDS)

    def leave(self) -> None:
        """Give a place back."""
        with self._lock:
            if self._count == 0:
                raise RuntimeError(f"more {self._what} left than came")
            self._count -= 1

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Hold a place for the time of a `with` block."""
        self.take()
        try:
            yield
        finally:
            self.leave()
