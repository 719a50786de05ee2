"""The tables of an older program, `legacy_*`, that a migration in place has left in the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import peewee

from xgw.errors import WorkError
from xgw.frozen import frozen
from xgw.store.database import Store
from xgw.store.migrations import KEPT, is_taken_over, old_tables
from xgw.store.transaction import Transaction
from xgw.store.writer import Work

AT_ONCE = 2000
NAMES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'legacy_*' ORDER BY name"


@frozen
class OlderTable:
    """A table with its rows; `bytes` is None where SQLite cannot tell."""

    name: str
    rows: int
    bytes: int | None


def refuse_unfinished(store: Store) -> None:
    """WorkError while not everything in them was taken over."""
    with store.reading() as database:
        connection = database.connection()  # type: ignore[no-untyped-call]
        if old_tables(connection, KEPT) and not is_taken_over(connection):
            raise WorkError(
                f"the older tables in {store.path} are not all taken over yet: "
                "`xgw migrate` goes on where it was"
            )


def find(store: Store) -> list[OlderTable]:
    """Those that there are, in an order in which they can be dropped."""
    names = [row[0] for row in store.sql(NAMES)]
    return [
        OlderTable(name, _count(store, name), _bytes(store, name)) for name in _sorted(store, names)
    ]


def drop(name: str) -> Iterator[Work]:
    """Units of work that take a table away bit by bit, one after the other."""
    left = [True]

    def delete_some(tx: Transaction) -> None:
        table, key = _quoted(name), _key(tx, name)
        some = f"SELECT {key} FROM {table} LIMIT {AT_ONCE}"
        left[0] = tx.execute(f"DELETE FROM {table} WHERE ({key}) IN ({some})").rowcount > 0

    def drop_all(tx: Transaction) -> None:
        tx.execute(f"DROP TABLE IF EXISTS {_quoted(name)}")

    while left[0]:
        yield delete_some
    yield drop_all


def _key(tx: Transaction, name: str) -> str:
    """What its rows are told apart by: the rowid, or the key of a table made WITHOUT ROWID."""
    try:
        tx.execute(f"SELECT rowid FROM {_quoted(name)} LIMIT 0")
    except sqlite3.OperationalError:
        columns = tx.execute(f"PRAGMA table_info({_quoted(name)})").fetchall()
        return ", ".join(_quoted(column[1]) for column in columns if column[5])
    return "rowid"


def _sorted(store: Store, names: list[str]) -> list[str]:
    """Tables that refer to others before these."""
    refers = {
        name: {row[2] for row in store.sql(f"PRAGMA foreign_key_list({_quoted(name)})")}
        for name in names
    }
    ordered: list[str] = []
    left = list(names)
    while left:
        free = [n for n in left if not any(n in refers[other] for other in left if other != n)]
        # Tables that refer to each other: any order is as good.
        some = free or left
        ordered += some
        left = [name for name in left if name not in some]
    return ordered


def _count(store: Store, name: str) -> int:
    return int(store.sql(f"SELECT COUNT(*) FROM {_quoted(name)}")[0][0])


def _bytes(store: Store, name: str) -> int | None:
    """Of the table and its indexes; not every SQLite has the table that tells."""
    text = (
        "SELECT SUM(pgsize) FROM dbstat WHERE name IN "
        "(SELECT name FROM sqlite_master WHERE tbl_name = ?)"
    )
    try:
        found: int | None = store.sql(text, (name,))[0][0]
    except peewee.OperationalError:
        return None
    return found


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
