"""The client keys of the store, kept in memory, and whether they still admit who watches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import peewee

from xgw import clock
from xgw.errors import overloaded, unauthorized
from xgw.queries.keys import list_digests
from xgw.store.database import Store
from xgw.web.security import Caller

FRESH_SECONDS = 1.0
"""For how long what was read counts: a revoked key opens nothing after that."""

CHECK_SECONDS = 0.5
"""How often who watches is looked at again: a check for each of many events would cost."""

log = logging.getLogger("xgw")

Known = tuple[tuple[str, Caller | None], ...]


class IssuedKeys:
    """Digest and caller of every key; None for one that was revoked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: Known = ()
        self._read_at: float | None = None

    def __call__(self) -> Known:
        """The keys as they were at most a second ago, or when the store could last be read.

        ApiError 503 if it never could: nobody is let in unseen.
        """
        if not self._is_fresh():
            with self._lock:
                if not self._is_fresh():
                    self._read()
        return self._known

    def _is_fresh(self) -> bool:
        return self._read_at is not None and clock.monotonic() - self._read_at < FRESH_SECONDS

    def _read(self) -> None:
        began = clock.monotonic()
        try:
            self._known = tuple((row["hash"], _caller(row)) for row in list_digests(self._store))
        except peewee.DatabaseError as error:
            log.warning("the client keys cannot be read: %s", error)
            if self._read_at is None:
                message = "the store cannot be read, so no key can be checked"
                raise overloaded(message, retry_after=1) from None
        self._read_at = began


def _caller(row: dict[str, str | None]) -> Caller | None:
    if row["revoked_at"] is not None:
        return None
    return Caller(str(row["project_id"]), row["org_id"], row["id"], row["name"])


class Pass:
    """What let a watcher in, which may end while it stays; for one thread.

    `let_in` says whom the request comes from, as it did at first.
    """

    def __init__(self, let_in: Callable[[], Caller]) -> None:
        self._let_in = let_in
        self._caller = let_in()
        self._checked_at = clock.monotonic()

    def check(self) -> None:
        """ApiError 401 once the request would not be let in any more, or as someone else."""
        now = clock.monotonic()
        if now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        if self._let_in() != self._caller:
            raise unauthorized()
