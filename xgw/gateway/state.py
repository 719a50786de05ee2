"""What the gateway knows of its sessions and turns: read from the store, kept while in use.

What is decided here never changes, even while the store cannot be written: the units that carry it
out are queued in the same order.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import peewee

from xgw import clock, ids
from xgw.frozen import changed
from xgw.gateway.conversation import History, is_system
from xgw.recording.facts import Scope, TurnEnd
from xgw.resent import Hashes
from xgw.store import payloads
from xgw.store.database import Store
from xgw.store.payloads import fold
from xgw.store.writer import Ticket

log = logging.getLogger("xgw")

UNREADABLE = (LookupError, peewee.DatabaseError, sqlite3.DatabaseError)
KEPT = 256

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


@dataclass(slots=True)
class OpenTool:
    """A client-side tool: its step, and when it began (monotonic; None after a restart).

    `output` is the hash of its result's text, once that came. `answer` is the step that asked for
    it, `choice` the index of the choice that did; None if there was but one.
    """

    step_id: str
    tool_call_id: str
    name: str | None
    arguments: str
    began: float | None
    began_at: str | None = None
    output: str | None = None
    answer: str | None = None
    choice: int | None = None


@dataclass(slots=True)
class Cancellation:
    """Someone wants a turn to end: from then on until none of its requests is under way.

    `has_cut` tells whether it ended one of them; `ended_by` is how the turn ended, None until then.
    """

    has_cut: bool = False
    ended_by: str | None = None


@dataclass(slots=True)
class TurnState:
    """A gateway turn: `status` is running, waiting or ended; `under_way` counts its requests."""

    scope: Scope
    turn_key: str | None
    status: str
    under_way: int = 0
    busy_ms: int = 0
    active_since: float = field(default_factory=clock.monotonic)
    open_tools: dict[str, list[OpenTool]] = field(default_factory=dict)
    """By the id of their call; there are models that use one id for several calls of an answer."""
    ended_tools: dict[str, OpenTool] = field(default_factory=dict)
    seen: set[tuple[int, bytes]] = field(default_factory=set)
    latest: datetime.datetime | None = None
    """When a request of it last ended, since it is in memory."""
    cancellation: Cancellation | None = None
    """Requests that come while it is being cancelled are cancelled, too."""

    def cancel(self) -> Cancellation:
        """It is to end, as soon as its requests that are under way have."""
        if self.cancellation is None:
            self.cancellation = Cancellation()
        return self.cancellation

    def settle(self, end: TurnEnd) -> TurnEnd:
        """How it ends with the last of its requests, of which it would end with `end`.

        A cancelled one is cancelled, unless all that it was to do was done by then.
        """
        cancellation, self.cancellation = self.cancellation, None
        if cancellation is None:
            return end
        if cancellation.has_cut or self.open_tools:
            end = changed(
                end, ended_by="user_cancel", error_type=None, error_message=None, finish_reason=None
            )
        cancellation.ended_by = end.ended_by
        return end

    def open_tool(self, tool: OpenTool) -> None:
        """The client's result for this call is awaited from now on."""
        self.open_tools.setdefault(tool.tool_call_id, []).append(tool)

    def take_open_tool(self, call_id: str) -> OpenTool | None:
        """The first call of this id that awaits its result; it awaits it no longer."""
        tools = self.open_tools.get(call_id, [])
        tool = tools.pop(0) if tools else None
        if not tools:
            self.open_tools.pop(call_id, None)
        return tool

    def take_unchosen(self, answer: str, chosen: set[int]) -> list[OpenTool]:
        """The calls of an answer that stand in other choices; they await no result any longer."""
        tools = [tool for found in self.open_tools.values() for tool in found]
        taken = [
            tool
            for tool in tools
            if tool.answer == answer and tool.choice is not None and tool.choice not in chosen
        ]
        for tool in taken:
            self.open_tools[tool.tool_call_id].remove(tool)
            if not self.open_tools[tool.tool_call_id]:
                del self.open_tools[tool.tool_call_id]
            self.ended_tools.setdefault(tool.tool_call_id, tool)
        return taken

    def goes_on_at(self, hashes: Sequence[bytes]) -> int | None:
        """Where in a later history that follows which it had; None if that is another one."""
        position, digest = max(self.seen, default=(-1, b""))
        stays = 0 <= position < len(hashes) and hashes[position] == digest
        return position + 1 if stays else None

    def not_before(self, at: datetime.datetime) -> datetime.datetime:
        """A moment not before that, unless the wall clock went back.

        What changes of it because of a request that began beside others comes after their ends.
        """
        return at if self.latest is None else max(at, min(self.latest, clock.now()))

    def busy_until(self, moment: float) -> int:
        """Milliseconds of work until `moment` (monotonic), without waits for tools."""
        if self.status != "running":
            return self.busy_ms
        return self.busy_ms + max(0, round((moment - self.active_since) * 1000))


