"""Forks: a new session that shares the history of another one up to a turn.

Turns and messages are copied, what they refer to is shared; runs, steps and what they cost stay
with the session that they were made in. Everything here runs inside the writer's transaction and
may run again after a rollback.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from xgw import clock, ids
from xgw.errors import conflict, not_found, unprocessable
from xgw.recording.facts import SessionFacts
from xgw.recording.sessions import open_session
from xgw.store.transaction import Transaction

Row = dict[str, Any]
Shown = Mapping[str, Sequence[str]]
"""The ids of the messages that count of a turn, in order, by the turn's id."""

SHARED = ("org_id", "api_key_id", "end_user_id", "task_id", "title")
"""What a fork has from its session; agent, mode, model, metadata and budget too."""

OPEN = (
    "SELECT turn_index FROM turns WHERE session_id = ? AND turn_index <= ? "
    "AND status IN ('queued', 'running') ORDER BY turn_index LIMIT 1"
)
TURNS = "SELECT * FROM turns WHERE session_id = ? AND turn_index <= ? ORDER BY turn_index"
MESSAGES = (
    "SELECT m.* FROM messages m JOIN turns t ON t.id = m.turn_id "
    "WHERE m.session_id = ? AND t.turn_index <= ? ORDER BY t.turn_index, m.message_index"
)
COMPACTED_LATER = (
    "SELECT 1 FROM messages m WHERE m.session_id = ? AND m.compacted_by_step_id IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM steps s JOIN turns t ON t.id = s.turn_id "
    "WHERE s.id = m.compacted_by_step_id AND t.turn_index <= ?) LIMIT 1"
)
REMEMBERED_LATER = (
    "SELECT 1 FROM steps s JOIN turns t ON t.id = s.turn_id WHERE t.session_id = ? "
    "AND t.turn_index > ? AND s.step_type = 'memory_write' LIMIT 1"
)


def fork_session(
    tx: Transaction,
    session_id: str,
    turn_id: str,
    new_id: str,
    at: datetime.datetime,
    shown: Shown,
) -> None:
    """The session `new_id`, with the turns of another one up to this one.

    Of the turns in `shown` only these messages are taken over, in this order.
    `session.created` and one `session.updated` tell of it. ApiError 404, 422 for a turn of another
    session, 409 `turn_open` where one up to it is not over yet.
    """
    session = next(_rows(tx, "SELECT * FROM sessions WHERE id = ?", session_id), None)
    if session is None:
        raise not_found(f"there is no session {session_id!r}", code="session_not_found")
    index = _index_of(tx, session_id, turn_id)
    open_session(tx, _facts(session, new_id), at)
    turns = list(_rows(tx, TURNS, session_id, index))
    copies = {turn["id"]: _copy_turn(turn, new_id, at) for turn in turns}
    for copy in copies.values():
        tx.insert("turns", copy)
    keeps_summary = tx.one(COMPACTED_LATER, (session_id, index)) is None
    count = 0
    for count, message in enumerate(_chosen(_rows(tx, MESSAGES, session_id, index), shown), 1):
        turn = copies[message["turn_id"]]["id"]
        tx.insert("messages", _copy_message(message, new_id, turn, count - 1, keeps_summary))
    changed = {"turn_count": len(copies), "message_count": count, "forked_from_turn_id": turn_id}
    kept = {
        "session_summary": session["session_summary"] if keeps_summary else None,
        "working_memory": _memory(tx, session, index),
    }
    tx.change("sessions", new_id, {**changed, **kept, "last_turn_at": at})
    tx.emit("session.updated", at, session["project_id"], changed, session_id=new_id)


def _chosen(messages: Iterable[Row], shown: Shown) -> list[Row]:
    """The messages turn by turn, as they count in each."""
    by_turn: dict[str, list[Row]] = {}
    for message in messages:
        by_turn.setdefault(message["turn_id"], []).append(message)
    for turn_id, ids_in_order in shown.items():
        said = {message["id"]: message for message in by_turn.get(turn_id, ())}
        if said:
            by_turn[turn_id] = [said[id] for id in ids_in_order if id in said]
    return [message for said in by_turn.values() for message in said]


def _index_of(tx: Transaction, session_id: str, turn_id: str) -> int:
    found = tx.one("SELECT session_id, turn_index FROM turns WHERE id = ?", (turn_id,))
    if found is None or found[0] != session_id:
        raise unprocessable(f"the session has no turn {turn_id!r}", param="turn_id")
    index: int = found[1]
    still_open = tx.one(OPEN, (session_id, index))
    if still_open is not None:
        number = still_open[0] + 1
        raise conflict(f"turn {number} of the session is not over yet", code="turn_open")
    return index


def _facts(session: Row, new_id: str) -> SessionFacts:
    return SessionFacts(
        id=new_id,
        session_key=new_id,
        project_id=session["project_id"],
        source="api",
        kind=session["kind"],
        agent_name=session["agent_name"],
        mode=session["mode"],
        model=session["model"],
        metadata=_json(session["metadata"]),
        budget=_json(session["budget"]),
        **{name: session[name] for name in SHARED},
    )


def _copy_turn(turn: Row, session_id: str, at: datetime.datetime) -> Row:
    """A turn that has used nothing here: what it used is its original's."""
    turn_id, now = ids.mint("turn"), clock.to_db(at)
    unknown = (
        *("turn_key", "parent_turn_id", "exclusive_key", "usage_source", "cost_usd"),
        *("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "total_tokens"),
    )
    return {
        **turn,
        **dict.fromkeys(unknown),
        **dict.fromkeys(("llm_calls", "tool_calls", "attempts"), 0),
        "id": turn_id,
        "session_id": session_id,
        "trace_id": ids.trace_id_of(turn_id),
        "metadata": _copied(turn),
        "updated_at": now,
    }


def _copy_message(
    message: Row, session_id: str, turn_id: str, index: int, is_compacted: bool
) -> Row:
    return {
        **message,
        "id": ids.mint("msg"),
        "session_id": session_id,
        "turn_id": turn_id,
        "run_id": None,
        "step_id": None,
        "message_index": index,
        "compacted_by_step_id": message["compacted_by_step_id"] if is_compacted else None,
        "metadata": _copied(message),
    }


def _memory(tx: Transaction, session: Row, index: int) -> str | None:
    """The working memory, as its column holds it, where nothing was written to it since."""
    memory: str | None = session["working_memory"]
    if memory is None or tx.one(REMEMBERED_LATER, (session["id"], index)) is not None:
        return None
    return memory


def _copied(row: Row) -> str:
    return orjson.dumps({**(_json(row["metadata"]) or {}), "copied_from": row["id"]}).decode()


def _json(column: str | None) -> Any:
    return None if column is None else orjson.loads(column)


def _rows(tx: Transaction, statement: str, *values: Any) -> Iterator[Row]:
    """Rows as the store has them: times as numbers, JSON as text, long texts as references."""
    cursor = tx.execute(statement, values)
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, values, strict=True)) for values in cursor)
