"""Which session an older message belongs to, as SQLite itself compares the two columns."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from xgw.errors import UsageError
from xgw.frozen import frozen

ROWIDS = ("rowid", "_rowid_", "oid")

Rowid = int | float | str
"""What a row is read by: of a table without rowids its primary key."""


@frozen
class Found:
    """An older table in the file: its name there, and that of its rowid.

    `is_keyed`: it has none (`WITHOUT ROWID`), and the column that is its primary key stands for it.
    """

    name: str
    rowid: str
    is_keyed: bool = False


@frozen
class Belonging:
    """SQL that leads from sessions to their messages `t`, each of which has one session at most.

    `owner` is the rowid of the session in `joined`; `orphaned` holds for messages without one.
    """

    joined: str
    owner: str
    orphaned: str


def find(connection: sqlite3.Connection, name: str, columns: Sequence[str]) -> Found:
    """The table of this name. UsageError for one whose rows have nothing to read them by."""
    used = {column.lower() for column in columns}
    [(kind,)] = connection.execute(
        "SELECT type FROM main.sqlite_master WHERE name = ? COLLATE NOCASE", (name,)
    ).fetchall()
    rowid = next((one for one in ROWIDS if one not in used), None)
    if kind == "table" and rowid is not None:
        try:
            connection.execute(f"SELECT {rowid} FROM main.{name} LIMIT 0")
            return Found(name, rowid)
        except sqlite3.OperationalError as error:
            if "no such column" not in str(error):
                raise
        rows = connection.execute(f"PRAGMA main.table_info({name})").fetchall()
        keys = [row[1].replace('"', '""') for row in rows if row[5]]
        if len(keys) == 1:
            return Found(name, f'"{keys[0]}"', is_keyed=True)
    raise UsageError(
        f"the rows of {name} have neither rowid nor a key of one column, by which they are read "
        "(a view, or a table made WITHOUT ROWID): copy them into an ordinary table of that name"
    )


def lead(
    connection: sqlite3.Connection, sessions: Found | None, messages: Found, owner: str
) -> Belonging:
    """How messages are found: by an index on them, or by a table of this connection's own."""
    if sessions is None:
        return Belonging(f"main.{messages.name} t", "NULL", "1")
    of, said = f"main.{sessions.name} s", f"main.{messages.name} t"
    same = f"s.id = t.{owner}"
    if _is_alike(connection, sessions.name, messages.name, owner) and is_unique(
        connection, sessions.name
    ):
        joined = f"{of} CROSS JOIN {said} ON {same}"
        plan = connection.execute(f"EXPLAIN QUERY PLAN SELECT 1 FROM {joined}").fetchall()
        if any(step[3].startswith("SEARCH t USING") and "AUTO" not in step[3] for step in plan):
            missing = f"NOT EXISTS (SELECT 1 FROM {of} WHERE {same})"
            return Belonging(joined, f"s.{sessions.rowid}", missing)
    led, child = f"temp.{messages.name}_led", f"t.{messages.rowid}"
    connection.execute(
        f"CREATE TEMP TABLE {messages.name}_led AS SELECT {child} AS child, "
        f"min(s.{sessions.rowid}) AS owner FROM {said} JOIN {of} ON {same} GROUP BY {child}"
    )
    connection.execute(f"CREATE INDEX {led}_owner ON {messages.name}_led (owner)")
    joined = f"{led} o CROSS JOIN {said} ON {child} = o.child"
    return Belonging(joined, "o.owner", f"{child} NOT IN (SELECT child FROM {led})")


def repeated(connection: sqlite3.Connection, sessions: Found | None) -> frozenset[Rowid]:
    """The rowids of sessions whose id another one before them has."""
    if sessions is None or is_unique(connection, sessions.name):
        return frozenset()
    rows = connection.execute(
        f"SELECT {sessions.rowid} FROM main.{sessions.name} WHERE id IS NOT NULL AND "
        f"{sessions.rowid} NOT IN (SELECT min({sessions.rowid}) FROM main.{sessions.name} "
        "GROUP BY id)"
    )
    return frozenset(rowid for (rowid,) in rows)


def is_unique(connection: sqlite3.Connection, name: str) -> bool:
    """Whether the table lets no id be there twice."""
    columns = connection.execute(f"PRAGMA main.table_info({name})").fetchall()
    if [column[1].lower() for column in columns if column[5]] == ["id"]:
        return True
    for index in connection.execute(f"PRAGMA main.index_list({name})").fetchall():
        quoted = index[1].replace('"', '""')
        parts = connection.execute(f'PRAGMA main.index_info("{quoted}")').fetchall()
        names = [part[2].lower() for part in parts if part[2] is not None]
        if index[2] and not index[4] and len(parts) == 1 and names == ["id"]:
            return True
    return False


def _is_alike(connection: sqlite3.Connection, sessions: str, messages: str, owner: str) -> bool:
    """Whether both columns were declared alike: else values that differ may be equal."""
    types = []
    for table, column in ((sessions, "id"), (messages, owner)):
        rows = connection.execute(f"PRAGMA main.table_info({table})").fetchall()
        types += [row[2].upper() for row in rows if row[1].lower() == column]
    return len(types) == 2 and types[0] == types[1]
