"""What was taken over from older stores, how far that is, and which rows could not be.

Messages without a turn have an index of their own: all of them are from before turns existed.
"""

from __future__ import annotations

from typing import Any

STATEMENTS = (
    """CREATE TABLE takeovers (
        id INTEGER NOT NULL PRIMARY KEY, source TEXT NOT NULL, state TEXT NOT NULL,
        started_at DATETIME NOT NULL, finished_at DATETIME
    )""",
    "CREATE UNIQUE INDEX takeovers_source ON takeovers (source)",
    """CREATE TABLE refusals (
        id INTEGER NOT NULL PRIMARY KEY, takeover_id INTEGER NOT NULL, old_table TEXT NOT NULL,
        row_id TEXT NOT NULL, reason TEXT NOT NULL,
        FOREIGN KEY (takeover_id) REFERENCES takeovers (id) ON DELETE CASCADE
    )""",
    "CREATE UNIQUE INDEX refusals_takeover_id_old_table_row_id"
    " ON refusals (takeover_id, old_table, row_id)",
    "CREATE INDEX messages_without_turn ON messages (session_id, message_index)"
    " WHERE turn_id IS NULL",
)


def up(migrator: Any, db: Any) -> None:
    for statement in STATEMENTS:
        db.execute_sql(statement)


def down(migrator: Any, db: Any) -> None:
    db.execute_sql("DROP INDEX messages_without_turn")
    for table in ("refusals", "takeovers"):
        db.execute_sql(f"DROP TABLE {table}")
