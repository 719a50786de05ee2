"""Events hold ids as sixteen bytes and their time as a number: most of what they took were digits.

The table is made anew, so that its rows lie close together; `seq` goes on from where it was.
Payloads stay as they were written: both spellings are read.
"""

from __future__ import annotations

import datetime
from typing import Any

PREFIXES = {"session_id": "sess_", "turn_id": "turn_", "run_id": "run_", "step_id": "step_"}
TABLE = """CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, type TEXT NOT NULL, at INTEGER NOT NULL,
        project_id TEXT NOT NULL, session_id BLOB, turn_id BLOB, run_id BLOB, step_id BLOB,
        payload BLOB NOT NULL
    )"""
INDEXES = (
    "CREATE INDEX events_session_id ON events (session_id) WHERE session_id IS NOT NULL",
    "CREATE INDEX events_turn_id ON events (turn_id)",
)
SEQUENCE = "sqlite_sequence WHERE name = 'events'"
BATCH = 20_000


def up(migrator: Any, db: Any) -> None:
    db.connection().create_function("packed", 2, _packed, deterministic=True)
    db.connection().create_function("number_of", 1, _number_of, deterministic=True)
    newest = db.execute_sql(f"SELECT seq FROM {SEQUENCE}").fetchone()
    for name in ("events_session_id_seq", "events_turn_id_seq"):
        db.execute_sql(f"DROP INDEX {name}")
    db.execute_sql("ALTER TABLE events RENAME TO events_before")
    db.execute_sql(TABLE)
    _copy(db)
    db.execute_sql("DROP TABLE events_before")
    for statement in INDEXES:
        db.execute_sql(statement)
    if newest is not None:
        db.execute_sql(f"DELETE FROM {SEQUENCE}")
        db.execute_sql("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", newest)


def _copy(db: Any) -> None:
    last = db.execute_sql("SELECT max(seq) FROM events_before").fetchone()[0] or 0
    ids = ", ".join(f"packed({column}, '{prefix}')" for column, prefix in PREFIXES.items())
    for start in range(0, last, BATCH):
        db.execute_sql(
            f"INSERT INTO events SELECT seq, type, number_of(at), project_id, {ids}, payload"
            " FROM events_before WHERE seq > ? AND seq <= ? ORDER BY seq",
            (start, start + BATCH),
        )


def _packed(id: Any, prefix: str) -> Any:
    """The sixteen bytes of a minted id; anything else stays as it is."""
    if not isinstance(id, str) or not id.startswith(prefix) or len(id) != len(prefix) + 32:
        return id
    try:
        found = bytes.fromhex(id[len(prefix) :])
    except ValueError:
        return id
    return found if found.hex() == id[len(prefix) :] else id


def _number_of(at: str) -> int:
    """Microseconds since 1970."""
    passed = datetime.datetime.fromisoformat(at) - datetime.datetime(1970, 1, 1)
    return passed // datetime.timedelta(microseconds=1)
