"""A recorded conversation taken apart, to be made again with other ids, numbers and times.

Whatever tells one conversation from the next is a slot: ids, times, the serial numbers in texts,
and the hashes of the bodies that hold any of these. All else stays as the product wrote it.
"""

from __future__ import annotations

import contextlib
import datetime
import random
import re
import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import orjson

from bench import bodies
from bench.scripts import Recorded
from xgw import clock
from xgw.store import payloads
from xgw.store.database import Store
from xgw.store.models import Event, Payload
from xgw.store.payloads import PayloadRow, Shelf

TABLES = ("sessions", "turns", "runs", "steps", "messages", "request_logs", "events")
PAYLOADS = frozenset(
    {"input_payload", "output_payload", "config_snapshot", "request_payload", "response_body"}
)
TURN_GAP = datetime.timedelta(seconds=40)
"""Between the beginnings of a conversation's turns."""

_TOKEN = re.compile(
    r"(?:(?:sess|turn|run|step|msg|req)_)?[0-9a-f]{32}"
    r"|(?<![0-9A-Za-z])[0-9a-f]{16}(?![0-9A-Za-z])"
    r"|(?<![0-9A-Za-z])\d{12}(?![0-9A-Za-z])"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d{6}"
)
_LONG_TEXT = re.compile(r'(?:\A\x1f|\\u001f|\{"payload":")([0-9a-f]{32})')
"""How rows and events name the payloads of long texts."""

_SERIAL_LENGTH, _TIME_LENGTH = 12, 26

Piece = str | int
"""A piece of a text: itself, or the number of the slot that stands there."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: the turn in which it lies, and how long after that one's beginning it is."""

    turn: int
    after: datetime.timedelta

    def at(self, begun: datetime.datetime) -> datetime.datetime:
        """The same moment of a conversation that began then."""
        return begun + self.turn * TURN_GAP + self.after


@dataclass(frozen=True, slots=True)
class Id:
    """The slots of one id: its digits, the whole of it, and its last sixteen digits."""

    prefix: str
    moment: Moment
    digits: int
    whole: int
    tail: int


@dataclass(frozen=True, slots=True)
class Body:
    """A body whose hash stands in `slot`; `is_request`: kept in parts, as requests are."""

    slot: int
    pieces: tuple[Piece, ...]
    is_request: bool


@dataclass(frozen=True, slots=True)
class TemplateRow:
    """The values that stay; the columns that are one slot, and those with slots and texts in them.

    What is around the slots has numbers as slots have: a column is then picked out and joined.
    """

    fixed: list[Any]
    slots: list[tuple[int, int]]
    joined: list[tuple[int, Callable[[Sequence[str]], tuple[str, ...]]]]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one table."""

    name: str
    columns: tuple[str, ...]
    rows: list[TemplateRow]


@dataclass(frozen=True, slots=True)
class Copy:
    """A conversation made anew: rows by table, in the order of the template's tables."""

    rows: list[list[list[Any]]]
    payloads: list[PayloadRow]


