"""What the store still refers to: the marks of a sweep, in a temporary table on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from xgw.queries.sizes import lengths
from xgw.store import told
from xgw.store.database import Store
from xgw.store.digits import packed_hash, packed_id, whole_hash, whole_id
from xgw.store.models import Event, Message, RequestLog, Run, Session, Step, Table, Turn
from xgw.store.rows import PRUNED, leads_to
from xgw.upkeep.references import TABLES, named_in

ROWS = 2000
BODIES = 200
TURNS = 200

MARKED = "CREATE TEMP TABLE marked (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE)"
SPENT = "CREATE TEMP TABLE spent (id TEXT PRIMARY KEY) WITHOUT ROWID"
# Of events the ids are packed: both spellings stand in it, as they are.
LEAVING = "CREATE TEMP TABLE leaving (id BLOB PRIMARY KEY) WITHOUT ROWID"
MARK = "INSERT OR IGNORE INTO temp.marked (hash) "
INSIDE = "r.rowid > ? AND r.rowid <= ?"

_STAYS = "NOT EXISTS (SELECT 1 FROM temp.leaving l WHERE l.id IN ({}))"
# A request without a turn stands for itself.
_IS_SPENT = "EXISTS (SELECT 1 FROM temp.spent s WHERE s.id = COALESCE({}, r.id))"
_IS_NAME = "substr({0}, 1, 1) = char(31)"


# In the order in which they were marked: what a body refers to is marked behind it.
BODIES_MARKED = (
    "SELECT m.id, p.codec, p.data FROM temp.marked m LEFT JOIN payloads p ON p.hash = m.hash "
    "WHERE m.id > ? ORDER BY m.id LIMIT ?"
)
LAST_OF_NEXT = "SELECT hash FROM payloads WHERE hash > ? ORDER BY hash LIMIT 1 OFFSET ?"
UNMARKED = (
    "SELECT hash, length(data) FROM payloads p WHERE hash > ? AND hash <= ? "
    "AND NOT EXISTS (SELECT 1 FROM temp.marked m WHERE m.hash = p.hash) ORDER BY hash"
)
# Texts, which no hash of xgw's own is, stand before all bytes.
FIRST, BEYOND = "", b"\xff" * 17
"""Smaller and greater than every hash."""

ROWS_OF: tuple[type[Table], ...] = (Session, Turn, Run, Step, Message, RequestLog, Event)
ENDED = "('success', 'error', 'cancelled')"

Place = tuple[int, Any]
"""A row's number in its table, and its id: the number may be another row's later."""

Found = list[tuple[str, int]]
"""Hashes of payloads, and the bytes that each takes."""


class Marks:
    """Marks on hashes, for one thread at a time and a `with` block; many short statements.

    `breathe` is called between them and may raise to end the work.
    """

    def __init__(self, store: Store, breathe: Callable[[], None]) -> None:
        self._breathe = breathe
        self._connection = store.open_reader()
        for statement in (MARKED, SPENT, LEAVING):
            self._connection.execute(statement)
        self._seen: dict[str, list[Place]] = {table: [] for table in TABLES}
        self._followed = 0

    def __enter__(self) -> Marks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    # -- what is not to be marked --------------------------------------------------------------

    def spend(self, before: str, sessions: Iterable[str] | None = None) -> None:
        """The bodies of turns that ended before then count no more; of these sessions alone.

        So do those of requests without a turn, unless sessions are given.
        """
        ended = (
            f"INSERT INTO temp.spent SELECT r.id FROM turns r WHERE {INSIDE} "
            f"AND r.status IN {ENDED} AND COALESCE(r.ended_at, r.started_at, r.created_at) < ?"
        )
        if sessions is not None:
            self._connection.execute("CREATE TEMP TABLE chosen (id TEXT PRIMARY KEY)")
            self._insert("chosen", sessions)
            ended += " AND r.session_id IN (SELECT id FROM temp.chosen)"
        for start, end in self._ranges("turns"):
            self._connection.execute(ended, (start, end, before))
        alone = (
            f"INSERT INTO temp.spent SELECT r.id FROM request_logs r WHERE {INSIDE} "
            "AND r.turn_id IS NULL AND COALESCE(r.ended_at, r.started_at) < ?"
        )
        for start, end in self._ranges("request_logs") if sessions is None else ():
            self._connection.execute(alone, (start, end, before))

    def leave(self, ids: Iterable[str]) -> None:
        """Sessions and turns that are to go: what their rows refer to counts no more."""
        for id in ids:
            prefix = id.partition("_")[0]
            self._insert("leaving", (id, packed_id(id, prefix)))

    def leaving_bytes(self) -> int:
        """What the rows take that are to go, without indexes."""
        total = 0
        for model in ROWS_OF:
            table = model._meta.table_name
            owners = "r.id" if table == "sessions" else TABLES[table].owners
            text = f"SELECT TOTAL({lengths(model)}) FROM {table} r WHERE NOT "
            total += int(self._rows(text + _STAYS.format(owners))[0][0])
        return total

    # -- marking -------------------------------------------------------------------------------

    def mark(self, hashes: Iterable[str]) -> None:
        """These are needed."""
        self._connection.executemany(f"{MARK} VALUES (?)", [(packed_hash(key),) for key in hashes])

    def mark_referenced(self) -> None:
        """Everything that rows refer to, and everything that those payloads refer to."""
        newest = self._newest()
        seen = {table: self._places(table, upto) for table, upto in newest.items()}
        for table, upto in newest.items():
            for start, end in self._ranges(table, upto):
                self._mark_rows(table, INSIDE, (start, end), spares=True)
        self._seen = seen
        self._follow(self._breathe)

    def catch_up(self, *, hurry: bool = False) -> None:
        """Everything that was committed since, by other processes too; without a pause in a hurry.

        New rows are the last ones of their tables, and what became of others is told by events.
        """
        breathe = _go_on if hurry else self._breathe
        newest = self._newest()
        seen = {table: self._places(table, upto) for table, upto in newest.items()}
        since = {table: self._last_left(table) for table in newest}
        for table, upto in newest.items():
            self._mark_rows(table, INSIDE, (since[table], upto))
        # Rows are found by their turn, however old they are.
        for turns in self._turns_told_of(since["events"], newest["events"]):
            breathe()
            marks = ", ".join("?" * len(turns))
            for table, at in TABLES.items():
                if table != "events":
                    self._mark_rows(table, f"{at.turn} IN ({marks})", turns)
        self._seen = seen
        self._follow(breathe)

    def has(self, key: str) -> bool:
        """Whether it is needed."""
        return bool(self._rows("SELECT 1 FROM temp.marked WHERE hash = ?", packed_hash(key)))

    # -- what is left over ---------------------------------------------------------------------

    def spent_bodies(self) -> Iterator[tuple[Found, list[str]]]:
        """Bodies that count no more and that nothing else refers to, in lists that may be empty.

        First those that are there, then those of which nothing but the size is there any more.
        """
        for table, at in TABLES.items():
            for start, end in self._ranges(table) if at.bodies else ():
                found: dict[str, tuple[str, int]] = {}
                for column in at.bodies:
                    text = (
                        f"SELECT p.hash, p.codec, length(p.data) FROM {table} r JOIN payloads p "
                        f"ON p.hash = packed_hash(COALESCE(r.{column}, '')) WHERE {INSIDE} "
                        f"AND r.{column} IS NOT NULL AND {_IS_SPENT.format(at.turn)} "
                        f"AND {_STAYS.format(at.owners)} "
                        "AND NOT EXISTS (SELECT 1 FROM temp.marked m WHERE m.hash = p.hash)"
                    )
                    for key, codec, size in self._rows(text, start, end):
                        found[whole_hash(key)] = (codec, size)
                there = [(key, size) for key, (codec, size) in found.items() if codec != PRUNED]
                yield there, [key for key, (codec, _) in found.items() if codec == PRUNED]

    def unmarked(self) -> Iterator[Found]:
        """Payloads without a mark, in lists that may be empty."""
        start: str | bytes = FIRST
        while start != BEYOND:
            self._breathe()
            last = self._connection.execute(LAST_OF_NEXT, (start, ROWS - 1)).fetchone()
            end = last[0] if last else BEYOND
            yield [(whole_hash(key), size) for key, size in self._rows(UNMARKED, start, end)]
            start = end

    # -- in parts ------------------------------------------------------------------------------

    def _newest(self) -> dict[str, int]:
        found = {}
        for table in TABLES:
            found[table] = self._rows(f"SELECT max(rowid) FROM {table}")[0][0] or 0
        return found

    def _places(self, table: str, upto: int) -> list[Place]:
        """The last row up to there and some before it, ever further apart, the last one first."""
        before = [upto, *(upto - (1 << power) for power in range(upto.bit_length()))]
        marks = ", ".join("?" * len(before))
        name = "seq" if table == "events" else "id"
        text = f"SELECT rowid, {name} FROM {table} WHERE rowid IN ({marks}) ORDER BY rowid DESC"
        return self._rows(text, *before)

    def _last_left(self, table: str) -> int:
        """After which row those come that are new: the numbers of deleted ones are given again."""
        name = "seq" if table == "events" else "id"
        text = f"SELECT 1 FROM {table} WHERE rowid = ? AND {name} = ?"
        left = (place for place in self._seen[table] if self._rows(text, *place))
        return next(left, (0, ""))[0]

    def _ranges(self, table: str, upto: int | None = None) -> Iterator[tuple[int, int]]:
        start = 0
        upto = self._newest()[table] if upto is None else upto
        while start < upto:
            self._breathe()
            end = min(start + ROWS, upto)
            yield start, end
            start = end

    def _mark_rows(
        self, table: str, where: str, values: Sequence[Any], *, spares: bool = False
    ) -> None:
        """What these rows refer to; `spares` what counts no more."""
        at, stays = TABLES[table], where
        if spares:
            stays = f"{where} AND {_STAYS.format(at.owners)}"
        counts = f"{stays} AND NOT {_IS_SPENT.format(at.turn)}" if spares else where
        for columns, which in ((at.bodies, counts), (at.others, stays)):
            for column in columns:
                found = f"SELECT packed_hash(r.{column}) FROM {table} r WHERE {which}"
                self._connection.execute(f"{MARK}{found} AND r.{column} IS NOT NULL", values)
        for column in at.names:
            name = f"r.{column}"
            found = f"SELECT packed_hash(substr({name}, 2)) FROM {table} r WHERE {stays}"
            self._connection.execute(f"{MARK}{found} AND {_IS_NAME.format(name)}", values)
        if at.json:
            for (kept,) in self._rows(at.json.format(stays=stays, counts=counts), *values):
                self.mark(named_in(told.unpacked(kept)))

    def _turns_told_of(self, after: int, upto: int) -> Iterator[list[str]]:
        text = (
            "SELECT DISTINCT turn_id FROM events WHERE seq > ? AND seq <= ? AND turn_id IS NOT NULL"
        )
        turns = [whole_id(row[0], "turn") for row in self._rows(text, after, upto)]
        for at in range(0, len(turns), TURNS):
            yield turns[at : at + TURNS]

    def _follow(self, breathe: Callable[[], None]) -> None:
        """Mark what marked bodies refer to."""
        while rows := self._rows(BODIES_MARKED, self._followed, BODIES):
            breathe()
            for _, codec, data in rows:
                if codec is not None:
                    self.mark(leads_to(codec, data))
            self._followed = rows[-1][0]

    def _insert(self, table: str, ids: Iterable[str | bytes]) -> None:
        statement = f"INSERT OR IGNORE INTO temp.{table} VALUES (?)"
        self._connection.executemany(statement, [(id,) for id in ids])

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()


def _go_on() -> None:
    return None
