"""Where tests and the tools that they define meet: events that tools wait for or set."""

from __future__ import annotations

import threading

from servers import DEADLINE


class Gates(dict[str, threading.Event]):
    """Made as they are named: two threads that name one at the same time get the same."""

    def __missing__(self, name: str) -> threading.Event:
        # A defaultdict looks, makes and keeps in three steps.
        return self.setdefault(name, threading.Event())


GATES = Gates()
RUNS: list[str] = []


def wait_for(name: str) -> None:
    """Wait until someone opens this gate."""
    assert GATES[name].wait(DEADLINE)


def start_over() -> None:
    """A test begins, or ends: whatever still waits goes on."""
    for gate in list(GATES.values()):
        gate.set()
    GATES.clear()
    RUNS.clear()
