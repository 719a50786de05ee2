"""A large store, quickly: conversations that xgw recorded, written again and again.

`python -m bench.fill STORE [--turns N] [--sessions N] [--skewed]` makes a new store of the size
asked for, its conversations spread over the last thirty days. Rows, bodies and events are those
that the product writes; ids, times and numbers are new, so that nothing is there twice.

`--skewed`: most sessions are short, some have thousands of turns, a few are under way, and of the
bodies only every twentieth is new: more like life, and quicker.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.scripts import LONG, SCRIPTS, Script, record
from bench.setting import upstream
from bench.templates import TABLES, Copy, Template, packed
from xgw import clock
from xgw.store.database import Store
from xgw.store.digits import packed_hash
from xgw.store.migrations import migrate
from xgw.store.payloads import Shelf

SPREAD = datetime.timedelta(days=30)
INSERT_PAYLOAD = "INSERT OR IGNORE INTO payloads (hash, size, codec, data) VALUES (?, ?, ?, ?)"
BATCH = 200
"""Conversations a transaction."""

FAST = (
    "locking_mode = exclusive",
    "journal_mode = off",
    "synchronous = off",
    "foreign_keys = 0",
    "cache_size = -400000",
)
"""A store that is only half made is of no use to anybody: nothing guards it, nobody reads it."""


UNDER_WAY = 40
"""Of a skewed store, the newest sessions: their last turn goes on, or waits for its client."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Conversations of one length: their `share` of the sessions, and `times` the mean length."""

    share: float
    times: float
    scripts: tuple[Script, ...] = SCRIPTS


@dataclass(frozen=True, slots=True)
class Mix:
    """What a store is made of; every `anew`th copy of a conversation has bodies of its own."""

    kinds: tuple[Kind, ...]
    anew: int = 1
    under_way: int = 0


EVEN = Mix((Kind(1, 1),))
SKEWED = Mix(
    (
        Kind(0.70, 0.34),
        Kind(0.20, 1),
        Kind(0.09, 4),
        Kind(0.0098, 17, (LONG,)),
        Kind(0.0002, 200, (LONG,)),
    ),
    anew=20,
    under_way=UNDER_WAY,
)


def fill(path: Path, *, turns: int, sessions: int, mix: Mix = EVEN) -> int:
    """Make a new store at `path`; how many turns it has.

    Each of the `sessions` stands for `turns // sessions` turns, in a skewed one in the mean: all
    but one in it, that one on its own. SystemExit if there is a store already, or a session would
    have no turn.
    """
    each = turns // sessions
    if each < 2:
        raise SystemExit("bench: at least two turns a session are needed")
    if path.exists():
        raise SystemExit(f"bench: {path} is there already")
    store = Store(path)
    migrate(store)
    with _unindexed(path) as connection:
        written = _write(connection, _planned(_templates(each - 1, mix), mix, sessions), mix)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        _leave_under_way(connection, mix.under_way)
    return written


def _templates(mean: int, mix: Mix) -> list[list[Template]]:
    """Those of each kind."""
    wanted = [
        (script, max(1, round(mean * kind.times))) for kind in mix.kinds for script in kind.scripts
    ]
    with tempfile.TemporaryDirectory(prefix="xgw-bench-") as folder, upstream() as port:
        path, scripts = record(Path(folder), port, wanted)
        store = Store(path)
        templates = iter([Template(store, script) for script in scripts])
        store.close()
    return [list(itertools.islice(templates, len(kind.scripts))) for kind in mix.kinds]


def _planned(templates: list[list[Template]], mix: Mix, sessions: int) -> list[Template]:
    """The template of each session, in the order of their beginning."""
    planned: list[Template] = []
    for kind, of_kind in reversed(list(zip(mix.kinds, templates, strict=True))):
        count = sessions - len(planned)
        if kind is not mix.kinds[0]:
            count = min(count, max(1, round(kind.share * sessions)))
        planned += itertools.islice(itertools.cycle(of_kind), count)
    if len(mix.kinds) > 1:
        random.Random(1).shuffle(planned)
    return planned


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


def _write(connection: sqlite3.Connection, planned: Sequence[Template], mix: Mix) -> int:
    shelf, made = Shelf(), dict.fromkeys(planned, 0)
    now = clock.now()
    step = SPREAD * 0.999 / len(planned)
    numbered = enumerate(planned)
    while batch := list(itertools.islice(numbered, BATCH)):
        copies = []
        for number, template in batch:
            begun = min(now - SPREAD + number * step, now - template.lasts)
            copy = template.make(begun, shelf, anew=made[template] % mix.anew == 0)
            made[template] += 1
            shelf.committed(copy.payloads)
            copies.append(copy)
        connection.execute("BEGIN")
        _insert(connection, planned[0], copies)
        connection.execute("COMMIT")
    return sum(count * template.turns for template, count in made.items())


def _leave_under_way(connection: sqlite3.Connection, count: int) -> None:
    """The last turn of the newest sessions has not ended; every other waits for its client."""
    by_activity = "SELECT id FROM sessions ORDER BY COALESCE(last_turn_at, created_at) DESC LIMIT ?"
    newest = connection.execute(by_activity, (count,)).fetchall()
    last = "SELECT id FROM turns WHERE session_id = ? ORDER BY turn_index DESC LIMIT 1"
    for number, (session,) in enumerate(newest):
        (turn,) = connection.execute(last, (session,)).fetchone()
        status = "waiting_tool" if number % 2 else "running"
        for change, values in (
            ("UPDATE sessions SET active_turn_id = ? WHERE id = ?", (turn, session)),
            (f"UPDATE turns SET status = 'running', {_OPEN} WHERE id = ?", (turn,)),
            (f"UPDATE runs SET status = ?, {_OPEN} WHERE turn_id = ?", (status, turn)),
            (
                "UPDATE steps SET status = 'running', ended_at = NULL, latency_ms = NULL"
                " WHERE id = (SELECT id FROM steps WHERE turn_id = ?"
                " ORDER BY step_index DESC LIMIT 1)",
                (turn,),
            ),
        ):
            connection.execute(change, values)


def _insert(connection: sqlite3.Connection, template: Template, copies: Sequence[Copy]) -> None:
    """The rows of many conversations, table by table."""
    for place, name in enumerate(TABLES):
        columns = template.tables[place].columns
        marks = ", ".join("?" * len(columns))
        rows = [row for copy in copies for row in copy.rows[place]]
        if name == "events":
            rows = [packed(columns, row) for row in rows]
        connection.executemany(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", rows)
    payloads = [row for copy in copies for row in copy.payloads]
    connection.executemany(INSERT_PAYLOAD, [(packed_hash(key), *row) for key, *row in payloads])


_OPEN = "ended_at = NULL, ended_by = NULL, error_type = NULL, latency_ms = NULL"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.fill", description=__doc__)
    parser.add_argument("store", type=Path, help="the file to make")
    parser.add_argument("--turns", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--skewed", action="store_true", help="more like life, and quicker")
    chosen = parser.parse_args()
    begun = time.monotonic()
    mix = SKEWED if chosen.skewed else EVEN
    turns = fill(chosen.store, turns=chosen.turns, sessions=chosen.sessions, mix=mix)
    size, took = chosen.store.stat().st_size / 1e6, time.monotonic() - begun
    print(f"{turns:,} turns in {chosen.sessions:,} sessions: {size:,.0f} MB, {took:.0f} s")


if __name__ == "__main__":
    main()
