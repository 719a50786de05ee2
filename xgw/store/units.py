"""Units of work carried out: one transaction over several, committed or undone as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from xgw.events import Envelope
from xgw.frozen import frozen
from xgw.store.pins import Kept
from xgw.store.rows import PayloadRow
from xgw.store.transaction import Transaction

Work = Callable[[Transaction], None]


class Note(NamedTuple):
    """A unit of work as values alone: `kind` names what is to be done with the facts.

    `trace` is a select and its parameters, which finds a row once the unit is committed.
    """

    kind: str
    facts: tuple[Any, ...]
    trace: tuple[str, tuple[Any, ...]]


TROUBLES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)


@frozen
class Committed:
    """What a transaction came to: its events, and what is to be called now that it is committed."""

    events: Sequence[Envelope]
    hooks: Sequence[Callable[[], None]] = ()


def begin(connection: sqlite3.Connection, kept: Kept) -> Transaction:
    """An open transaction, once nobody else has one."""
    connection.execute("BEGIN IMMEDIATE")
    return Transaction(connection, kept)


def carry_out(
    transaction: Transaction, bodies: Sequence[PayloadRow], works: Iterable[Work]
) -> Committed:
    """Do these units and commit. Whatever it raises, nothing of them was committed."""
    transaction.insert_payloads(bodies)
    for work in works:
        work(transaction)
    events = transaction.write()
    transaction.execute("COMMIT")
    return Committed(events, transaction.after_commit)


def is_store_trouble(error: Exception) -> bool:
    """Whether the file, not the unit, is at fault."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return isinstance(error, sqlite3.OperationalError)
    return code & 0xFF in TROUBLES
