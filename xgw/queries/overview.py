"""What a list of sessions or turns says beyond their rows: states, what runs now, what was wasted.

Of a session one turn counts: the active one, else the newest.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from xgw import ids
from xgw.queries import standing
from xgw.queries.pages import Row
from xgw.queries.spelled import SelectByIds
from xgw.queries.texts import take_text
from xgw.queries.wording import served_words
from xgw.store.database import Store

ARGUMENTS_CHARACTERS = 200

_SESSIONS = SelectByIds(standing.of_sessions)
_SESSION = SelectByIds(standing.of_named_session)
_TURNS = SelectByIds(standing.of_turns)


@dataclass(frozen=True, slots=True)
class Now:
    """The step under way that began last, and how many (`running`) are under way in all.

    `arguments` are those of a tool, cut at ARGUMENTS_CHARACTERS.
    """

    id: str
    step_type: str
    step_index: int
    name: str | None
    provider_name: str | None
    model: str | None
    attempt: int | None
    started_at: datetime.datetime
    tool_call_id: str | None
    arguments: str | None
    running: int


@dataclass(frozen=True, slots=True)
class TurnOverview:
    """How a turn stands.

    `state`: running, waiting, paused, queued, done, error or cancelled. `cause`: the error's type,
    of a cancelled turn who ended it. `waits_for`: `tool` (the client's results) or `approval`.
    `wasted`: tries beyond the first of each model call, None while none has ended. `served_by`:
    where the last answer came from a fallback, `model → provider/model`.
    """

    state: str
    cause: str | None = None
    waits_for: str | None = None
    now: Now | None = None
    wasted: int | None = None
    served_by: str | None = None


@dataclass(frozen=True, slots=True)
class Overview(TurnOverview):
    """How a session stands: as the turn that counts (`turn_id`), or empty, archived or closed.

    `title` is the first user input while the session has none; `wasted` is that of all turns.
    """

    title: str = ""
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class Strip:
    """Counts of turns: under way, waiting for a client or a person, stalled, and failed lately.

    Stalled ones are under way too, but nothing was stored of them for a while. `newest` is the
    `seq` of the newest event at that moment.
    """

    running: int = 0
    waiting: int = 0
    stalled: int = 0
    errors: int = 0
    newest: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Head:
    """A session with how it stands, and the `seq` of the newest event at that moment.

    `plan` is what the newest run of the turn that counts planned, None where it did not.
    """

    session: Row
    overview: Overview
    newest: int
    plan: Any = None


def find_session(store: Store, ref: str) -> Head | None:
    """The session of this id, else of this session key in the project `default`: one statement."""
    try:
        name = ids.client_identifier(ref)
    except ValueError:
        return None
    rows = _SESSION.fetch(store, [name, name])
    if not rows:
        return None
    take_text(rows, "first_input")
    [found] = rows
    own = [name for name in found if name.startswith(standing.OF_SESSION)]
    session = {name.removeprefix(standing.OF_SESSION): found.pop(name) for name in own}
    return Head(session, _session_overview(session, found), found["newest"], found["plan"])


def of_sessions(store: Store, rows: Iterable[Row]) -> Mapping[str, Overview]:
    """By session id, in one statement."""
    sessions = {row["id"]: row for row in rows}
    if not sessions:
        return {}
    found = _SESSIONS.fetch(store, list(sessions))
    take_text(found, "first_input")
    return {row["session"]: _session_overview(sessions[row["session"]], row) for row in found}


def of_turns(store: Store, rows: Iterable[Row]) -> Mapping[str, TurnOverview]:
    """By turn id, in one statement; none where all have ended and nothing was tried twice."""
    turns = {row["id"]: row for row in rows}
    asked = [id for id, row in turns.items() if row["status"] == "running" or _wasted(row)]
    found = {row["turn_id"]: row for row in _TURNS.fetch(store, asked)} if asked else {}
    return {id: _turn_overview(row, found.get(id, {})) for id, row in turns.items()}


def state_of_turn(status: str, run_status: str | None) -> str:
    """The state of a turn in one word, from its status and that of its newest run."""
    if status == "running" and run_status in ("waiting_tool", "paused"):
        return "waiting" if run_status == "waiting_tool" else "paused"
    return "done" if status == "success" else status


def strip(store: Store, project: str | None, now: datetime.datetime) -> Strip:
    """What goes on at the moment `now`, of one project or of all (None): one statement."""
    return Strip(**(store.fetch_one(standing.strip(project, now)) or {}))


def _session_overview(session: Row, found: Row) -> Overview:
    turn = _turn_overview({**found, "attempts": 0, "llm_calls": 0}, found)
    state = _state(session, turn.state if found["turn_id"] else None)
    return Overview(
        state,
        turn.cause if state == turn.state else None,
        turn.waits_for,
        turn.now,
        found["wasted"] or (0 if session["request_count"] else None),
        turn.served_by,
        title=session["title"] or found["first_input"] or "",
        turn_id=found["turn_id"],
    )


def _state(session: Row, state: str | None) -> str:
    if state is None:
        return "empty" if session["status"] == "active" else str(session["status"])
    is_over = state in ("done", "error", "cancelled")
    return str(session["status"]) if is_over and session["status"] != "active" else state


def _turn_overview(turn: Row, found: Row) -> TurnOverview:
    state = state_of_turn(turn["status"], found.get("run_status"))
    waits_for = None
    if state == "waiting":
        waits_for = "approval" if turn["endpoint"] is None else "tool"
    return TurnOverview(
        state,
        _cause(turn, state),
        waits_for,
        # A handoff that is open meanwhile is not what a person is asked about.
        None if waits_for == "approval" else _now(found),
        _wasted(turn),
        _served_by(found),
    )


def _cause(turn: Row, state: str) -> str | None:
    cause: str | None = turn["ended_by"]
    if state == "error":
        return turn["error_type"] or cause
    return cause if state == "cancelled" else None


def _wasted(turn: Row) -> int | None:
    return turn["attempts"] - turn["llm_calls"] if turn["attempts"] else None


def _served_by(found: Row) -> str | None:
    if not found.get("fell_back"):
        return None
    served = served_words(found["served_provider"], found["served_model"])
    return f"{found['asked_for'] or '?'} → {served}"


def _now(found: Row) -> Now | None:
    if not found.get("step_id"):
        return None
    return Now(
        found["step_id"],
        found["step_type"],
        found["step_index"],
        found["name"],
        found["provider_name"],
        found["model"],
        found["attempt"],
        found["started_at"],
        found["tool_call_id"],
        _arguments(found["metadata"]),
        found["running"],
    )


def _arguments(metadata: Any) -> str | None:
    given = metadata.get("arguments") if isinstance(metadata, dict) else None
    return given[:ARGUMENTS_CHARACTERS] if isinstance(given, str) else None
