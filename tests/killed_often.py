"""Runs a command of xgw again and again, killed at given points of its work in the store.

    killed_often.py POINTS ARGUMENTS…

POINTS are numbers, with commas: how many hundred steps of SQLite's machine a run does in the
store before it is killed; the last run is not. Prints how each run ended, and then how many
steps it was until the last one's end.
"""

from __future__ import annotations

import importlib
import os
import signal
import sqlite3
import sys

# All that the commands import, once and not in every run.
import xgw.config.loading
import xgw.store.migrations
import xgw.upkeep.backfill.filling
import xgw.upkeep.backfill.reading
import xgw.upkeep.legacy.inplace  # noqa: F401
from xgw.cli import main
from xgw.store.database import Store

EVERY = 100

LOADED = (
    "xgw.cli.backfill",
    "xgw.cli.migrate",
    "xgw.config",
    "xgw.masking",
    "xgw.store.migrations",
    "xgw.upkeep.backfill.filling",
    "xgw.upkeep.legacy.takeover",
)
"""What the commands load when they need it: here once, and not in every run again."""


class Counter:
    """Counts the work, and ends the process once there was enough of it."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        if self.limit is not None and self.count >= self.limit:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0


def run(limit: int | None, arguments: list[str]) -> int:
    """One run; the exit code, or minus the signal that ended it. Its count goes to stderr."""
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    counter, opened = Counter(limit), Store.open_writer

    def open_writer(store: Store, busy_ms: int = 250) -> sqlite3.Connection:
        connection = opened(store, busy_ms)
        connection.set_progress_handler(counter, EVERY)
        return connection

    Store.open_writer = open_writer  # type: ignore[method-assign]
    code = 0
    try:
        main(arguments)
    except SystemExit as ended:
        code = int(ended.code or 0)
    sys.stdout.flush()
    sys.stderr.write(f"{counter.count}\n")
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    for name in LOADED:
        importlib.import_module(name)
    points = [int(point) for point in sys.argv[1].split(",") if point]
    ended = [run(point, sys.argv[2:]) for point in points]
    sys.stderr.write(f"{' '.join(map(str, ended))}\n")
    sys.stderr.flush()
    sys.exit(run(None, sys.argv[2:]))
