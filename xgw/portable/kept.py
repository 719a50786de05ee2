"""What an imported store has beside its rows: the bundle's head, and what was left out of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
import peewee

from xgw.store.database import Store

HEAD, LEFT_OUT, SIZES = "bundle", "bundle_left_out", "bundle_sizes"
"""Tables: what stands before and behind the rows; originals of columns; bodies left out."""

_TABLES = (
    f"CREATE TABLE {HEAD} (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    f"CREATE TABLE {LEFT_OUT} (rows TEXT, id, columns TEXT NOT NULL, PRIMARY KEY (rows, id))"
    " WITHOUT ROWID",
    f"CREATE TABLE {SIZES} (place INTEGER PRIMARY KEY, hash TEXT UNIQUE, size INTEGER NOT NULL)",
)

Json = dict[str, Any]


def create(connection: sqlite3.Connection) -> None:
    """Make the tables in a new store."""
    for statement in _TABLES:
        connection.execute(statement)


def write_head(connection: sqlite3.Connection, values: Mapping[str, Any]) -> None:
    """Fields of the head."""
    rows = [(name, orjson.dumps(value).decode()) for name, value in values.items()]
    connection.executemany(f"INSERT OR REPLACE INTO {HEAD} VALUES (?, ?)", rows)


def write_originals(
    connection: sqlite3.Connection, rows: Iterable[tuple[str, str | int, Json]]
) -> None:
    """What the bundle had in the columns of these rows: table, id or seq, and values by column."""
    told = [(table, id, orjson.dumps(values).decode()) for table, id, values in rows]
    connection.executemany(f"INSERT INTO {LEFT_OUT} VALUES (?, ?, ?)", told)


def write_size(connection: sqlite3.Connection, hash: str, size: int) -> None:
    """A body that was left out."""
    insert = f"INSERT OR IGNORE INTO {SIZES} (hash, size) VALUES (?, ?)"
    connection.execute(insert, (hash, size))


def read_head(store: Store) -> Json | None:
    """The head of the bundle that a store was made from; None for any other store."""
    try:
        rows = store.sql(f"SELECT name, value FROM {HEAD}")
    except peewee.OperationalError:
        return None
    return {name: orjson.loads(value) for name, value in rows}


def read_originals(store: Store, table: str, row: Mapping[str, Any]) -> Json:
    """What the bundle had in the columns of a row where words stand instead, if there are any."""
    key = row["seq" if table == "events" else "id"]
    query = f"SELECT columns FROM {LEFT_OUT} WHERE rows = ? AND id = ?"
    found: Json = {}
    for (columns,) in store.sql(query, (table, key)):
        found = orjson.loads(columns)
    return found


def placeholders(head: Json) -> list[str]:
    """Those that stand in a bundle with this head, as its report tells them."""
    return [one["placeholder"] for one in head["redaction"]["masked"]]


def read_sizes(store: Store) -> Iterator[Json]:
    """All bodies that were left out of the bundle, in their order there."""
    place = 0
    following = f"SELECT place, hash, size FROM {SIZES} WHERE place > ? ORDER BY place LIMIT 1000"
    while rows := store.sql(following, (place,)):
        yield from ({"hash": hash, "size": size} for _, hash, size in rows)
        place = rows[-1][0]


def read_size(store: Store, hash: str) -> int | None:
    """The size of a body that was left out of the bundle; None if it was not."""
    try:
        rows = store.sql(f"SELECT size FROM {SIZES} WHERE hash = ?", (hash,))
    except peewee.OperationalError:
        return None
    return rows[0][0] if rows else None
