"""A process that has the store's write lock, as another program may."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from servers import DEADLINE

CODE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
for line in sys.stdin:
    connection.execute(line.strip())
    print("done", flush=True)
"""


class Holder:
    """Has the lock between `take` and `release`."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CODE, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def take(self) -> None:
        """Returns once it has the lock."""
        self._run("BEGIN IMMEDIATE")

    def release(self) -> None:
        """Returns once the lock is free."""
        self._run("ROLLBACK")

    def _run(self, statement: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{statement}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def close(self) -> None:
        """End the process, and the lock with it."""
        self._process.kill()
        self._process.communicate(timeout=DEADLINE)


@contextlib.contextmanager
def holder(path: Path) -> Iterator[Holder]:
    """A process for the block; it has the lock once it is told to take it."""
    process = Holder(path)
    try:
        yield process
    finally:
        process.close()
