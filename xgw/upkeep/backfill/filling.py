"""The backfill: sessions in batches, each one transaction, then the request logs."""

from __future__ import annotations

import contextlib
import datetime
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from xgw import clock
from xgw.masking import Masker
from xgw.recording.adopt import (
    Adopted,
    add_turns,
    adopt,
    link_messages,
    place_turns,
    tell_session,
)
from xgw.store.database import Store
from xgw.store.transaction import Transaction
from xgw.upkeep.backfill import reading
from xgw.upkeep.backfill.grouping import STRATEGIES, Said, conversations
from xgw.upkeep.backfill.linking import UNNAMED, Linking, count_named
from xgw.upkeep.backfill.turns import TURN_INDEX, Made, Session, make
from xgw.upkeep.bodies import Bodies
from xgw.upkeep.pace import Pace

BATCH, BATCH_SERVED = 500, 20
"""Sessions in one transaction; with a server beside it waits for a few only."""

TRIES = 5

Progress = Callable[[int], None]
_BY_SESSION = attrgetter("session_id")


@dataclass
class Tally:
    """What a backfill did: what was made, and by reason how many messages were skipped.

    `named` are, of a dry run, the request logs that name something and may get a turn by that.
    """

    sessions: int = 0
    turns: int = 0
    messages: int = 0
    steps: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    named: int = 0
    unlinked: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Take in what a batch did."""
        self.sessions += other.sessions
        self.turns += other.turns
        self.messages += other.messages
        self.steps += other.steps
        self.skipped.update(other.skipped)


class Moved(Exception):
    """Messages or sessions changed between reading and writing: read them again."""


class Backfill:
    """Gives messages their turns; `only` bounds it to one session, without `pace` nothing changes.

    `batch` is how many sessions one transaction takes, None for what suits.
    """

    def __init__(
        self,
        store: Store,
        pace: Pace | None,
        strategy: str,
        *,
        only: str | None = None,
        batch: int | None = None,
    ) -> None:
        self._store = store
        self._pace = pace
        self._strategy = strategy
        self._only = only
        self._batch = batch
        self._bodies = Bodies(Masker(()))

    def run(self, progress: Progress) -> Tally:
        """Everything that is to be done; `progress` is told how many sessions each batch had."""
        tally = Tally()
        behind = ""
        while ids := reading.session_ids(self._store, behind, self._size(), self._only):
            tally.add(self._fill(ids))
            behind = ids[-1]
            progress(len(ids))
        if self._pace is None:
            # Whether they are linked shows once the turns that they may name are there.
            tally.named, tally.unlinked[UNNAMED] = count_named(self._store)
            return tally
        linking = Linking(self._store, self._pace, self._only)
        with contextlib.closing(linking):
            linking.run()
        tally.requests, tally.unlinked = linking.linked, linking.unlinked
        return tally

    def _size(self) -> int:
        if self._batch is not None:
            return self._batch
        return BATCH_SERVED if self._pace is not None and self._pace.served else BATCH

    def _fill(self, ids: Sequence[str]) -> Tally:
        for _ in range(TRIES):
            prepared = _Prepared.read(self._store, ids, self._strategy, self._bodies)
            if self._pace is None:
                return prepared.tally
            try:
                self._pace.write(prepared.write)
            except Moved:
                continue
            self._bodies.committed(prepared.payloads)
            return prepared.tally
        return Tally(sessions=len(ids), skipped=Counter({"changed all the time": len(ids)}))


class _Prepared:
    """The turns of some sessions, ready to be written."""

    def __init__(self, sessions: dict[str, Session], made: list[Made], tally: Tally) -> None:
        self.sessions = sessions
        self.made = made
        self.tally = tally
        self.payloads: tuple[tuple[str, int, str, bytes], ...] = ()

    @classmethod
    def read(cls, store: Store, ids: Sequence[str], strategy: str, bodies: Bodies) -> _Prepared:
        """Read them, and make what is to be made."""
        sessions = reading.sessions(store, ids)
        prepared = cls(sessions, [], Tally(sessions=len(ids)))
        now = clock.to_db(clock.now())
        said = reading.messages(store, ids)
        for session_id, messages in groupby(said, key=_BY_SESSION):
            if session_id in sessions:
                prepared._add(sessions[session_id], list(messages), strategy, now, bodies)
        prepared.payloads = bodies.take()
        prepared.tally.turns = len(prepared.made)
        prepared.tally.messages = sum(one.count for one in prepared.made)
        prepared.tally.steps = sum(len(one.steps) for one in prepared.made)
        return prepared

    def _add(
        self, session: Session, said: list[Said], strategy: str, now: str, bodies: Bodies
    ) -> None:
        for together in conversations(said, orphans=session.is_orphans):
            groups, skipped = STRATEGIES[strategy](together)
            for reason, count in skipped:
                self.tally.skipped[reason] += count
            for number, group in enumerate(groups, 1):
                is_last = number == len(groups)
                self.made.append(make(session, group, strategy, now, bodies, is_last=is_last))

    def write(self, tx: Transaction) -> None:
        """Write it. Moved if what was read has changed."""
        if not self.made:
            return
        self._refuse_moved(tx)
        self._give_indexes(tx)
        steps = [step for one in self.made for step in one.steps]
        adopt(
            tx,
            Adopted(
                turns=[one.turn for one in self.made],
                runs=[one.run for one in self.made],
                steps=steps,
                payloads=self.payloads,
            ),
        )
        links = [link for one in self.made for link in one.links]
        if link_messages(tx, links) != self.tally.messages:
            raise Moved
        self._tell(tx)

    def _refuse_moved(self, tx: Transaction) -> None:
        ids = list(self.sessions)
        marks = ", ".join("?" * len(ids))
        rows = tx.execute(f"SELECT id, turn_count FROM sessions WHERE id IN ({marks})", ids)
        counts = dict(rows.fetchall())
        if counts != {id: session.turn_count for id, session in self.sessions.items()}:
            raise Moved

    def _give_indexes(self, tx: Transaction) -> None:
        """By the messages' place in the session; turns that are there make room."""
        there = self._turns_there(tx)
        moved: list[tuple[int, str]] = []
        for session_id, group in groupby(self.made, key=_BY_SESSION):
            # A turn that is there without messages keeps its place behind the one before it.
            known, first = [], -1
            for turn_id, index, its_first in there.get(session_id, ()):
                first = first if its_first is None else max(first, its_first)
                known.append((first, 0, index, turn_id, None))
            new = [(one.first, 1, 0, one.id, one) for one in group]
            placed = sorted([*known, *new], key=lambda entry: entry[:3])
            for number, (_, _, index, turn_id, one) in enumerate(placed):
                if one is not None:
                    one.turn[TURN_INDEX] = number
                elif number != index:
                    moved.append((number, turn_id))
        if moved:
            place_turns(tx, moved)

    def _turns_there(self, tx: Transaction) -> dict[str, list[tuple[str, int, int | None]]]:
        ids = [id for id, session in self.sessions.items() if session.turn_count]
        if not ids:
            return {}
        marks = ", ".join("?" * len(ids))
        found: dict[str, list[tuple[str, int, int | None]]] = {}
        for session_id, *turn in tx.execute(
            "SELECT t.session_id, t.id, t.turn_index, "
            "(SELECT min(m.message_index) FROM messages m WHERE m.turn_id = t.id) "
            f"FROM turns t WHERE t.session_id IN ({marks}) ORDER BY t.session_id, t.turn_index",
            ids,
        ):
            found.setdefault(session_id, []).append((turn[0], turn[1], turn[2]))
        return found

    def _tell(self, tx: Transaction) -> None:
        now = clock.now()
        added = []
        for session_id, group in groupby(self.made, key=_BY_SESSION):
            made, session = list(group), self.sessions[session_id]
            last = max(one.started_at for one in made)
            added.append((len(made), last, session_id))
            for one in made:
                _tell_turn(tx, session, one, now)
            count = session.turn_count + len(made)
            tell_session(tx, session_id, session.project_id, now, turn_count=count)
        add_turns(tx, added)


def _tell_turn(tx: Transaction, session: Session, made: Made, at: datetime.datetime) -> None:
    payload = {
        "turn_index": made.turn[TURN_INDEX],
        "status": made.turn[TURN_INDEX + 4],
        "message_count": made.count,
    }
    tx.emit(
        "turn.backfilled",
        at,
        session.project_id,
        payload,
        session_id=session.id,
        turn_id=made.id,
    )
