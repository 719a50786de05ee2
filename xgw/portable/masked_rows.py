"""Rows without secrets: which columns can hold one, and what kind of text each is."""

from __future__ import annotations

from typing import Any

from xgw.portable.redaction import Redactor
from xgw.portable.rows import COLUMNS, Row, key_of

OWN = frozenset(
    {
        "active_turn_id",
        "api_key_id",
        "at",
        "attempt_reason",
        "compacted_by_step_id",
        "config_snapshot",
        "created_at",
        "ended_at",
        "ended_by",
        "endpoint",
        "error_type",
        "exclusive_key",
        "finish_reason",
        "first_byte_at",
        "forked_from_turn_id",
        "frames",
        "from_run_id",
        "from_step_id",
        "heartbeat_at",
        "history",
        "id",
        "input_payload",
        "kind",
        "last_turn_at",
        "method",
        "mode",
        "observation_id",
        "output_payload",
        "parent_step_id",
        "parent_turn_id",
        "queued_at",
        "request_payload",
        "response_body",
        "role",
        "run_id",
        "session_id",
        "source",
        "started_at",
        "status",
        "step_id",
        "step_type",
        "token_source",
        "trace_id",
        "turn_id",
        "type",
        "updated_at",
        "usage_source",
    }
)
"""The columns that hold xgw's own words, ids, times and hashes alone."""

HEADERS = frozenset({"request_headers", "response_headers"})
"""The columns that hold headers."""


def masked(redactor: Redactor, table: str, row: Row) -> Row:
    """The row of a table without secrets."""
    if not redactor.on:
        return row
    key = str(row[key_of(table)])
    return {
        name: row[name] if name in OWN else _masked(redactor, row[name], (table, key, name))
        for name in COLUMNS[table]
    }


def _masked(redactor: Redactor, value: Any, at: tuple[str, str, str]) -> Any:
    name = at[2]
    if isinstance(value, str):
        return redactor.url(value, at) if name == "url" else redactor.text(value, at)
    if isinstance(value, dict | list):
        return redactor.headers(value, at) if name in HEADERS else redactor.value(value, at)
    return value
