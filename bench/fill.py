"""A large store, quickly: conversations that xgw recorded, written again and again.

`python -m bench.fill STORE [--turns N] [--sessions N]` makes a new store of the size asked for, its
conversations spread over the last thirty days. Rows, bodies and events are those that the product
writes; ids, times and numbers are new, so that nothing is there twice.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.scripts import record
from bench.setting import upstream
from bench.templates import TABLES, Copy, Template
from xgw import clock
from xgw.store.database import Store
from xgw.store.migrations import migrate
from xgw.store.payloads import Shelf

SPREAD = datetime.timedelta(days=30)
INSERT_PAYLOAD = "INSERT OR IGNORE INTO payloads (hash, size, codec, data) VALUES (?, ?, ?, ?)"
BATCH = 200
"""Conversations a transaction."""

FAST = ("journal_mode = off", "synchronous = off", "foreign_keys = 0", "cache_size = -400000")
"""A store that is only half made is of no use to anybody: nothing guards it meanwhile."""


def fill(path: Path, *, turns: int, sessions: int) -> int:
    """Make a new store at `path`; how many turns it has.

    Each of the `sessions` stands for `turns // sessions` turns: all but one in it, that one on its
    own. SystemExit if there is a store already, or a session would have no turn.
    """
    each = turns // sessions
    if each < 2:
        raise SystemExit("bench: at least two turns a session are needed")
    if path.exists():
        raise SystemExit(f"bench: {path} is there already")
    store = Store(path)
    migrate(store)
    with _unindexed(path) as connection:
        return _write(connection, _templates(each), sessions)


def _templates(turns_each: int) -> list[Template]:
    with tempfile.TemporaryDirectory(prefix="xgw-bench-") as folder, upstream() as port:
        path, scripts = record(Path(folder), port, turns_each - 1)
        store = Store(path)
        templates = [Template(store, script) for script in scripts]
        store.close()
    return templates


@contextlib.contextmanager
def _unindexed(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection for writing much; indexes are made at the end, all at once."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for setting in FAST:
            connection.execute(f"PRAGMA {setting}")
        indexes = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        ).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        yield connection
        for _, statement in indexes:
            connection.execute(statement)


def _write(connection: sqlite3.Connection, templates: Sequence[Template], sessions: int) -> int:
    shelf = Shelf()
    begun = clock.now() - SPREAD
    step = SPREAD * 0.999 / sessions
    turns = 0
    numbered = zip(range(sessions), itertools.cycle(templates))
    while batch := list(itertools.islice(numbered, BATCH)):
        copies = []
        for number, template in batch:
            copy = template.make(begun + number * step, shelf)
            shelf.committed(copy.payloads)
            copies.append(copy)
            turns += template.turns
        connection.execute("BEGIN")
        _insert(connection, templates[0], copies)
        connection.execute("COMMIT")
    return turns


def _insert(connection: sqlite3.Connection, template: Template, copies: Sequence[Copy]) -> None:
    """The rows of many conversations, table by table."""
    for place, name in enumerate(TABLES):
        columns = template.tables[place].columns
        marks = ", ".join("?" * len(columns))
        rows = [row for copy in copies for row in copy.rows[place]]
        connection.executemany(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", rows)
    connection.executemany(INSERT_PAYLOAD, [row for copy in copies for row in copy.payloads])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.fill", description=__doc__)
    parser.add_argument("store", type=Path, help="the file to make")
    parser.add_argument("--turns", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=10_000)
    chosen = parser.parse_args()
    begun = time.monotonic()
    turns = fill(chosen.store, turns=chosen.turns, sessions=chosen.sessions)
    size, took = chosen.store.stat().st_size / 1e6, time.monotonic() - begun
    print(f"{turns:,} turns in {chosen.sessions:,} sessions: {size:,.0f} MB, {took:.0f} s")


if __name__ == "__main__":
    main()
