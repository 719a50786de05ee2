"""Checks of the store: whether it is there, sound, of this version, and whole. They only read."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from xgw import spelling
from xgw.queries.wording import counted
from xgw.recording import owner
from xgw.store import migrations
from xgw.store.database import Store
from xgw.store.migrations import HISTORY, KEPT, is_taken_over, old_tables
from xgw.upkeep.findings import Finding, fine, note, wrong
from xgw.upkeep.marks import Marks
from xgw.upkeep.references import TABLES

MOST = 5
LITTLE_ROOM = 200_000_000
PRUNE_ROOM = 40_000_000
"""What pruning itself needs at most: the log of what is written, and what is copied from it."""

PRUNE = "make room: `xgw prune --bodies-older-than 30d --vacuum`"
TIGHT = (
    "free some 40 MB by other means, for pruning needs room itself; "
    "then `xgw prune --bodies-older-than 30d --vacuum`"
)

FULL = "free some of the disk, 64 KiB to read the store and some 40 MB to prune it"
"""What SQLite says of a full disk differs: it needs room for its index of the log."""

READ_ROOM = 64 << 10
BUSY = "nothing says that the file is damaged: see what else uses it, and try again"
CLOSED = "give the user that runs xgw the right to read it, and to enter its folder"
DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

RESTORE = "move it away and put a backup in its place; `xgw serve` begins a new one otherwise"

OPEN_TURNS = (
    "SELECT t.id, r.status, r.owner FROM turns t LEFT JOIN runs r ON r.turn_id = t.id AND "
    "r.run_index = (SELECT MAX(run_index) FROM runs WHERE turn_id = t.id) "
    "WHERE t.status IN ('queued', 'running') ORDER BY t.id"
)
_MISSING = "NOT EXISTS (SELECT 1 FROM payloads p WHERE p.hash = packed_hash(COALESCE({}, '')))"
_BROKEN = (
    "SELECT lower(hex(q.hash)) FROM payloads q WHERE q.codec IN ('parts', 'list', 'stream') AND "
    "EXISTS (SELECT 1 FROM json_each(reference_list(q.codec, q.data)) e "
    f"WHERE {_MISSING.format('e.value')}) LIMIT {MOST + 1}"
)

Check = Callable[[Store, sqlite3.Connection], Iterator[Finding]]


def check(store: Store) -> Iterator[Finding]:
    """Everything about the store, the first thing that is in the way of the rest last."""
    path = store.path
    try:
        if not path.exists():
            yield wrong("store", f"there is no store {path} yet", "`xgw serve` creates it")
            return
        if not path.is_file():
            yield wrong("store", f"{path} is no file", "name another with --db PATH")
            return
        size = spelling.size(store.size_bytes())
        with contextlib.closing(store.open_reader()) as database:
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
            yield fine("store", f"{path}, {size}")
            yield from _room(store)
            yield from _integrity(database)
            schema = _schema(database, tables)
            yield schema
            if schema.standing == "fine":
                for one in (_foreign_keys, _references, _orphans, _open_turns):
                    yield from _guarded(one, store, database)
    except (sqlite3.Error, OSError) as error:
        yield wrong("store", f"{path} cannot be read as a store: {error}", _advice(path, error))


def _guarded(one: Check, store: Store, database: sqlite3.Connection) -> Iterator[Finding]:
    """A check that fails is a finding too, and the others go on."""
    try:
        yield from one(store, database)
    except (sqlite3.Error, ValueError) as error:
        name = one.__name__.strip("_")
        yield wrong(name, f"it cannot be checked: {error}", _advice(store.path, error))


def _advice(path: Path, error: Exception) -> str:
    """What to do where the store cannot be read: it is put away only if it is damaged."""
    if _is_damage(error):
        return RESTORE
    if not can_be_read(path):
        return CLOSED
    return FULL if shutil.disk_usage(path.parent).free < READ_ROOM else BUSY


def _is_damage(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED


def _room(store: Store) -> Iterator[Finding]:
    if closed := _closed(store.path):
        words = f"{closed} cannot be written: nothing is recorded"
        yield wrong("writing", words, "give the user that runs xgw the right to write there")
    free = shutil.disk_usage(store.path.parent).free
    if free < LITTLE_ROOM:
        words = f"{spelling.size(free)} are free on the disk: without room nothing is recorded"
        yield wrong("disk", words, TIGHT if free < PRUNE_ROOM else PRUNE)
    else:
        yield fine("disk", f"{spelling.size(free)} free")


def can_be_read(path: Path) -> bool:
    """Whether its rights let this process read a file."""
    try:
        os.close(os.open(path, os.O_RDONLY))
    except PermissionError:
        return False
    except OSError:
        pass  # something else is wrong with it
    return True


def _closed(path: Path) -> Path | None:
    """The file or its folder, if it cannot be written."""
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError:
        return path
    return None if os.access(path.parent, os.W_OK) else path.parent


def _integrity(database: sqlite3.Connection) -> Iterator[Finding]:
    try:
        found = [row[0] for row in database.execute(f"PRAGMA integrity_check({MOST})")]
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        found = [str(error)]
    if found == ["ok"]:
        yield fine("integrity", "SQLite finds the file sound")
    else:
        words = f"SQLite finds the file damaged: {'; '.join(' '.join(found).split('*** '))}"
        yield wrong("integrity", words.strip(), RESTORE)


def _schema(database: sqlite3.Connection, tables: set[str]) -> Finding:
    """Whether the tables are those that this xgw knows."""
    if old_tables(database):
        advice = "`xgw migrate` takes them over; or use another store (--db PATH)"
        return wrong("schema", "there are tables of an older program", advice)
    if old_tables(database, KEPT) and not is_taken_over(database):
        advice = "`xgw migrate` goes on where it was"
        return wrong("schema", "the tables of an older program are not all taken over yet", advice)
    if HISTORY not in tables:
        return wrong("schema", "it is no store of xgw", "name another with --db PATH")
    known = {path.stem for path in migrations.DIRECTORY.glob("[0-9]*.py")}
    applied = {row[0] for row in database.execute(f"SELECT name FROM {HISTORY}")}
    if newer := sorted(applied - known):
        words = f"a newer xgw has written it (schema {newer[-1]})"
        return wrong("schema", words, "upgrade xgw, or use another store")
    if older := sorted(known - applied):
        words = f"an older xgw has written it ({older[0]} and later are to be applied)"
        return note("schema", words, "`xgw migrate` brings it forward, and so does `xgw serve`")
    return fine("schema", f"of this version ({max(applied)})")


def _foreign_keys(_: Store, database: sqlite3.Connection) -> Iterator[Finding]:
    found = database.execute('SELECT "table", parent FROM pragma_foreign_key_check').fetchall()
    if not found:
        yield fine("foreign keys", "every row belongs to one that is there")
        return
    kinds = sorted({f"{table} without {parent}" for table, parent in found})
    words = f"{_which(len(found), 'row', 'belongs', 'belong')} to nothing: {', '.join(kinds)}"
    advice = "xgw never leaves such: whatever else writes to the file should stop; " + RESTORE
    yield wrong("foreign keys", words, advice)


def _references(_: Store, database: sqlite3.Connection) -> Iterator[Finding]:
    missing = []
    for table, at in TABLES.items():
        named = [
            (column, f"r.{column}", f"r.{column} IS NOT NULL") for column in at.bodies + at.others
        ]
        named += [(c, f"substr(r.{c}, 2)", f"substr(r.{c}, 1, 1) = char(31)") for c in at.names]
        for column, hash, is_there in named:
            text = (
                f"SELECT r.id FROM {table} r WHERE {is_there} AND {_MISSING.format(hash)} LIMIT ?"
            )
            rows = database.execute(text, (MOST + 1,))
            missing += [f"{column} of {id}" for (id,) in rows]
    missing += [f"payload {hash}" for (hash,) in database.execute(_BROKEN)]
    if not missing:
        yield fine("payloads", "every body that is referred to is there, or known to be pruned")
        return
    more = ", and more" if len(missing) > MOST else ""
    words = f"bodies are missing: {', '.join(missing[:MOST])}{more}"
    yield wrong("payloads", words, "they are shown as not in the store; a backup may have them")


def _orphans(store: Store, database: sqlite3.Connection) -> Iterator[Finding]:
    count = size = 0
    with Marks(store, lambda: None) as marks:
        marks.mark_referenced()
        for some in marks.unmarked():
            count, size = count + len(some), size + sum(taken for _, taken in some)
    if not count:
        yield fine("orphans", "nothing lies there that nothing refers to")
        return
    words = f"{counted(count, 'payload')} ({spelling.size(size)}) that nothing refers to"
    deletions = database.execute("PRAGMA user_version").fetchone()[0]
    advice = "the server deletes them by and by" if deletions else "the next `xgw prune` takes them"
    yield note("orphans", words, advice)


def _open_turns(_: Store, database: sqlite3.Connection) -> Iterator[Finding]:
    rows = database.execute(OPEN_TURNS).fetchall()
    lost = [id for id, status, owned in rows if status == "running" and not owner.is_alive(owned)]
    waiting = [id for id, status, _ in rows if status in ("waiting_tool", "paused")]
    if lost:
        words = f"{_which(len(lost), 'open turn', 'is', 'are')} nobody's any more: {_some(lost)}"
        advice = "`xgw serve` ends them when it starts; `xgw cancel TURN` ends one"
        yield wrong("turns", words, advice)
    if waiting:
        words = f"{_which(len(waiting), 'turn', 'waits', 'wait')} for a person or a client"
        words += f": {_some(waiting)}"
        yield note("turns", words, "`xgw show TURN` says for what")
    under_way = len(rows) - len(lost) - len(waiting)
    if under_way or not rows:
        yield fine("turns", f"{under_way} under way")


def _which(count: int, noun: str, does: str, do: str) -> str:
    """So many things that do something; `does` is of one alone."""
    return f"{counted(count, noun)} {does if count == 1 else do}"


def _some(ids: list[str]) -> str:
    return ", ".join(ids[:MOST]) + (", …" if len(ids) > MOST else "")
