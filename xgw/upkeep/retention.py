"""Retention: what is older than the configuration keeps goes by itself, once a day."""

from __future__ import annotations

import datetime
import logging
import sqlite3
import threading

import peewee

from xgw import clock
from xgw.errors import ApiError, WorkError
from xgw.queries import aged
from xgw.store.database import Store
from xgw.upkeep.prune import Prune, Wanted
from xgw.upkeep.sweep import Stopped

LOOK_SECONDS = 60.0
"""A machine that slept through the hour prunes soon after it has woken."""

DAY = datetime.timedelta(days=1)

log = logging.getLogger("xgw.upkeep")


class Retention:
    """Prunes in a thread of its own: when it starts, and every day from then on."""

    def __init__(self, store: Store, prune: Prune, bodies_days: int, metadata_days: int) -> None:
        self._store = store
        self._prune = prune
        self._bodies = datetime.timedelta(days=bodies_days)
        self._metadata = datetime.timedelta(days=metadata_days)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xgw-retention", daemon=True)

    def start(self) -> None:
        """Start the thread, if there is anything that is not kept for ever."""
        if self._bodies or self._metadata:
            self._thread.start()

    def stop(self) -> None:
        """End the thread; what it is at is ended by the sweep."""
        self._stopping.set()

    def _run(self) -> None:
        due = clock.now()
        while not self._stopping.is_set():
            if clock.now() >= due:
                due = clock.now() + DAY
                self._prune_now()
            self._stopping.wait(LOOK_SECONDS)

    def _prune_now(self) -> None:
        now = clock.now()
        try:
            bodies = now - self._bodies if self._bodies else None
            if bodies is not None and not aged.has_bodies(self._store, bodies):
                bodies = None
            before = now - self._metadata if self._metadata else None
            self._prune.run(Wanted(before, bodies))
        except Stopped:
            return
        except (sqlite3.Error, peewee.DatabaseError, WorkError, ApiError) as error:
            log.warning("what is too old could not be pruned, tomorrow again: %s", error)
