"""Taking an older store over: its batches written one by one, each with how far that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from xgw import clock
from xgw.frozen import fields_of
from xgw.recording.adopt import Adopted, adopt, tell_session
from xgw.store.database import Store
from xgw.store.transaction import Transaction
from xgw.upkeep.bodies import Bodies
from xgw.upkeep.legacy.messages import INDEX, SESSION, Message
from xgw.upkeep.legacy.report import Counted, Report, State
from xgw.upkeep.legacy.requests import Request
from xgw.upkeep.legacy.sessions import KEY, MESSAGE_COUNT, ORPHANS_ID, PROJECT, Session
from xgw.upkeep.legacy.source import REQUESTS, SHAPES, Source
from xgw.upkeep.legacy.walk import Batch, Limit, Place, Walk
from xgw.upkeep.pace import Pace

MOST_TOLD = 1000
BESIDE = Limit(500, 1 << 20)
"""A batch beside a server, which waits for it; and the first one, so that something is to be seen.

Alone they grow from one to the next: what comes to stand on one page is brought there once.
"""

MOST = Limit(16000, 1 << 25)
GONE = "its session was deleted while the store was taken over"

_TARGETS = {
    **{shape.sessions.name: "sessions" for shape in SHAPES},
    **{shape.messages.name: "messages" for shape in SHAPES},
    REQUESTS.name: "request_logs",
}
"""The table that rows of an older table come to stand in."""


class Takeover:
    """One source and one store; `name` tells the source from others, and is kept."""

    def __init__(self, store: Store, pace: Pace, source: Source, name: str, bodies: Bodies) -> None:
        self._store = store
        self._pace = pace
        self._source = source
        self._bodies = bodies
        self._limit = BESIDE
        self._id, self.state, self._is_finished = self._begin(name)

    def run(self, progress: Callable[[int], None]) -> Report:
        """Copy what is not copied yet; `progress` is told after each batch how many rows it had."""
        if self._is_finished:
            return self._report(again=True)
        place = Place(**self.state.place)
        for batch in Walk(self._source, self._id, self._bodies, place, self._room).batches():
            self._write(batch)
            progress(batch.size)
        self._pace.write(self._finish)
        return self._report()

    def _room(self) -> Limit:
        if self._pace.served:
            self._limit = BESIDE
        return self._limit

    def _begin(self, name: str) -> tuple[int, State, bool]:
        found = self._source.counts()
        rows = self._store.sql(
            "SELECT id, state, finished_at FROM takeovers WHERE source = ?", (name,)
        )
        if not rows:
            state = State(found)
            begun: list[int] = []
            self._pace.write(lambda tx: begun.append(_insert(tx, name, state)))
            return begun[0], state, False
        number, kept, finished_at = rows[0]
        state = State(**orjson.loads(kept))
        if finished_at is not None and state.found != found:
            # More has come since: what is there is found by its ids.
            state = State(found, rounds=state.rounds + 1)
            self._pace.write(lambda tx: _restart(tx, number, state))
            return number, state, False
        state.found = found
        return number, state, finished_at is not None

    def _write(self, batch: Batch) -> None:
        state = State(**asdict(self.state))
        state.place = fields_of(batch.place)
        self._pace.write(lambda tx: _Arrival(tx, batch, state).write(self._id))
        self._bodies.committed(batch.payloads)
        self.state = state
        self._limit = batch.limit.doubled(MOST)

    def _finish(self, tx: Transaction) -> None:
        tx.execute("UPDATE takeovers SET finished_at = ? WHERE id = ?", (clock.now(), self._id))

    def _report(self, *, again: bool = False) -> Report:
        refusals = self._store.sql(
            "SELECT old_table, row_id, reason FROM refusals WHERE takeover_id = ? "
            "ORDER BY id LIMIT ?",
            (self._id, MOST_TOLD),
        )
        counted = not again and self.state.rounds == 1
        return Report(
            self.state.counts(),
            tuple((table, row, reason) for table, row, reason in refusals),
            self._stored() if counted else None,
            self.state.orphans,
            self.state.renamed,
            again,
        )

    def _stored(self) -> dict[str, int]:
        """Rows that say that they are from this source, counted in the store itself."""
        found = dict.fromkeys(self.state.found, 0)
        for table in found:
            begin = f'{{"legacy":{{"source":{self._id},"table":"{table}"'
            [(found[table],)] = self._store.sql(
                f"SELECT count(*) FROM {_TARGETS[table]} WHERE substr(metadata, 1, ?) = ?",
                (len(begin), begin),
            )
        return found


def look_through(source: Source, bodies: Bodies, progress: Callable[[int], None]) -> Report:
    """What taking the source over into an empty store would come to; nothing is written."""
    found = source.counts()
    copied, refused = dict.fromkeys(found, 0), dict.fromkeys(found, 0)
    refusals: list[tuple[str, str, str]] = []
    orphans = 0
    for batch in Walk(source, 0, bodies, Place(), lambda: BESIDE).batches():
        for table, count in batch.read.items():
            gone = sum(1 for name, _, _ in batch.refused if name == table)
            copied[table] += count - gone
            refused[table] += gone
        orphans += sum(1 for owner, _ in batch.messages if owner == ORPHANS_ID)
        refusals += batch.refused[: MOST_TOLD - len(refusals)]
        progress(batch.size)
    counts = (Counted(table, found[table], copied[table], 0, refused[table]) for table in found)
    return Report(tuple(counts), tuple(refusals), None, orphans)


class _Arrival:
    """One batch inside of its transaction: what is there already, and what is new."""

    def __init__(self, tx: Transaction, batch: Batch, state: State) -> None:
        self._tx = tx
        self._batch = batch
        self._state = state
        self._refused = list(batch.refused)
        owners = {owner for owner, _ in batch.messages} | {row[0] for row in batch.sessions}
        self._counts: dict[str, int] = dict(
            self._among("SELECT id, message_count FROM sessions WHERE id IN", owners)
        )

    def write(self, takeover: int) -> None:
        """Write it, and how far the takeover is then."""
        before = dict(self._counts)
        sessions = self._sessions()
        messages = self._messages()
        requests = self._requests()
        for row in sessions:
            row[MESSAGE_COUNT] = self._counts[row[0]]
        grown = [(self._counts[id] - count, id) for id, count in before.items()]
        adopt(
            self._tx,
            Adopted(
                sessions=sessions,
                messages=messages,
                request_logs=requests,
                payloads=self._batch.payloads,
                grown=[one for one in grown if one[0]],
            ),
        )
        self._tell()
        self._refuse(takeover)
        self._tx.execute(
            "UPDATE takeovers SET state = ? WHERE id = ?",
            (_spelled(self._state), takeover),
        )

    def _sessions(self) -> list[Session]:
        new = []
        for row in self._batch.sessions:
            if row[0] in self._counts:
                continue
            self._counts[row[0]] = 0
            new.append(row)
        keys = "SELECT session_key, id FROM sessions WHERE project_id = ? AND session_key IN"
        taken = {key for key, _ in self._among(keys, [row[KEY] for row in new], PROJECT)}
        for row in new:
            if row[KEY] in taken:
                row[KEY] = row[0]
                self._state.renamed += 1
            taken.add(row[KEY])
        self._count("sessions", sum(1 for row in new if row[0] != ORPHANS_ID))
        return new

    def _messages(self) -> list[Message]:
        said = self._batch.messages
        there = self._there("messages", [row[0] for _, row in said])
        new, counts = [], self._counts
        for owner, row in said:
            count = counts.get(owner)
            if count is None:
                self._refused.append((self._table("messages"), row[0], GONE))
            elif row[0] not in there:
                there.add(row[0])
                row[SESSION], row[INDEX] = owner, count
                counts[owner] = count + 1
                new.append(row)
        self._count("messages", len(new))
        return new

    def _requests(self) -> list[Request]:
        there = self._there("request_logs", [row[0] for row in self._batch.requests])
        new = [row for row in self._batch.requests if row[0] not in there]
        self._count("request_logs", len(new))
        return new

    def _table(self, target: str) -> str:
        """The older table whose rows come to stand in this one, in this batch."""
        return next(table for table in self._batch.read if _TARGETS[table] == target)

    def _count(self, target: str, copied: int) -> None:
        if not any(_TARGETS[table] == target for table in self._batch.read):
            return
        table, state = self._table(target), self._state
        refused = sum(1 for name, _, _ in self._refused if name == table)
        for column, count in (
            (state.copied, copied),
            (state.refused, refused),
            (state.there, self._batch.read[table] - copied - refused),
        ):
            column[table] = column.get(table, 0) + count
        if target == "messages":
            state.orphans += sum(1 for owner, _ in self._batch.messages if owner == ORPHANS_ID)

    def _there(self, table: str, ids: Sequence[str]) -> set[str]:
        return {row[0] for row in self._among(f"SELECT id FROM {table} WHERE id IN", ids)}

    def _among(self, statement: str, values: Iterable[str], *first: str) -> list[tuple[Any, ...]]:
        """Rows whose last column is one of these."""
        sought = tuple(values)
        if not sought:
            return []
        marks = ", ".join("?" * len(sought))
        return self._tx.execute(f"{statement} ({marks})", (*first, *sought)).fetchall()

    def _tell(self) -> None:
        now = clock.now()
        for id in self._batch.ended:
            if id in self._counts:
                counts = {"source": "import", "message_count": self._counts[id]}
                tell_session(self._tx, id, PROJECT, now, **counts)

    def _refuse(self, takeover: int) -> None:
        if self._refused:
            self._tx.execute_all(
                "INSERT OR IGNORE INTO refusals (takeover_id, old_table, row_id, reason) "
                "VALUES (?, ?, ?, ?)",
                [(takeover, *one) for one in self._refused],
            )


def _insert(tx: Transaction, name: str, state: State) -> int:
    row = {"source": name, "state": _spelled(state), "started_at": clock.now()}
    tx.insert("takeovers", row)
    found = tx.one("SELECT id FROM takeovers WHERE source = ?", (name,))
    return int(found[0]) if found else 0


def _restart(tx: Transaction, number: int, state: State) -> None:
    tx.execute("DELETE FROM refusals WHERE takeover_id = ?", (number,))
    tx.execute(
        "UPDATE takeovers SET state = ?, finished_at = NULL WHERE id = ?",
        (_spelled(state), number),
    )


def _spelled(state: State) -> str:
    return orjson.dumps(asdict(state)).decode()
