"""Payloads hold their hash as sixteen bytes: in the rows, and in the index that finds them.

The table is made anew, in the order of its rows; all of it or nothing.
"""

from __future__ import annotations

from typing import Any

TABLE = """CREATE TABLE payloads (
        hash BLOB NOT NULL PRIMARY KEY, size INTEGER NOT NULL, codec TEXT NOT NULL,
        data BLOB NOT NULL
    )"""
BATCH = 5_000


def up(migrator: Any, db: Any) -> None:
    db.connection().create_function("packed", 1, _packed, deterministic=True)
    db.execute_sql("ALTER TABLE payloads RENAME TO payloads_before")
    db.execute_sql(TABLE)
    last = db.execute_sql("SELECT max(rowid) FROM payloads_before").fetchone()[0] or 0
    for start in range(0, last, BATCH):
        db.execute_sql(
            "INSERT INTO payloads SELECT packed(hash), size, codec, data FROM payloads_before"
            " WHERE rowid > ? AND rowid <= ? ORDER BY rowid",
            (start, start + BATCH),
        )
    db.execute_sql("DROP TABLE payloads_before")


def _packed(hash: Any) -> Any:
    """The bytes that the digits spell; anything else stays as it is."""
    try:
        found = bytes.fromhex(hash)
    except (TypeError, ValueError):
        return hash
    return found if len(found) == 16 and found.hex() == hash else hash
