"""A bundle becomes a store of its own."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import orjson

from xgw import clock
from xgw.events import Envelope
from xgw.portable import kept
from xgw.portable.arriving import Arrived, arrive, is_hash
from xgw.portable.bodies import LISTED_FROM
from xgw.portable.contents import Contents
from xgw.portable.heads import checked_head
from xgw.portable.naming import id_of
from xgw.portable.parsing import FIELDS, MARK, PAYLOADS, TABLES, read_pieces
from xgw.portable.refusal import BadBundle
from xgw.portable.unpacking import Unpacked
from xgw.portable.versions import VERSIONS, Versions
from xgw.queries.payloads import COLUMNS as OF_PAYLOADS
from xgw.recording.adopt import Twice, copy, copy_event
from xgw.store import payloads
from xgw.store.database import Store
from xgw.store.migrations import migrate
from xgw.store.payloads import PayloadRow, Shelf
from xgw.store.transaction import Transaction

ROWS_AT_ONCE = 1000
BYTES_AT_ONCE = 4 << 20
MOST_AGENTS = 16 << 20
"""Bytes of all definitions of agents together."""

LONGEST_NAME = 255

Json = dict[str, Any]


def take_in(
    file: IO[bytes], name: str, target: Path, versions: Versions = VERSIONS
) -> tuple[str, Json]:
    """Make the store `target` of a bundle; its hash, and its head as the store has it.

    BadBundle for anything else than a bundle. `target` is a new file, to be removed by the caller
    where this fails; `name` is what the bundle's file is called.
    """
    unpacked = Unpacked(file)
    target.write_bytes(_blank())
    store = Store(target)
    try:
        with contextlib.closing(store.open_writer(5000)) as connection:
            for pragma in ("synchronous = off", "foreign_keys = off"):
                connection.execute(f"PRAGMA {pragma}")
            kept.create(connection)
            head = _written(connection, store, unpacked, versions)
            head["imported"] = {
                "at": clock.to_rfc3339(clock.now()),
                "file": name[:LONGEST_NAME],
                "id": id_of(unpacked.hash),
            }
            kept.write_head(connection, head)
            _refuse_dangling(connection)
            store.close()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode = delete")
    except Twice as error:
        raise BadBundle(f"the bundle has two rows with the same {error}.id") from None
    except sqlite3.IntegrityError as error:
        raise BadBundle(_twice(error)) from None
    finally:
        store.close()
    _to_disk(target)
    return unpacked.hash, head


@functools.cache
def _blank() -> bytes:
    """A store without rows, with the present schema."""
    with tempfile.TemporaryDirectory(prefix="xgw-") as folder:
        store = Store(Path(folder) / "blank.db")
        migrate(store, backup=False)
        return store.path.read_bytes()


def _to_disk(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _twice(error: sqlite3.IntegrityError) -> str:
    columns = str(error).removeprefix("UNIQUE constraint failed: ")
    return f"the bundle has two rows with the same {columns}"


def _refuse_dangling(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA foreign_key_check").fetchone()
    if found is not None:
        raise BadBundle(f"the bundle has a row of {found[0]} that stands in none of its {found[2]}")


class _Batch:
    """Transactions over many rows each."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._size = 0.0
        self.transaction = self._begin()

    def _begin(self) -> Transaction:
        self._connection.execute("BEGIN")
        return Transaction(self._connection)

    def count(self, size: float) -> bool:
        """So much was added, 1 is a batch; whether it was committed now."""
        self._size = self._size + size if size < 1 else 1.0
        if self._size < 1:
            return False
        self.commit()
        self.transaction = self._begin()
        self._size = 0
        return True

    def commit(self) -> None:
        """Write what there is."""
        self.transaction.write()
        self._connection.execute("COMMIT")


def _written(
    connection: sqlite3.Connection, store: Store, file: Unpacked, versions: Versions
) -> Json:
    """All rows and bodies; returns the head."""
    arrival = _Arrival(connection, store, file)
    head: Json = {"agents": []}
    told = 0
    with contextlib.closing(arrival.contents):
        for name, value in read_pieces(file, versions):
            if name in FIELDS:
                head[name] = value
            elif name == "agents":
                head["agents"].append(_agent(value, len(head["agents"])))
                told += len(orjson.dumps(value))
                if told > MOST_AGENTS:
                    raise BadBundle(f"the agents of the bundle are over {MOST_AGENTS >> 20} MiB")
            elif name == PAYLOADS:
                arrival.body(value)
            else:
                arrival.row(name, value)
        arrival.end()
    return {MARK: versions.current, **checked_head(head), "counts": arrival.counts}


class _Arrival:
    """What has arrived of one bundle."""

    def __init__(self, connection: sqlite3.Connection, store: Store, file: Unpacked) -> None:
        self.contents = Contents(file, self._stored)
        self.counts = dict.fromkeys(TABLES, 0)
        self._bodies = 0
        self._connection = connection
        self._store = store
        self._shelf = Shelf()
        self._batch = _Batch(connection)

    def row(self, table: str, value: Any) -> None:
        """A row of a table; bodies come behind the rows that name them."""
        if self._bodies:
            raise BadBundle(f"the bundle has {table} behind its payloads")
        arrived = arrive(table, value, self.counts[table])
        self.counts[table] += 1
        for key in _named(table, arrived):
            self.contents.name(key)
        if arrived.originals:
            key = arrived.row["seq" if table == "events" else "id"]
            kept.write_originals(self._connection, [(table, key, arrived.originals)])
        if table == "events":
            copy_event(self._batch.transaction, Envelope(**arrived.row))
        else:
            copy(self._batch.transaction, table, arrived.row)
        self._batch.count(1 / ROWS_AT_ONCE)

    def body(self, value: Any) -> None:
        """A body."""
        key, size, content = self.contents.read(value, self._bodies)
        self._bodies += 1
        if content is None:
            kept.write_size(self._connection, key, size)
        elif self.contents.is_named(key):
            rows = self._shelved(value, content)
            self._batch.transaction.insert_payloads(rows)
            self._shelf.committed(rows)
        self._batch.count(1 / ROWS_AT_ONCE + size / BYTES_AT_ONCE)

    def _shelved(self, value: Any, content: bytes) -> Sequence[PayloadRow]:
        """The rows of a body: apart in its messages where it was, or is short enough to be it."""
        is_apart = "parts" in value or len(content) < LISTED_FROM
        keep = self._shelf.request if is_apart else self._shelf.whole
        return keep(content).rows

    def end(self) -> None:
        """That was all."""
        self._batch.commit()

    def _stored(self, key: str) -> bytes | None:
        self._batch.count(1)
        return payloads.find_many(self._store, [key]).get(key)


def _named(table: str, arrived: Arrived) -> Iterator[str]:
    """The bodies that a row names."""
    for name in OF_PAYLOADS:
        if key := arrived.row.get(name):
            yield key
    if table == "messages":
        yield from _in_parts(arrived.row["parts"])


def _in_parts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if is_hash(value.get("payload")):
            yield value["payload"]
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _in_parts(inner)


def _agent(value: Any, place: int) -> Json:
    is_one = isinstance(value, dict) and isinstance(value.get("name"), str)
    if not is_one or not isinstance(value.get("definition"), dict | None):
        raise BadBundle(f"agents[{place}] is no agent")
    agent: Json = value
    return agent
