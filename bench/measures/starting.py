"""Starting and idling: `xgw --help`, a server that is ready, and the memory that it takes then."""

from __future__ import annotations

import threading
import time

from bench import processes
from bench.figures import Figure, Limit, Rounds
from bench.setting import Setting, median

SETTLE_SECONDS = 15.0
STEADY_MB = 0.2
LOOK_SECONDS = 0.5


def measure(setting: Setting) -> list[Figure]:
    """Seconds beside those of a Python that does nothing, and megabytes once nothing changes."""
    help_times, ready, sizes = Rounds(), Rounds(), []
    for _ in range(setting.rounds):
        nothing = median([_run("-c", "pass") for _ in range(setting.scale.starts)])
        helped = [_run("-m", "xgw", "--help") for _ in range(setting.scale.starts)]
        help_times.add(nothing, median(helped))
        with setting.serving() as server:
            ready.add(nothing, server.ready)
            sizes.append(_settled(server.pid))
    limit = Limit(90, 60)
    return [
        Figure("xgw --help", help_times.through, "s", Limit(0.3, 0.1), *help_times.words("s")),
        Figure("server ready, new store", ready.through, "s", Limit(1.5, 0.6), *ready.words("s")),
        Figure("idle memory, all processes: PSS", [s.pss for s in sizes], "MB", limit),
        Figure("idle memory, all processes: RSS", [s.rss for s in sizes], "MB", limit),
    ]


def _run(*arguments: str) -> float:
    begun = time.monotonic()
    with processes.running(*arguments) as process:
        process.wait()
        return time.monotonic() - begun


def _settled(pid: int) -> processes.Memory:
    """The memory once two looks in a row see the same."""
    pause, deadline = threading.Event(), time.monotonic() + SETTLE_SECONDS
    last = processes.memory(pid)
    while time.monotonic() < deadline:
        pause.wait(LOOK_SECONDS)
        now = processes.memory(pid)
        if abs(now.pss - last.pss) < STEADY_MB:
            return now
        last = now
    return last
