"""Requests that all come at once: a few of them are worked on, the others wait for their turn."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator

PLACES = 2
PATIENCE_SECONDS = 0.1


class Doorway:
    """Lets `PLACES` threads compute at once: of more, each would only wait for the others longer.

    Nobody waits for long: one that is held up inside must not hold up everybody.
    """

    def __init__(self) -> None:
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(PLACES):
            self._places.put(None)

    @property
    def free(self) -> int:
        """Places that nobody has."""
        return self._places.qsize()

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """A place for the block, or none after `PATIENCE_SECONDS`."""
        try:
            self._places.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            yield
            return
        try:
            yield
        finally:
            self._places.put(None)