@dataclass(slots=True)
class SessionState:
    """A session: decisions about it are made under its lock, one at a time."""

    session_id: str
    session_key: str
    project_id: str
    exists: bool
    task_id: str | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    turns: dict[str, TurnState] = field(default_factory=dict)
    history: History | None = None
    in_use: int = 0
    last_ticket: Ticket | None = None
    is_empty: bool = False
    """It was opened, but nothing has been asked in it yet."""
    successor: SessionState | None = None
    """What its key names from now on: this one is being deleted, or was never made."""

    def find_turn(self, key: str) -> TurnState | None:
        """A turn that is in memory, by its key or id."""
        return next((t for t in self.turns.values() if key in (t.turn_key, t.scope.turn_id)), None)

    def awaiting(self) -> list[TurnState]:
        """Turns that await the client's tools, also those with a request under way."""
        turns = self.turns.values()
        return [t for t in turns if t.status == "waiting" or (t.under_way and t.open_tools)]


class Sessions:
    """The sessions in use, by project and key. Read from the store when they are not in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._by_key: OrderedDict[tuple[str, str], SessionState] = OrderedDict()
        self._by_id: dict[str, SessionState] = {}
        self._leaving: set[str] = set()

    def take(self, project_id: str, key: str) -> SessionState:
        """The session of this key (or id), new if there is none; give it back with `release`."""
        with self._lock:
            session = self._by_key.get((project_id, key)) or self._load(project_id, key)
            self._by_key[project_id, key] = session
            self._by_key.move_to_end((project_id, key))
            self._by_id[session.session_id] = session
            session.in_use += 1
            self._forget_idle()
            return session

    def take_new(self, project_id: str) -> SessionState:
        """A session of the gateway's own making."""
        session_id = ids.mint("sess")
        with self._lock:
            session = SessionState(session_id, session_id, project_id, exists=False)
            self._by_key[project_id, session_id] = session
            self._by_id[session_id] = session
            session.in_use += 1
            self._forget_idle()
            return session

    def release(self, session: SessionState) -> None:
        """The request that took it has ended."""
        with self._lock:
            session.in_use -= 1

    @contextlib.contextmanager
    def held(self, session: SessionState) -> Iterator[SessionState]:
        """The session under its lock; if it was deleted since it was taken, the one after it."""
        while True:
            with session.lock:
                if session.successor is None:
                    yield session
                    return
            with self._lock:
                session.in_use -= 1
                session = session.successor
                session.in_use += 1

    def supersede(self, session: SessionState, successor: SessionState) -> None:
        """The session is being deleted: `successor` has its key, and nobody finds it any more.

        The caller holds the locks of both.
        """
        with self._lock:
            self._leaving.add(session.session_id)
            self._drop(session.session_id)
            self._by_key[session.project_id, session.session_key] = successor
            self._by_id[successor.session_id] = successor
            session.successor = successor

    def reinstate(self, session: SessionState, successor: SessionState) -> None:
        """The session was not deleted after all: whoever has its successor finds it again."""
        with self._lock:
            self._leaving.discard(session.session_id)
            self._drop(successor.session_id)
            self._by_key[session.project_id, session.session_key] = session
            self._by_id[session.session_id] = session
            session.successor, successor.successor = None, session

    def give_way(self, session: SessionState) -> None:
        """The session was not made: another process has opened one with its key meanwhile."""
        with self._lock:
            self._drop(session.session_id)
            found = self._load(session.project_id, session.session_key)
            self._by_key[found.project_id, found.session_key] = found
            self._by_id[found.session_id] = found
            session.successor = found

    def forget(self, session_id: str) -> None:
        """The session was deleted."""
        with self._lock:
            self._leaving.discard(session_id)
            self._drop(session_id)

    def _drop(self, session_id: str) -> None:
        self._by_id.pop(session_id, None)
        for key in [k for k, s in self._by_key.items() if s.session_id == session_id]:
            del self._by_key[key]

    def _forget_idle(self) -> None:
        if len(self._by_key) <= KEPT:
            return
        for key, session in list(self._by_key.items())[: len(self._by_key) - KEPT]:
            if session.in_use or (session.last_ticket and not session.last_ticket.done):
                continue
            del self._by_key[key]
            if not any(other is session for other in self._by_key.values()):
                self._by_id.pop(session.session_id, None)

    # -- reading -------------------------------------------------------------------------------

    def _read(self, statement: str, params: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """A store that cannot be read never fails a request: what it holds is not known then."""
        try:
            return self._store.sql(statement, params)
        except (peewee.DatabaseError, sqlite3.DatabaseError) as error:
            log.error("the store cannot be read: %s", error)
            return []

    def _load(self, project_id: str, key: str) -> SessionState:
        rows = self._read(
            "SELECT id, session_key, task_id, turn_count FROM sessions WHERE project_id = ? "
            "AND (id = ? OR session_key = ?) ORDER BY id = ? DESC LIMIT 1",
            (project_id, key, key, key),
        )
        if not rows or rows[0][0] in self._leaving:
            return SessionState(ids.mint("sess"), key, project_id, exists=False)
        session_id, session_key, task_id, turn_count = rows[0]
        known = self._by_id.get(session_id)
        if known is not None:
            return known
        session = SessionState(session_id, session_key, project_id, exists=True, task_id=task_id)
        session.is_empty = turn_count == 0
        session.history = self._last_history(session_id)
        for row in self._read(
            TURN_COLUMNS + "WHERE t.session_id = ? AND t.status = 'running' "
            "AND t.endpoint IS NOT NULL ORDER BY t.turn_index",
            (session_id,),
        ):
            self._add_turn(session, row)
        return session

    def find_turn(self, session: SessionState, key: str) -> TurnState | None:
        """The gateway turn of this key (or id) in a session."""
        known = session.find_turn(key)
        if known is not None or not session.exists:
            return known
        rows = self._read(
            TURN_COLUMNS + "WHERE t.session_id = ? AND (t.turn_key = ? OR t.id = ?) "
            "AND t.endpoint IS NOT NULL LIMIT 1",
            (session.session_id, key, key),
        )
        return self._add_turn(session, rows[0]) if rows else None

    def find_issuer(self, session: SessionState, call_ids: list[str]) -> TurnState | None:
        """The newest turn of the session that asked for any of these tool calls."""
        known = [
            turn
            for turn in session.turns.values()
            if any(c in turn.open_tools or c in turn.ended_tools for c in call_ids)
        ]
        if session.exists and call_ids:
            known += self._recorded_issuers(session, call_ids)
        return max(known, key=lambda turn: turn.scope.turn_id, default=None)

    def _recorded_issuers(self, session: SessionState, call_ids: list[str]) -> list[TurnState]:
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
        turn.seen = set(enumerate(self._last_elements("turn_id", turn_id)))
        session.turns[turn_id] = turn
        return turn

    def read_choices(self, step_id: str) -> list[dict[str, Any]]:
        """The choices of an answer by its step; none if they cannot be read."""
        rows = self._read("SELECT output_payload FROM steps WHERE id = ?", (step_id,))
        try:
            answer = orjson.loads(payloads.load(self._store, rows[0][0])) if rows else {}
        except UNREADABLE:
            return []
        choices: list[dict[str, Any]] = answer.get("choices", [])
        return choices

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


def _holds_prompt(element: bytes) -> bool:
    try:
        parsed = orjson.loads(element)
    except orjson.JSONDecodeError:
        return False
    return isinstance(parsed, dict) and is_system(parsed)
