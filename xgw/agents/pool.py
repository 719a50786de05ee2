"""The threads that tools run in: bounded, and never waited for.

A thread cannot be stopped from outside. A tool that is abandoned keeps its thread until it returns,
and the thread counts until then.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

SIZE = 64

Work = Callable[[], None]


class Pool:
    """Runs work in at most `size` threads at once; what is too much waits in order."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._waiting: deque[Work] = deque()
        self._busy = 0

    @property
    def busy(self) -> int:
        """How many threads are at work, for tools that were abandoned too."""
        return self._busy

    def run(self, work: Work) -> None:
        """Have this done as soon as a thread is free. It must not raise."""
        with self._lock:
            if self._busy >= self._size:
                self._waiting.append(work)
                return
            self._busy += 1
        threading.Thread(target=self._serve, args=(work,), name="xgw-tool", daemon=True).start()

    def withdraw(self, work: Work) -> bool:
        """Forget work that has not begun; False if it has."""
        with self._lock:
            if work not in self._waiting:
                return False
            self._waiting.remove(work)
            return True

    def _serve(self, work: Work | None) -> None:
        while work is not None:
            work()
            work = self._next()

    def _next(self) -> Work | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._busy -= 1
            return None
