"""Upkeep that must not overlap with other upkeep of the same store, in whatever process.

A sweep deletes payloads that nothing refers to; whoever brings many rows at once, in a process of
its own, would lose those that it has just written or relies on.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def alone(store: Path, *, wait: bool) -> Iterator[bool]:
    """Whether no other upkeep of the store is under way, nor will be inside of this block.

    With `wait` the others are waited for. The operating system lets go of it if the process dies.
    """
    real = store.resolve()
    with open(real.with_name(f"{real.name}.upkeep.lock"), "ab") as file:
        yield _lock(file, wait=wait)


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[Any], *, wait: bool) -> bool:
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        while True:
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            except OSError:
                if not wait:
                    return False
            else:
                return True

else:
    import fcntl

    def _lock(file: IO[Any], *, wait: bool) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True
