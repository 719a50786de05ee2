"""Readers that sleep are woken one after the other: hundreds that woke at once would all stand in
line for the interpreter, and every request behind them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Protocol

AT_ONCE = 2
"""Lines of readers that wake each other: while one sends, another one makes ready."""


class Sleeper(Protocol):
    """A reader that may be asleep. `called` belongs to the `Waking`: it stands in the line."""

    called: bool

    def rouse(self) -> bool:
        """Wake it; False if it need not be. Whoever was woken calls `Waking.next` at once."""


class Waking:
    """The readers that are to be woken, in order."""

    def __init__(self) -> None:
        self._line: deque[Sleeper] = deque()
        self._lines = 0
        self._lock = threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether someone is still to be woken."""
        return bool(self._line)

    def call(self, sleepers: Iterable[Sleeper]) -> None:
        """Have them woken; never waits."""
        with self._lock:
            for sleeper in sleepers:
                if not sleeper.called:
                    sleeper.called = True
                    self._line.append(sleeper)
            begun = min(AT_ONCE - self._lines, len(self._line))
            self._lines += begun
        for _ in range(begun):
            self.next()

    def next(self) -> None:
        """Wake the next one."""
        while True:
            with self._lock:
                if not self._line:
                    self._lines -= 1
                    return
                sleeper = self._line.popleft()
                sleeper.called = False
            if sleeper.rouse():
                return
