"""A recorded conversation taken apart, to be written again with other ids, numbers and times.

Whatever tells one conversation from the next is a slot: ids, times, the serial numbers in texts,
and the hashes of the bodies that hold any of these. All else stays as the product wrote it.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import random
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.scripts import Recorded
from xgw.store import payloads
from xgw.store.database import Store
from xgw.store.payloads import PayloadRow, Shelf

TABLES = ("sessions", "turns", "runs", "steps", "messages", "request_logs", "events")
PAYLOADS = frozenset(
    {"input_payload", "output_payload", "config_snapshot", "request_payload", "response_body"}
)
TURN_GAP = datetime.timedelta(seconds=40)
"""Between the beginnings of a conversation's turns."""

_TOKEN = re.compile(
    r"(?:(?:sess|turn|run|step|msg|req)_)?[0-9a-f]{32}"
    r"|(?<![0-9a-z])[0-9a-f]{16}(?![0-9a-z])"
    r"|(?<![0-9A-Za-z])\d{12}(?![0-9A-Za-z])"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d{6}"
)
_ID = re.compile(r"(sess|turn|run|step|msg|req)_([0-9a-f]{32})")

Piece = str | int
"""A piece of a text: itself, or the number of the slot that stands there."""

_serials = itertools.count(1)


@dataclass(frozen=True)
class Table:
    """Rows of one table: as they are, and for each the columns that are put together anew."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[list[Any], list[tuple[int, tuple[Piece, ...]]]]]


@dataclass(frozen=True)
class Moment:
    """A time, as the turn in which it lies and how long after that one's beginning it is."""

    turn: int
    after: datetime.timedelta


@dataclass(frozen=True)
class Body:
    """A body whose hash is a slot; `is_request`: kept in parts, as requests are."""

    pieces: tuple[Piece, ...]
    is_request: bool


@dataclass
class Slots:
    """What stands in the slots, in groups that are filled one after the other."""

    numbers: dict[str, int]
    moments: list[tuple[Moment, str]]
    ids: list[tuple[Moment, list[str]]]
    serials: int
    bodies: list[Body]


class Template:
    """A conversation and a turn on its own; `write` makes another one like it."""

    def __init__(self, store: Store, recorded: Recorded) -> None:
        raw = dict(_read(store.path, recorded))
        self._begun = sorted(row["started_at"] for row in raw["turns"])
        self.turns = len(raw["turns"])
        self._slots: dict[str, int] = {}
        self._moments: list[tuple[Moment, str]] = []
        self._ids: list[tuple[Moment, str, list[str]]] = []
        self._serials: list[int] = []
        self._bodies: list[Body] = []
        self._collect(raw)
        self._collect_bodies(store, raw)
        self.tables = [self._table(name, raw[name]) for name in TABLES]
