"""Where tests and the tools that they define meet: events that tools wait for or set."""

from __future__ import annotations

import threading
from collections import defaultdict

from servers import DEADLINE

GATES: defaultdict[str, threading.Event] = defaultdict(threading.Event)
RUNS: list[str] = []


def wait_for(name: str) -> None:
    """Wait until someone opens this gate."""
    assert GATES[name].wait(DEADLINE)


def start_over() -> None:
    """A test begins, or ends: whatever still waits goes on."""
    for gate in GATES.values():
        gate.set()
    GATES.clear()
    RUNS.clear()
