"""Pruning: old sessions go, the bodies of old turns are emptied, and what nothing needs is swept.

Sessions go one by one, each in one transaction and only if nothing is under way in it; bodies are
emptied and swept in small units. So it may end at any moment, and begin again from what is left.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, replace

from xgw import clock
from xgw.frozen import frozen
from xgw.queries import aged
from xgw.queries.filters import Filters
from xgw.queries.pages import Row
from xgw.recording.edits import Edits
from xgw.store.database import Store
from xgw.store.writer import Ticket, Writer
from xgw.upkeep import older_tables
from xgw.upkeep.marks import Marks
from xgw.upkeep.older_tables import OlderTable
from xgw.upkeep.sweep import NOTHING, Aged, Amount, Sweep

TOGETHER = 100
"""Turns without a session that go in one transaction."""


@frozen
class Wanted:
    """What is to go: sessions and turns without activity since `before`, with all that is in them,
    and the bodies of turns that ended before `bodies_before`.

    With `filters` only the sessions that fit them, of any age where none is given. `legacy` are the
    tables of an older program that a migration has left.
    """

    before: datetime.datetime | None = None
    bodies_before: datetime.datetime | None = None
    filters: Filters | None = None
    legacy: bool = False

    @property
    def sessions_before(self) -> datetime.datetime | None:
        """Before when a session's last activity was that is to go; None if none are."""
        if self.before is None and self.bodies_before is None and self.filters is not None:
            return clock.now()
        return self.before


@dataclass(frozen=True)
class Pruned:
    """What went, or would go. `turns` and `requests` are those without a session, `busy` sessions
    stay although they are old: something is under way in them. `row_bytes` is None where it was
    not reckoned.
    """

    sessions: int = 0
    busy: int = 0
    turns: int = 0
    requests: int = 0
    row_bytes: int | None = None
    bodies: Amount = NOTHING
    payloads: Amount = NOTHING
    legacy: tuple[OlderTable, ...] = ()


DeleteSession = Callable[[Row, datetime.datetime], bool]
"""Deletes a session without activity since a moment; whether it did."""


class Prune:
    """Prunes a store by its writer and its sweep."""

    def __init__(self, store: Store, writer: Writer, sweep: Sweep, delete: DeleteSession) -> None:
        self._store = store
        self._sweep = sweep
        self._edits = Edits(writer)
        self._writer = writer
        self._delete = delete

    def run(self, wanted: Wanted) -> Pruned:
        """Prune now; what went. Stopped if the process ends meanwhile.

        WorkError, with nothing done, for `legacy` while not everything was taken over.
        """
        if wanted.legacy:
            older_tables.refuse_unfinished(self._store)
        done = Pruned()
        if (before := wanted.sessions_before) is not None:
            done = self._delete_sessions(wanted.filters, before)
            if wanted.filters is None:
                turns, requests = self._delete_turns(before), self._delete_requests(before)
                done = replace(done, turns=turns, requests=requests)
                self._delete_events(before)
        bodies = wanted.bodies_before
        if bodies is not None or wanted.sessions_before is not None:
            old = None if bodies is None else Aged(bodies, _fitting(self._store, wanted.filters))
            swept = self._sweep.sweep(old)
            done = replace(done, bodies=swept.emptied, payloads=swept.deleted)
        if wanted.legacy:
            done = replace(done, legacy=self._drop_older_tables())
        return done

    def _delete_sessions(self, filters: Filters | None, before: datetime.datetime) -> Pruned:
        deleted = busy = 0
        for row in aged.sessions(self._store, filters, before):
            if self._delete(row, before):
                deleted += 1
            else:
                busy += 1
        return Pruned(deleted, busy)

    def _delete_turns(self, before: datetime.datetime) -> int:
        deleted = 0
        while turns := aged.turns_alone(self._store, before, TOGETHER):
            self._wait(self._edits.delete_turns(turns))
            deleted += len(turns)
        return deleted

    def _delete_requests(self, before: datetime.datetime) -> int:
        deleted = 0
        while requests := aged.requests_alone(self._store, before, TOGETHER):
            self._wait(self._edits.delete_requests(requests))
            deleted += len(requests)
        return deleted

    def _delete_events(self, before: datetime.datetime) -> None:
        for numbers in aged.events_alone(self._store, before):
            if numbers:
                self._wait(self._edits.delete_events(numbers))

    def _drop_older_tables(self) -> tuple[OlderTable, ...]:
        found = older_tables.find(self._store)
        for table in found:
            for work in older_tables.drop(table.name):
                self._wait(self._writer.submit(work))
        return tuple(found)

    def _wait(self, ticket: Ticket) -> None:
        self._sweep.wait(ticket)


def preview(store: Store, wanted: Wanted) -> Pruned:
    """What would go now, and how much room it takes; changes nothing. WorkError as `run`."""
    if wanted.legacy:
        older_tables.refuse_unfinished(store)
    found = Pruned(row_bytes=0)
    with Marks(store, lambda: None) as marks:
        if (before := wanted.sessions_before) is not None:
            rows = list(aged.sessions(store, wanted.filters, before))
            idle = [row["id"] for row in rows if aged.is_idle(store, row["id"], before)]
            everything = wanted.filters is None
            alone = aged.turns_alone(store, before) if everything else []
            requests = aged.requests_alone(store, before) if everything else []
            marks.leave([*idle, *alone, *requests])
            found = Pruned(
                len(idle), len(rows) - len(idle), len(alone), len(requests), marks.leaving_bytes()
            )
        if wanted.bodies_before is not None:
            sessions = _fitting(store, wanted.filters)
            marks.spend(clock.to_db(wanted.bodies_before), sessions)
        if wanted.bodies_before is not None or wanted.sessions_before is not None:
            marks.mark_referenced()
            bodies, payloads = _left_over(marks)
            found = replace(found, bodies=bodies, payloads=payloads)
    legacy = tuple(older_tables.find(store)) if wanted.legacy else ()
    return replace(found, legacy=legacy)


def _left_over(marks: Marks) -> tuple[Amount, Amount]:
    bodies = payloads = NOTHING
    for there, empty in marks.spent_bodies():
        bodies += _amount(there)
        marks.mark([*empty, *(key for key, _ in there)])
    for some in marks.unmarked():
        payloads += _amount(some)
    return bodies, payloads


def _amount(found: list[tuple[str, int]]) -> Amount:
    return Amount(len(found), sum(size for _, size in found))


def _fitting(store: Store, filters: Filters | None) -> frozenset[str] | None:
    """The sessions that fit; None for everything."""
    if filters is None:
        return None
    return frozenset(row["id"] for row in aged.sessions(store, filters))


def delete_alone(edits: Edits, wait: Callable[[Ticket], None]) -> DeleteSession:
    """How sessions are deleted where no server keeps them in mind."""

    def delete(row: Row, before: datetime.datetime) -> bool:
        deleted: list[bool] = []
        wait(
            edits.prune_session(
                row["project_id"],
                row["id"],
                before,
                gone=lambda: deleted.append(True),
                kept=lambda: None,
            )
        )
        return bool(deleted)

    return delete
