"""What a backfill looks at: sessions with messages that have no turn, some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson

from xgw.store.database import Store
from xgw.store.payloads import find_many
from xgw.store.rows import key_named
from xgw.upkeep.backfill.grouping import Said
from xgw.upkeep.backfill.turns import Session

_WITHOUT = "FROM messages INDEXED BY messages_without_turn WHERE turn_id IS NULL"
_SESSIONS = (
    "SELECT id, project_id, task_id, agent_name, kind, turn_count, last_turn_at, "
    "coalesce(json_extract(metadata, '$.legacy.orphans'), 0), "
    "upper(json_extract(metadata, '$.legacy.status')) FROM sessions WHERE id IN"
)
_COLUMNS = (
    "session_id, id, message_index, kind, role, content, content, tool_calls, tool_call_id, "
    "metadata, created_at"
)
_TEXTS_NEEDED = ("user", "tool")


def count_sessions(store: Store, only: str | None) -> int:
    """How many sessions have messages without a turn."""
    also, values = _bound(only)
    return int(store.sql(f"SELECT count(DISTINCT session_id) {_WITHOUT}{also}", values)[0][0])


def session_ids(store: Store, behind: str, limit: int, only: str | None) -> list[str]:
    """The next of them behind this id, in the order of their ids."""
    also, values = _bound(only)
    rows = store.sql(
        f"SELECT DISTINCT session_id {_WITHOUT} AND session_id > ?{also} "
        "ORDER BY session_id LIMIT ?",
        (behind, *values, limit),
    )
    return [row[0] for row in rows]


def sessions(store: Store, ids: Sequence[str]) -> dict[str, Session]:
    """These sessions, by id."""
    rows = store.sql(f"{_SESSIONS} ({_marks(ids)})", tuple(ids))
    return {row[0]: Session(*row) for row in rows}


def messages(store: Store, ids: Sequence[str]) -> Iterator[Said]:
    """Their messages without a turn, session by session and in order.

    Those of users and tools, and what tells of an error, come with their text.
    """
    rows = store.sql(
        f"SELECT {_COLUMNS} {_WITHOUT} AND session_id IN ({_marks(ids)}) "
        "ORDER BY session_id, message_index",
        tuple(ids),
    )
    said = [*map(Said._make, rows)]
    named = {one.id: key for one in said if (key := _key_needed(one)) is not None}
    texts = find_many(store, set(named.values())) if named else {}
    for one in said:
        if one.id in named:
            literal = texts.get(named[one.id])
            one = one._replace(content=None if literal is None else orjson.loads(literal))
        yield one


def _key_needed(one: Said) -> str | None:
    is_needed = one.role in _TEXTS_NEEDED or one.kind == "error"
    return key_named(one.column) if is_needed else None


def _bound(only: str | None) -> tuple[str, tuple[str, ...]]:
    return ("", ()) if only is None else (" AND session_id = ?", (only,))


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))
