"""Adoption: what was finished before xgw saw it enters here, all rows of a batch at once.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

from xgw.events import Envelope
from xgw.frozen import frozen
from xgw.recording.lifecycle import ENDED
from xgw.store.rows import PayloadRow
from xgw.store.transaction import Transaction

Values = Sequence[Any]
"""A row's values in the order of its table's COLUMNS, as the store spells them."""


class Twice(ValueError):
    """Two rows have the same id; the text is their table's name."""


_NAMES = {
    "sessions": (
        "id session_key project_id end_user_id task_id kind agent_name mode model title status "
        "source metadata message_count created_at updated_at"
    ),
    "turns": (
        "id project_id session_id task_id agent_name endpoint turn_index user_input final_output "
        "final_model status ended_by error_type error_message trace_id started_at ended_at "
        "latency_ms llm_calls tool_calls metadata created_at updated_at"
    ),
    "runs": (
        "id turn_id run_index status kind error_type error_message started_at ended_at latency_ms "
        "metadata"
    ),
    "steps": (
        "id run_id turn_id session_id step_index step_type name output_payload tool_call_id "
        "status error_type error_message latency_ms trace_id observation_id started_at ended_at "
        "metadata"
    ),
    "messages": (
        "id session_id message_index kind role content tool_calls tool_call_id metadata created_at"
    ),
    "request_logs": (
        "id project_id provider_name endpoint model status_code request_payload response_body "
        "error_type error_message input_tokens output_tokens started_at ended_at latency_ms "
        "metadata"
    ),
}
COLUMNS = {table: tuple(names.split()) for table, names in _NAMES.items()}
"""The columns that adopted rows have; all others are unknown, or counters at 0."""

_STATUS = {
    table: (COLUMNS[table].index("status"), allowed)
    for table, allowed in (
        ("sessions", frozenset({"active", "archived", "closed"})),
        ("turns", ENDED),
        ("runs", ENDED),
        ("steps", ENDED),
    )
}

_LINK = (
    "UPDATE messages SET turn_id = ?, run_id = ? "
    "WHERE session_id = ? AND message_index BETWEEN ? AND ? AND turn_id IS NULL"
)
_GIVE_STEP = "UPDATE messages SET step_id = ? WHERE session_id = ? AND message_index = ?"
_ADD_TURNS = (
    "UPDATE sessions SET turn_count = turn_count + ?, "
    "last_turn_at = max(coalesce(last_turn_at, ''), ?) WHERE id = ?"
)
_PLACE_REQUEST = (
    "UPDATE request_logs SET session_id = ?, turn_id = ?, run_id = ?, trace_id = ? "
    "WHERE id = ? AND turn_id IS NULL"
)

_OF_LOGS = "FROM request_logs r WHERE r.turn_id = turns.id"
_ADD_USAGE = (
    f"UPDATE turns SET input_tokens = (SELECT sum(input_tokens) {_OF_LOGS}), "
    f"output_tokens = (SELECT sum(output_tokens) {_OF_LOGS}), "
    "total_tokens = (SELECT sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)) "
    f"{_OF_LOGS} AND coalesce(input_tokens, output_tokens) IS NOT NULL), "
    f"usage_source = CASE (SELECT min(count(input_tokens), count(output_tokens)) {_OF_LOGS}) "
    "WHEN llm_calls THEN 'provider' ELSE CASE WHEN EXISTS "
    f"(SELECT 1 {_OF_LOGS} AND coalesce(input_tokens, output_tokens) IS NOT NULL) "
    "THEN 'partial' END END WHERE id = ?"
)
_ADD_SESSION_USAGE = (
    "UPDATE sessions SET request_count = request_count + ?1, "
    "input_tokens = CASE WHEN ?2 IS NULL THEN input_tokens "
    "ELSE coalesce(input_tokens, 0) + ?2 END, "
    "output_tokens = CASE WHEN ?3 IS NULL THEN output_tokens "
    "ELSE coalesce(output_tokens, 0) + ?3 END, "
    "total_tokens = CASE WHEN ?4 IS NULL THEN total_tokens "
    "ELSE coalesce(total_tokens, 0) + ?4 END, "
    "usage_source = CASE WHEN ?4 IS NULL OR usage_source = 'estimated' THEN usage_source "
    "ELSE 'partial' END WHERE id = ?5"
)