class Template:
    """One recorded conversation with its turn on its own; `turns` in all."""

    def __init__(self, store: Store, recorded: Recorded) -> None:
        found = _read(store, recorded)
        self._begun = sorted(_time(row["started_at"]) for row in found["turns"])
        self.turns = len(self._begun)
        self._slots: dict[str, int] = {}
        self._times: list[tuple[int, Moment, str]] = []
        self._serials: list[int] = []
        self._ids = [
            self._id(row["id"]) for name in TABLES if name != "events" for row in found[name]
        ]
        self._bodies = self._find_bodies(store, found)
        self._hashes: dict[int, str] = {}
        made = [[self._columns(row) for row in found[name]] for name in TABLES]
        # All slots are known by now: the texts around them are numbered from there on.
        self._around: dict[str, int] = {}
        self.tables = [
            Table(name, tuple(found[name][0]), [self._row(*row) for row in rows])
            for name, rows in zip(TABLES, made, strict=True)
        ]

    def make(self, begun: datetime.datetime, shelf: Shelf, *, anew: bool = True) -> Copy:
        """Another conversation like this one, of that time.

        Its bodies are its own (`anew`), or those of the last copy that has its own.
        """
        values = self._values(begun)
        stored: list[PayloadRow] = []
        if anew or not self._hashes:
            for body in self._bodies:
                content = _render(body.pieces, values).encode()
                kept = shelf.request(content) if body.is_request else shelf.whole(content)
                values[body.slot] = self._hashes[body.slot] = kept.hash
                stored += kept.rows
        for slot, hash in self._hashes.items():
            values[slot] = hash
        return Copy([_rows(table, values) for table in self.tables], stored)

    @property
    def lasts(self) -> datetime.timedelta:
        """From the beginning of a copy to the beginning of its last turn."""
        return (self.turns - 1) * TURN_GAP

    def _values(self, begun: datetime.datetime) -> list[str]:
        values = [""] * len(self._slots) + list(self._around)
        for slot, moment, separator in self._times:
            values[slot] = moment.at(begun).isoformat(separator, "microseconds")
        for slot in self._serials:
            values[slot] = bodies.serial()
        for id in self._ids:
            digits = _uuid7(id.moment.at(begun))
            values[id.digits] = digits
            values[id.whole] = f"{id.prefix}_{digits}"
            values[id.tail] = digits[-16:]
        return values

    # -- taking apart --------------------------------------------------------------------------

    def _new_slot(self, token: str) -> int:
        return self._slots.setdefault(token, len(self._slots))

    def _id(self, whole: str) -> Id:
        prefix, _, digits = whole.partition("_")
        minted = datetime.datetime.fromtimestamp(int(digits[:12], 16) / 1000, datetime.UTC)
        slots = (self._new_slot(token) for token in (digits, whole, digits[-16:]))
        return Id(prefix, self._moment(minted.replace(tzinfo=None)), *slots)

    def _moment(self, at: datetime.datetime) -> Moment:
        turn = max(0, bisect_right(self._begun, at) - 1)
        return Moment(turn, at - self._begun[turn])

    def _slot(self, token: str) -> int | None:
        """The slot of something found in a text; None for what only looks like it."""
        known = self._slots.get(token)
        if known is not None:
            return known
        if len(token) == _TIME_LENGTH:
            slot = self._new_slot(token)
            self._times.append((slot, self._moment(_time(token)), token[10]))
            return slot
        if len(token) == _SERIAL_LENGTH:
            slot = self._new_slot(token)
            self._serials.append(slot)
            return slot
        return None

    def _pieces(self, text: str) -> tuple[Piece, ...]:
        pieces: list[Piece] = []
        done = 0
        for token in _TOKEN.finditer(text):
            slot = self._slot(token[0])
            if slot is not None:
                pieces += [text[done : token.start()], slot]
                done = token.end()
        return tuple(piece for piece in (*pieces, text[done:]) if piece != "")

    def _find_bodies(self, store: Store, found: dict[str, list[Row]]) -> list[Body]:
        named = {row[c] for rows in found.values() for row in rows for c in PAYLOADS & row.keys()}
        values = (value for rows in found.values() for row in rows for value in row.values())
        named.update(key for v in values if isinstance(v, str) for key in _LONG_TEXT.findall(v))
        keys = sorted(key for key in named if key is not None)
        contents = payloads.load_many(store, keys)
        found_codecs = store.fetch(
            Payload.select(Payload.hash, Payload.codec).where(Payload.hash.in_(keys))
        )
        codecs = {row["hash"]: row["codec"] for row in found_codecs}
        return [
            Body(self._new_slot(key), self._pieces(contents[key].decode()), codecs[key] == "parts")
            for key in keys
        ]

    def _columns(self, row: Row) -> tuple[list[Any], dict[int, tuple[Piece, ...]]]:
        """A row's values, and the pieces of those that change by their place."""
        made = {
            place: self._pieces(value)
            for place, value in enumerate(row.values())
            if isinstance(value, str)
        }
        changing = {
            p: pieces for p, pieces in made.items() if any(isinstance(x, int) for x in pieces)
        }
        return list(row.values()), changing

    def _row(self, fixed: list[Any], changing: dict[int, tuple[Piece, ...]]) -> TemplateRow:
        row = TemplateRow(fixed, [], [])
        for place, pieces in changing.items():
            numbers = [self._number(piece) for piece in pieces]
            if len(numbers) == 1:
                row.slots.append((place, numbers[0]))
            else:
                row.joined.append((place, itemgetter(*numbers)))
        return row

    def _number(self, piece: Piece) -> int:
        if isinstance(piece, int):
            return piece
        return self._around.setdefault(piece, len(self._slots) + len(self._around))


