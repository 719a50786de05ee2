"""What the store knows of sessions and turns, brought into memory when it is asked for."""

from __future__ import annotations

import logging
import sqlite3
from typing import Any

import orjson
import peewee

from xgw.gateway.conversation import History, is_system
from xgw.gateway.state import OpenTool, SessionState, TurnState
from xgw.recording.facts import Scope
from xgw.resent import Hashes
from xgw.store import payloads
from xgw.store.database import Store
from xgw.store.payloads import fold

log = logging.getLogger("xgw")

UNREADABLE = (LookupError, peewee.DatabaseError, sqlite3.DatabaseError)

TURN_COLUMNS = (
    "SELECT t.id, t.turn_key, t.status, t.trace_id, t.task_id, t.busy_ms, r.id, r.status "
    "FROM turns t JOIN runs r ON r.turn_id = t.id "
)

CUT_CALLS = (
    "FROM (SELECT turn_id, tool_calls, status FROM steps WHERE {column} = ? "
    "AND step_type = 'llm_call' ORDER BY started_at DESC LIMIT 32) s, json_each(s.tool_calls) c "
    "WHERE s.status = 'success' AND json_extract(c.value, '$.incomplete') "
    "AND json_extract(c.value, '$.tool_call_id') "
)
"""Calls that were cut short, which have no step of their own, among the newest answers."""
CUT_SHORT = (
    "SELECT json_extract(c.value, '$.tool_call_id'), json_extract(c.value, '$.name'), "
    "json_extract(c.value, '$.arguments') " + CUT_CALLS.format(column="turn_id") + "<> ''"
)


class Recall:
    """Reads sessions and turns.

    A store that cannot be read never fails a request: what it holds is not known then.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def session(self, project_id: str, key: str) -> SessionState | None:
        """The session of this key, or id, without its turns; None if there is none."""
        rows = self._read(
            "SELECT id, session_key, task_id, turn_count FROM sessions WHERE project_id = ? "
            "AND (id = ? OR session_key = ?) ORDER BY id = ? DESC LIMIT 1",
            (project_id, key, key, key),
        )
        if not rows:
            return None
        session_id, session_key, task_id, turn_count = rows[0]
        session = SessionState(session_id, session_key, project_id, exists=True, task_id=task_id)
        session.is_empty = turn_count == 0
        return session

    def fill(self, session: SessionState) -> None:
        """Add what goes on in it: its history, and its turns that have not ended."""
        session.history = self._last_history(session.session_id)
        for row in self._read(
            TURN_COLUMNS + "WHERE t.session_id = ? AND t.status = 'running' "
            "AND t.endpoint IS NOT NULL ORDER BY t.turn_index",
            (session.session_id,),
        ):
            self._add_turn(session, row)

    def turn(self, session: SessionState, key: str) -> TurnState | None:
        """The gateway turn of this key, or id; the session has it from now on."""
        rows = self._read(
            TURN_COLUMNS + "WHERE t.session_id = ? AND (t.turn_key = ? OR t.id = ?) "
            "AND t.endpoint IS NOT NULL LIMIT 1",
            (session.session_id, key, key),
        )
        return self._add_turn(session, rows[0]) if rows else None

    def issuers(self, session: SessionState, call_ids: list[str]) -> list[TurnState]:
        """The newest turn that asked for any of these tool calls; none if no turn did."""
        marks = ", ".join("?" * len(call_ids))
        params = (session.session_id, *call_ids)
        rows = self._read(
            f"{TURN_COLUMNS} JOIN steps s ON s.turn_id = t.id WHERE s.session_id = ? "
            f"AND s.tool_call_id IN ({marks}) AND t.endpoint IS NOT NULL "
            "ORDER BY t.turn_index DESC LIMIT 1",
            params,
        ) or self._read(
            f"{TURN_COLUMNS}WHERE t.endpoint IS NOT NULL AND t.id IN (SELECT s.turn_id "
            + CUT_CALLS.format(column="session_id")
            + f"IN ({marks})) ORDER BY t.turn_index DESC LIMIT 1",
            params,
        )
        return [self._add_turn(session, row) for row in rows]

    def read_choices(self, step_id: str) -> list[dict[str, Any]]:
        """The choices of an answer by its step; none if they cannot be read."""
        rows = self._read("SELECT output_payload FROM steps WHERE id = ?", (step_id,))
        try:
            answer = orjson.loads(payloads.load(self._store, rows[0][0])) if rows else {}
        except UNREADABLE:
            return []
        choices: list[dict[str, Any]] = answer.get("choices", [])
        return choices

    def _add_turn(self, session: SessionState, row: tuple[str, ...]) -> TurnState:
        turn_id, turn_key, status, trace_id, task_id, busy, run_id, run_status = row
        known = session.turns.get(turn_id)
        if known is not None:
            return known
        scope = Scope(session.project_id, session.session_id, turn_id, run_id, trace_id, task_id)
        state = "waiting" if run_status == "waiting_tool" else "running"
        turn = TurnState(scope, turn_key, state if status == "running" else "ended")
        turn.busy_ms = int(busy or 0)
        for step in self._read(
            "SELECT id, tool_call_id, name, json_extract(metadata, '$.arguments'), "
            "started_at, output_payload, parent_step_id, json_extract(metadata, '$.choice'), "
            "status "
            "FROM steps WHERE turn_id = ? AND step_type = 'tool_call' "
            "ORDER BY started_at, step_index",
            (turn_id,),
        ):
            tool = OpenTool(step[0], step[1], step[2], step[3] or "", None, *step[4:8])
            if step[8] == "running":
                turn.open_tool(tool)
            else:
                turn.ended_tools[step[1]] = tool
        for call_id, name, arguments in self._read(CUT_SHORT, (turn_id,)):
            cut = OpenTool("", call_id, name, arguments or "", None)
            turn.ended_tools.setdefault(call_id, cut)
        elements = [*enumerate(self._last_elements("turn_id", turn_id))]
        turn.seen, turn.last_seen = set(elements), elements[-1] if elements else None
        session.turns[turn_id] = turn
        return turn

    def _last_elements(self, column: str, value: str) -> Hashes:
        """The element hashes of the last request of a turn or session."""
        rows = self._read(
            f"SELECT input_payload FROM steps WHERE {column} = ? AND step_type = 'llm_call' "
            "AND input_payload IS NOT NULL ORDER BY started_at DESC LIMIT 1",
            (value,),
        )
        keys = [key for (key,) in rows]
        try:
            sent = payloads.parts(self._store, keys)
        except UNREADABLE:
            return Hashes()
        named = (element for key in keys for element in sent[key])
        return Hashes(bytes.fromhex("".join(named)))

    def _last_history(self, session_id: str) -> History | None:
        hashes = self._last_elements("session_id", session_id)
        if not hashes:
            return None
        leading = [digest.hex() for digest in hashes[:8]]
        try:
            loaded = payloads.load_many(self._store, leading)
        except UNREADABLE:
            return None
        prompts = [bytes.fromhex(key) for key, element in loaded.items() if _holds_prompt(element)]
        return History(len(hashes), fold(hashes), frozenset(prompts))

    def _read(self, statement: str, params: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        try:
            return self._store.sql(statement, params)
        except (peewee.DatabaseError, sqlite3.DatabaseError) as error:
            log.error("the store cannot be read: %s", error)
            return []


def _holds_prompt(element: bytes) -> bool:
    try:
        parsed = orjson.loads(element)
    except orjson.JSONDecodeError:
        return False
    return isinstance(parsed, dict) and is_system(parsed)
