"""Indexes for what lists show: attempts that served nothing, errors of late, turns on their own."""

from __future__ import annotations

from typing import Any

STATEMENTS = (
    "CREATE INDEX turns_tried_again ON turns (session_id, attempts, llm_calls)"
    " WHERE attempts > llm_calls",
    # The status leads, so that SQLite takes this one and not the index on statuses and starts.
    "CREATE INDEX turns_failed_end ON turns (status, ended_at, project_id) WHERE status = 'error'",
    "CREATE INDEX turns_alone ON turns (COALESCE(started_at, created_at), id)"
    " WHERE session_id IS NULL",
)


def up(migrator: Any, db: Any) -> None:
    for statement in STATEMENTS:
        db.execute_sql(statement)


def down(migrator: Any, db: Any) -> None:
    for name in ("turns_tried_again", "turns_failed_end", "turns_alone"):
        db.execute_sql(f"DROP INDEX {name}")