def _rows(table: Table, values: list[str]) -> list[list[Any]]:
    rows = []
    for template in table.rows:
        row = template.fixed.copy()
        for place, slot in template.slots:
            row[place] = values[slot]
        for place, pick in template.joined:
            row[place] = "".join(pick(values))
        rows.append(row)
    return rows


def _render(pieces: tuple[Piece, ...], values: list[str]) -> str:
    if len(pieces) == 1 and isinstance(pieces[0], int):
        return values[pieces[0]]
    return "".join([values[p] if isinstance(p, int) else p for p in pieces])


def _read(store: Store, recorded: Recorded) -> dict[str, list[Row]]:
    """Every row of a conversation and its turn on its own."""
    session, turn = recorded.session_id, recorded.turn_id
    turns = "SELECT id FROM turns WHERE session_id = ? OR id = ?"
    chosen = dict.fromkeys(TABLES[:-1], f"turn_id IN ({turns})")
    chosen["sessions"] = "? = id OR ? = ''"
    chosen["turns"] = "session_id = ? OR id = ?"
    found: dict[str, list[Row]] = {}
    with contextlib.closing(sqlite3.connect(store.path)) as connection:
        connection.row_factory = sqlite3.Row
        for name, condition in chosen.items():
            rows = connection.execute(
                f"SELECT * FROM {name} WHERE {condition} ORDER BY rowid", (session, turn)
            )
            found[name] = [dict(row) for row in rows]
    found["events"] = [_spelled(event) for event in _events(store, session, turn)]
    return found


def _events(store: Store, session: str, turn: str) -> list[Row]:
    """Those of the session and of the turn, `seq` left out: the session's own first."""
    mine = (Event.session_id == session) | (Event.turn_id == turn)
    columns = [field for field in Event._meta.sorted_fields if field.name != "seq"]
    return store.fetch(
        Event.select(*columns).where(mine).order_by(Event.turn_id.is_null().desc(), Event.seq)
    )


def _spelled(event: Row) -> Row:
    """The row with everything as text, so that slots are found in it; `packed` undoes that."""
    payload = orjson.dumps(event["payload"]).decode()
    return event | {"at": clock.to_db(event["at"]), "payload": payload}


def packed(columns: Sequence[str], event: Sequence[Any]) -> list[Any]:
    """An event's row as the store has it."""
    fields = Event._meta.fields
    values = dict(zip(columns, event, strict=True))
    values["at"] = clock.from_db(values["at"])
    values["payload"] = orjson.loads(values["payload"])
    return [fields[name].db_value(value) for name, value in values.items()]


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def _uuid7(at: datetime.datetime) -> str:
    """The 32 digits of a UUIDv7 that was minted then."""
    milliseconds = int(at.replace(tzinfo=datetime.UTC).timestamp() * 1000)
    digits = f"{random.getrandbits(76):019x}"
    return f"{milliseconds:012x}7{digits[:3]}a{digits[3:18]}"
