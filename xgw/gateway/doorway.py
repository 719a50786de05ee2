"""Requests that all come at once: a few of them are worked on, the others wait for their turn."""

from __future__ import annotations

import queue

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

    def passing(self) -> Place:
        """A place for a block, or none after `PATIENCE_SECONDS`."""
        try:
            self._places.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            return Place(None)
        return Place(self._places)


class Place:
    """What one thread has of a doorway, until the first block that has it is left."""

    def __init__(self, places: queue.SimpleQueue[None] | None) -> None:
        self._places = places

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if self._places is not None:
            places, self._places = self._places, None
            places.put(None)
