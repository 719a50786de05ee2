"""One core for the threads that relay calls: a turn at the interpreter goes from one to the next.

Handed from core to core it costs up to a third of the whole work. What else there is (pages,
agents, their tools, the programs that they start) may use all cores.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

LOOK_SECONDS = (1.5, 2.5)
"""By chance, each time: servers that looked at the same moment would all go to the same core."""

TAKEN_SHARE = 0.2
"""The share of the core that others take, from which another core is looked for."""

BETTER_BY = 0.3
"""How much more of that other core has to be idle."""

STAT = Path("/proc/stat")
_FIELDS = slice(0, 8)
_IDLE_FIELDS = slice(3, 5)


@dataclass(frozen=True, slots=True)
class Load:
    """What a core has done since the system started, in ticks."""

    idle: int
    all: int


Loads = dict[int, Load]


def read_loads() -> Loads:
    """The load of every core; empty where the system does not tell."""
    loads = {}
    with contextlib.suppress(OSError, ValueError):
        for line in STAT.read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(" ")
            if name.startswith("cpu") and name != "cpu":
                ticks = [int(field) for field in rest.split()[_FIELDS]]
                loads[int(name[3:])] = Load(sum(ticks[_IDLE_FIELDS]), sum(ticks))
    return loads


class Core:
    """The core of the threads that have joined: of those that the process may use, a quiet one.

    Where it may use but one, or where threads cannot be bound, nothing is. `number` is the core.
    """

    def __init__(self, read: Callable[[], Loads] = read_loads) -> None:
        self._read = read
        self._allowed = _allowed()
        self._lock = threading.Lock()
        self._threads: set[int] = set()
        self._before = read() if len(self._allowed) > 1 else {}
        self._spent = time.process_time()
        self._looked = time.monotonic()
        self._pause = random.uniform(*LOOK_SECONDS)
        self.number: int | None = None

    def choose(self) -> None:
        """Take the core that was the quietest since this was made."""
        idle = self._idle_shares()
        if idle:
            self.number = _quietest(idle)

    def join(self) -> None:
        """The calling thread runs there from now on; those that it starts do, too."""
        self.adopt([threading.get_native_id()])

    def adopt(self, threads: Iterable[int]) -> None:
        """These threads run there from now on; they are given by their native ids."""
        with self._lock:
            if self.number is not None:
                core = {self.number}
                self._threads.update(thread for thread in threads if _bind(thread, core))

    def leave(self) -> None:
        """The calling thread may use all cores, though one that has joined has started it."""
        if self.number is not None:
            _bind(threading.get_native_id(), self._allowed)

    def look(self, now: float) -> None:
        """Move to another core if others take this one. For to be called often: looks rarely."""
        if self.number is None or now - self._looked < self._pause:
            return
        self._pause = random.uniform(*LOOK_SECONDS)
        seconds, self._looked = now - self._looked, now
        spent, self._spent = self._spent, time.process_time()
        own = (self._spent - spent) / seconds
        idle = self._idle_shares()
        if self.number not in idle or 1 - idle[self.number] - own < TAKEN_SHARE:
            return
        quietest = _quietest(idle)
        if idle[quietest] - idle[self.number] >= BETTER_BY:
            self._move(quietest)

    def _move(self, number: int) -> None:
        with self._lock:
            self.number = number
            self._threads = {thread for thread in self._threads if _bind(thread, {number})}

    def _idle_shares(self) -> dict[int, float]:
        """The share of the time since the last call in which each core had nothing to do."""
        before, now = self._before, self._read() if len(self._allowed) > 1 else {}
        self._before = now
        return {
            core: (now[core].idle - before[core].idle) / max(1, now[core].all - before[core].all)
            for core in self._allowed & now.keys() & before.keys()
        }


def _quietest(idle: dict[int, float]) -> int:
    """Any of those that are about as quiet: servers that start together must not take the same."""
    return max(idle, key=lambda core: (round(idle[core], 1), random.random()))


if sys.platform == "linux":

    def _allowed() -> set[int]:
        return os.sched_getaffinity(0)

    def _bind(thread: int, cores: set[int]) -> bool:
        """Whether it could be done: a thread may have ended, and the system may forbid it."""
        try:
            os.sched_setaffinity(thread, cores)
        except OSError:
            return False
        return True

else:

    def _allowed() -> set[int]:
        return set()

    def _bind(thread: int, cores: set[int]) -> bool:
        return False
