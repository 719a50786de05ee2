"""How the server is, for the page that tells it: the store, the writer, calls, providers."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import peewee

from xgw import __version__, clock
from xgw.queries import failures, prunable, sizes
from xgw.queries.failures import Failures
from xgw.queries.prunable import Prunable
from xgw.queries.sizes import Day, Sizes
from xgw.queries.snapshot import snapshot
from xgw.store.database import Store
from xgw.web import condition

if TYPE_CHECKING:
    from xgw.web.app import Services

FRESH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Growth:
    """Requests of the last days, the newest first, and what that comes to in bytes a day."""

    days: list[Day]
    bytes_a_day: int | None


class Measured:
    """What the store's rows take, measured when someone asks, once a minute at most."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: tuple[Sizes, Growth, list[Prunable]] | None = None
        self._read_at = 0.0

    def read(self) -> tuple[Sizes, Growth, list[Prunable]]:
        """The sizes, the growth and what is old, as it was at most FRESH_SECONDS ago."""
        with self._lock:
            now = clock.monotonic()
            if self._known is None or now - self._read_at > FRESH_SECONDS:
                with snapshot(self._store):
                    measured = sizes.measure(self._store)
                    days = sizes.requests_by_day(self._store, measured.at.date())
                    old = prunable.reckon(self._store, measured.at)
                self._known = measured, Growth(days, _bytes_a_day(measured, days)), old
                self._read_at = now
            return self._known


@dataclass(frozen=True, slots=True)
class ProviderHealth:
    """A provider and how its requests of the last hour went; None if there were none."""

    name: str
    label: str
    failures: Failures | None


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the server now; what the store tells is None where it cannot be read."""

    version: str
    troubles: list[str]
    path: str
    schema: str | None
    size_bytes: int | None
    sizes: Sizes | None
    growth: Growth | None
    prunable: list[Prunable]
    providers: list[ProviderHealth]
    queue_depth: int
    pending_bytes: int
    lag_ms: float
    dropped: dict[str, int]
    calls: int
    max_calls: int
    watchers: int
    max_watchers: int
    threads: int


def read_health(running: Services) -> Health:
    """Everything, as it is now."""
    store, troubles = condition.describe_store(running)
    measured, growth, old, failed = _of_store(running)
    writer, server = running.writer, running.config.config.server
    return Health(
        __version__,
        [*troubles, *condition.writing_troubles(running)],
        store["path"],
        store["schema"],
        store["size_bytes"],
        measured,
        growth,
        old,
        _providers(running, failed),
        writer.depth,
        writer.pending_bytes,
        writer.lag_ms,
        dict(writer.dropped),
        running.calls.count,
        server.max_calls,
        running.watchers.count,
        running.watchers.limit,
        threading.active_count(),
    )


def _of_store(
    running: Services,
) -> tuple[Sizes | None, Growth | None, list[Prunable], list[Failures]]:
    try:
        return *running.measured.read(), failures.by_provider(running.store, clock.now())
    except peewee.DatabaseError:
        return None, None, [], []  # what is wrong is among the troubles


def _providers(running: Services, failed: list[Failures]) -> list[ProviderHealth]:
    """Those of the configuration in its order, then those that were asked before it changed."""
    found = {one.provider or "": one for one in failed}
    configured = [
        ProviderHealth(p.name, p.label, found.pop(p.name, None))
        for p in running.config.config.providers
    ]
    return configured + [ProviderHealth(name, name or "–", one) for name, one in found.items()]


def _bytes_a_day(measured: Sizes, days: list[Day]) -> int | None:
    """The room of all requests shared out evenly, as the last whole days went."""
    whole = [day for day in days[1:] if day.requests]
    requests = next((kind.rows for kind in measured.kinds if kind.table == "request_logs"), 0)
    if not whole or not requests:
        return None
    used = measured.total_bytes - measured.free_bytes
    return round(used / requests * sum(day.requests for day in whole) / len(whole))
