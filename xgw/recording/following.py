"""Events that another process committed to the same store: they go out here as well."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

import peewee

from xgw.events import Envelope
from xgw.hub import Hub
from xgw.queries import events
from xgw.store.database import Store

EVERY_SECONDS = 0.1

log = logging.getLogger("xgw")


class Following:
    """Looks for foreign events ten times a second; one thread.

    An event counts as foreign when it was there a look ago and has not gone out since: our own go
    out right after their commit, and behind the live frames of their step.
    """

    def __init__(
        self, store: Store, hub: Hub, publish: Callable[[Sequence[Envelope]], None]
    ) -> None:
        self._store = store
        self._hub = hub
        self._publish = publish
        self._seen = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xgw-following", daemon=True)

    def start(self) -> None:
        """Start looking."""
        self._seen = self._hub.newest
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2)

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_SECONDS):
            try:
                self.look()
            except peewee.DatabaseError as error:
                log.debug("the events cannot be read: %s", error)

    def look(self) -> None:
        """Publish what has waited since the last look, then see what is there now."""
        missed = self._hub.missed(self._seen)
        if missed:
            self._publish(missed)
        self._seen = events.newest(self._store)