@frozen
class Adopted:
    """Rows that are new; `grown` are sessions that get so many more messages."""

    sessions: Sequence[Values] = ()
    turns: Sequence[Values] = ()
    runs: Sequence[Values] = ()
    steps: Sequence[Values] = ()
    messages: Sequence[Values] = ()
    request_logs: Sequence[Values] = ()
    payloads: Sequence[PayloadRow] = ()
    grown: Sequence[tuple[int, str]] = ()


@frozen
class Link:
    """Messages that follow on one another, and the turn and run that they come to belong to.

    `first` and `last` are indexes in the session; `steps` are the steps that some of them belong
    to, by their index.
    """

    session_id: str
    turn_id: str
    run_id: str
    first: int
    last: int
    steps: tuple[tuple[int, str], ...] = ()


def adopt(tx: Transaction, adopted: Adopted) -> None:
    """Insert all of it. ValueError for a status that is not one of something finished."""
    tx.insert_payloads(adopted.payloads)
    for table, columns in COLUMNS.items():
        rows: Sequence[Values] = getattr(adopted, table)
        _refuse_unfinished(table, rows)
        tx.insert_all("INSERT", table, columns, rows)
    if adopted.grown:
        tx.execute_all(
            "UPDATE sessions SET message_count = message_count + ? WHERE id = ?", adopted.grown
        )


_TEXTS = {"turns": ("user_input", "final_output"), "messages": ("content",)}
_JSON = {"messages": ("parts",)}
_SEARCHED = "user_input"


def copy(tx: Transaction, table: str, row: dict[str, Any]) -> None:
    """A row of another store as it is there, open or ended, with every column by name.

    It is the transaction's from now on. Long texts are kept as those of any row are. Twice, if the
    transaction has made one with this id already; what else the file has against it is known when
    it is written.
    """
    if tx.is_new(table, row["id"]):
        raise Twice(table)
    for name in _TEXTS.get(table, ()):
        row[name] = tx.text_column(row[name], plain=name == _SEARCHED and row["turn_index"] == 0)
    for name in _JSON.get(table, ()):
        row[name] = tx.json_column(row[name])
    tx.hold(table, row)


def copy_event(tx: Transaction, envelope: Envelope) -> None:
    """An event of another store under the number that it has there; it is not published again."""
    tx.emit_again(envelope)


def link_messages(tx: Transaction, links: Sequence[Link]) -> int:
    """Give messages their turn, those that have none; how many there were."""
    changed = tx.execute_all(
        _LINK, [(one.turn_id, one.run_id, one.session_id, one.first, one.last) for one in links]
    )
    stepped = [(step, one.session_id, index) for one in links for index, step in one.steps]
    if stepped:
        tx.execute_all(_GIVE_STEP, stepped)
    return changed


def add_turns(tx: Transaction, added: Sequence[tuple[int, str, str]]) -> None:
    """Sessions that got turns: how many, when the last one began, and the session's id."""
    tx.execute_all(_ADD_TURNS, added)


def place_turns(tx: Transaction, indexes: Sequence[tuple[int, str]]) -> None:
    """Turns that are there get other indexes in their sessions, each with its id."""
    tx.execute_all("UPDATE turns SET turn_index = -1 - ? WHERE id = ?", indexes)
    tx.execute_all(
        "UPDATE turns SET turn_index = -1 - turn_index WHERE id = ?", [(id,) for _, id in indexes]
    )


def place_requests(tx: Transaction, placed: Sequence[tuple[str, str, str, str, str]]) -> int:
    """Give request logs without a turn their session, turn, run and trace id, each with its id."""
    return tx.execute_all(_PLACE_REQUEST, placed)


def add_usage(tx: Transaction, turn_ids: Sequence[str]) -> None:
    """Turns that were adopted get the usage of the request logs that they have by now."""
    tx.execute_all(_ADD_USAGE, [(id,) for id in turn_ids])


def add_session_usage(tx: Transaction, used: Sequence[tuple[Any, ...]]) -> None:
    """Sessions get so many more requests, input, output and total tokens, each with its id."""
    tx.execute_all(_ADD_SESSION_USAGE, used)


def tell_session(
    tx: Transaction, session_id: str, project_id: str, at: datetime.datetime, **changes: Any
) -> None:
    """`session.updated`: the one event about a session whose rows were adopted."""
    tx.emit("session.updated", at, project_id, changes, session_id=session_id)


def _refuse_unfinished(table: str, rows: Iterable[Values]) -> None:
    if table not in _STATUS:
        return
    place, allowed = _STATUS[table]
    for row in rows:
        if row[place] not in allowed:
            raise ValueError(f"{table}: {row[place]!r} is no status of something finished")
