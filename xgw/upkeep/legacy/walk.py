"""The walk through an older store: all of its rows in order, in batches that can be resumed.

Conversations come first, each with its messages, then messages without one, then the same of task
sessions, then request logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from xgw.frozen import frozen
from xgw.store.rows import PayloadRow
from xgw.upkeep.bodies import Bodies
from xgw.upkeep.legacy import messages, sessions
from xgw.upkeep.legacy.belonging import Rowid
from xgw.upkeep.legacy.messages import CONTENT, METADATA, TOOL_CALLS, Message
from xgw.upkeep.legacy.requests import STARTED, Request, from_request
from xgw.upkeep.legacy.sessions import CREATED, Session
from xgw.upkeep.legacy.source import REQUESTS, SHAPES, START, Columns, OldRow, Shape, Source
from xgw.upkeep.legacy.values import Origin, Refused, loose
from xgw.upkeep.times import in_order, read_time

SESSIONS_AT_ONCE = 100
REQUESTS_AT_ONCE = 100
NO_TIME = "1970-01-01 00:00:00.000000"

STAGES = (*(f"{shape.name}{part}" for shape in SHAPES for part in ("", " orphans")), "requests")


END = "end"
_NUMBERS = {stage: number for number, stage in enumerate((*STAGES, END))}
_NEXT = dict(zip(STAGES, (*STAGES[1:], END), strict=True))

Said = tuple[OldRow, str, bool]
"""A message, its moment, and whether that is known or taken from the one before."""


Behind = tuple[Rowid, int, str]
"""The `rowid`, `done` and `time` of the place behind a row."""


@frozen
class Place:
    """A point of the walk: behind `done` rows of the session with this `rowid`, or behind the row.

    `time` is that of the last row with one.
    """

    stage: str = STAGES[0]
    rowid: Rowid = START
    done: int = 0
    time: str = NO_TIME


@frozen
class Limit:
    """How many rows a batch has, and how many bytes of bodies and the like at which it ends."""

    rows: int
    bytes: int

    def doubled(self, most: Limit) -> Limit:
        """Twice as much, up to the most."""
        return Limit(min(2 * self.rows, most.rows), min(2 * self.bytes, most.bytes))


@dataclass(slots=True)
class Batch:
    """Rows of one stage that are taken over in one transaction, and where the walk stands then.

    `sessions` begin here; `messages` belong to sessions by their id, in order; `ended` are the
    sessions whose last row is here.
    """

    place: Place
    limit: Limit
    sessions: list[Session] = field(default_factory=list)
    messages: list[tuple[str, Message]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    payloads: tuple[PayloadRow, ...] = ()
    read: dict[str, int] = field(default_factory=dict)
    size: int = 0
    bytes: int = 0

    @property
    def room(self) -> int:
        """How many more rows it takes."""
        return self.limit.rows - self.size

    def is_full(self, bodies: int) -> bool:
        """Whether it takes no more, with so many bytes of bodies."""
        return self.size >= self.limit.rows or self.bytes + bodies >= self.limit.bytes

    def count(self, table: str, rows: int) -> None:
        """So many more rows of an older table."""
        self.read[table] = self.read.get(table, 0) + rows
        self.size += rows

    def refuse(self, table: str, row: OldRow, error: Exception) -> None:
        """A row that cannot be taken over."""
        name = loose(row[1]) if row[1] is not None else f"rowid {row[0]}"
        self.refused.append((table, str(name), str(error)))


class Walk:
    """Makes batches of what the source has behind a place; `limit` is asked before each one."""

    def __init__(
        self,
        source: Source,
        takeover: int,
        bodies: Bodies,
        place: Place,
        limit: Callable[[], Limit],
    ) -> None:
        self._source = source
        self._takeover = takeover
        self._bodies = bodies
        self._place = place
        self._time = place.time
        self._limit = limit
        self._batch = Batch(place, limit())

    def batches(self) -> Iterator[Batch]:
        """Batches of rows of one stage; the last one says that nothing is left."""
        for stage in STAGES[_NUMBERS[self._place.stage] :]:
            if stage != self._place.stage:
                self._place = Place(stage, time=self._time)
            self._batch = Batch(self._place, self._limit())
            for rowid, done, time in self._through(stage):
                self._time = time
                if self._batch.is_full(self._bodies.size):
                    yield self._closed(Place(stage, rowid, done, time))
                    self._batch = Batch(self._place, self._limit())
            if stage == STAGES[-1] or self._batch.size:
                yield self._closed(Place(_NEXT[stage], time=self._time))

    def _closed(self, place: Place) -> Batch:
        self._place = self._batch.place = place
        self._batch.payloads = self._bodies.take()
        return self._batch

    def _through(self, stage: str) -> Iterator[Behind]:
        if stage == STAGES[-1]:
            return self._requests()
        shape = next(shape for shape in SHAPES if stage.split()[0] == shape.name)
        return self._sessions(shape) if stage == shape.name else self._orphans(shape)

    # -- sessions and their messages -----------------------------------------------------------

    def _sessions(self, shape: Shape) -> Iterator[Behind]:
        start = self._place
        rowid, including = start.rowid, start.done > 0
        while rows := self._source.after(
            shape.sessions, rowid, SESSIONS_AT_ONCE, including=including
        ):
            rowid, including = rows[-1][0], False
            owned = self._source.belonging(shape, [row[0] for row in rows])
            for row in rows:
                done = start.done if row[0] == start.rowid else 0
                yield from self._session(shape, row, owned.get(row[0], []), done)

    def _session(
        self, shape: Shape, row: OldRow, owned: Sequence[OldRow], done: int
    ) -> Iterator[Behind]:
        known = _moments(shape, owned)
        first = min((moment for moment in known if moment), default=self._time)
        origin = self._origin(shape.sessions, repeated=self._source.is_repeated(shape, row[0]))
        session = sessions.MAKERS[shape.name](origin, row, first)
        at = session[CREATED]
        if not done:
            self._batch.count(shape.sessions.name, 1)
            self._batch.sessions.append(session)
            if not owned:
                self._batch.ended.append(session[0])
            yield row[0], 1, at
        order, moments = in_order(known, at)
        said = [(owned[n], moments[n], known[n] is not None) for n in order]
        origin = self._origin(shape.messages)
        for count in self._said(shape, origin, session[0], said, max(0, done - 1)):
            yield row[0], count + 1, at

    def _orphans(self, shape: Shape) -> Iterator[Behind]:
        """All of them in one session, those of one conversation together."""
        rows = self._source.orphans(shape)
        if not rows:
            return
        done, said = self._place.done, []
        known = [moment for moment in _moments(shape, rows) if moment]
        first = min(known, default=self._time)
        for together in _together(rows):
            known_here = _moments(shape, together)
            order, moments = in_order(known_here, first)
            said += [(together[n], moments[n], known_here[n] is not None) for n in order]
        origin = self._origin(shape.messages, orphans=True)
        session = sessions.of_orphans(origin, first)
        if not done:
            self._batch.sessions.append(session)
        for count in self._said(shape, origin, session[0], said, max(0, done - 1)):
            yield 0, count + 1, first

    def _said(
        self, shape: Shape, origin: Origin, session_id: str, said: Sequence[Said], done: int
    ) -> Iterator[int]:
        """Add a session's messages behind those that are `done`; yields how many are then."""
        make, table = messages.MAKERS[shape.name], shape.messages.name
        while done < len(said):
            batch, column = self._batch, self._bodies.column
            some = said[done : done + batch.room]
            for row, at, known in some:
                try:
                    made = make(origin, row, at, known)
                except Refused as error:
                    batch.refuse(table, row, error)
                    continue
                if made[CONTENT] is not None:
                    made[CONTENT] = column(made[CONTENT])
                batch.bytes += len(made[METADATA]) + len(made[TOOL_CALLS] or "")
                batch.messages.append((session_id, made))
            batch.count(table, len(some))
            done += len(some)
            if done == len(said):
                batch.ended.append(session_id)
            yield done

    def _origin(self, table: Columns, *, orphans: bool = False, repeated: bool = False) -> Origin:
        others, doubtful = self._source.others(table), self._source.doubtful
        return Origin(self._takeover, table.name, others, orphans, doubtful, repeated)

    # -- request logs --------------------------------------------------------------------------

    def _requests(self) -> Iterator[Behind]:
        rowid, time = self._place.rowid, self._time
        origin = self._origin(REQUESTS)
        while rows := self._source.after(REQUESTS, rowid, REQUESTS_AT_ONCE):
            while rows:
                batch = self._batch
                some, rows = rows[: batch.room], rows[batch.room :]
                for row in some:
                    made = from_request(origin, row, time, self._bodies)
                    batch.requests.append(made)
                    batch.bytes += len(made[-1])
                    time = made[STARTED]
                batch.count(REQUESTS.name, len(some))
                rowid = some[-1][0]
                yield rowid, 1, time


def _moments(shape: Shape, rows: Sequence[OldRow]) -> list[str | None]:
    place = len(shape.messages.known)
    return [read_time(row[place]) for row in rows]


def _together(rows: Sequence[OldRow]) -> list[list[OldRow]]:
    """The rows by what they belong to, in the order in which that turns up."""
    found: dict[str | None, list[OldRow]] = {}
    for row in rows:
        found.setdefault(loose(row[2]), []).append(row)
    return list(found.values())
