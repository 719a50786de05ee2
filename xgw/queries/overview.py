"""What a list of sessions or turns says beyond their rows: states, what runs now, what was wasted.

Of a session one turn counts: the active one, else the newest.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import peewee
from peewee import JOIN, SQL, fn

from xgw import clock
from xgw.queries.pages import Row
from xgw.queries.quiet import is_stalled
from xgw.queries.snapshot import snapshot
from xgw.queries.texts import bring_back
from xgw.queries.wording import served_words
from xgw.store.database import Store
from xgw.store.models import Run, Session, Step, Turn

TITLE_CHARACTERS = 400
ARGUMENTS_CHARACTERS = 200
ERRORS_WITHIN = datetime.timedelta(hours=1)


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

    Stalled ones are under way too, but nothing was stored of them for a while.
    """

    running: int = 0
    waiting: int = 0
    stalled: int = 0
    errors: int = 0


def of_sessions(store: Store, rows: Iterable[Row]) -> Mapping[str, Overview]:
    """By session id, in one statement; two more where long texts have to be brought back."""
    sessions = {row["id"]: row for row in rows}
    if not sessions:
        return {}
    with snapshot(store):
        found = store.fetch(_of_sessions(sessions))
        bring_back(store, found, ("first_input",))
    return {row["session"]: _session_overview(sessions[row["session"]], row) for row in found}


def of_turns(store: Store, rows: Iterable[Row]) -> Mapping[str, TurnOverview]:
    """By turn id, in one statement; none where all have ended and nothing was tried twice."""
    turns = {row["id"]: row for row in rows}
    asked = [id for id, row in turns.items() if row["status"] == "running" or _wasted(row)]
    found = {row["turn_id"]: row for row in store.fetch(_of_turns(asked))} if asked else {}
    return {id: _turn_overview(row, found.get(id, {})) for id, row in turns.items()}


def state_of_turn(status: str, run_status: str | None) -> str:
    """The state of a turn in one word, from its status and that of its newest run."""
    if status == "running" and run_status in ("waiting_tool", "paused"):
        return "waiting" if run_status == "waiting_tool" else "paused"
    return "done" if status == "success" else status


def strip(store: Store, project: str | None, now: datetime.datetime) -> Strip:
    """What goes on at the moment `now`, of one project or of all (None): one statement."""
    return Strip(**(store.fetch_one(_strip(project, now)) or {}))


# -- the statements --------------------------------------------------------------------------------

_SERVED = Step.alias()


def _of_sessions(ids: Iterable[str]) -> peewee.ModelSelect[Session]:
    other, first, tried = Turn.alias(), Turn.alias(), Turn.alias()
    newest = other.select(other.id).where(other.session_id == Session.id)
    newest = newest.order_by(other.turn_index.desc()).limit(1)
    first_input = (
        first.select(fn.SUBSTR(first.user_input, 1, TITLE_CHARACTERS))
        .where(first.session_id == Session.id, first.user_input.is_null(False))
        .order_by(first.turn_index)
        .limit(1)
    )
    wasted = tried.select(fn.SUM(tried.attempts - tried.llm_calls)).where(
        tried.session_id == Session.id, tried.attempts > tried.llm_calls
    )
    query = Session.select(
        Session.id.alias("session"),
        first_input.alias("first_input"),
        wasted.alias("wasted"),
        Turn.status,
        Turn.endpoint,
        Turn.error_type,
        Turn.ended_by,
        *_columns(),
    ).join(Turn, JOIN.LEFT_OUTER, on=(Turn.id == fn.COALESCE(Session.active_turn_id, newest)))
    return _with_run(query).where(Session.id.in_(list(ids)))


def _of_turns(ids: Iterable[str]) -> peewee.ModelSelect[Turn]:
    return _with_run(Turn.select(*_columns())).where(Turn.id.in_(list(ids)))


def _columns() -> tuple[Any, ...]:
    """What both lists read of a turn's newest run and of its steps."""
    under_way = Step.alias()
    running = under_way.select(fn.COUNT(under_way.id)).where(*_under_way(under_way))
    return (
        Turn.id.alias("turn_id"),
        Run.status.alias("run_status"),
        Step.id.alias("step_id"),
        Step.step_type,
        Step.step_index,
        Step.name,
        Step.provider_name,
        Step.model,
        Step.attempt,
        Step.started_at,
        Step.tool_call_id,
        Step.metadata,
        running.alias("running"),
        _SERVED.model_requested.alias("asked_for"),
        _SERVED.provider_name.alias("served_provider"),
        # `model` of an alias is the class that it stands for.
        peewee.Column(_SERVED, "model").alias("served_model"),
        _fell_back().alias("fell_back"),
    )


def _with_run(query: peewee.ModelSelect[Any]) -> peewee.ModelSelect[Any]:
    """Join the newest run, its step under way that began last, and the step that answered last."""
    run, step, answer = Run.alias(), Step.alias(), Step.alias()
    newest = run.select(run.id).where(run.turn_id == Turn.id)
    newest = newest.order_by(run.run_index.desc()).limit(1)
    current = step.select(step.id).where(*_under_way(step))
    current = current.order_by(step.started_at.desc(), step.step_index.desc()).limit(1)
    # Without a second try nothing can have fallen back: most turns' steps are not looked at.
    served = answer.select(answer.id).where(
        Turn.attempts > Turn.llm_calls,
        answer.run_id == Run.id,
        answer.step_type == "llm_call",
        answer.status == "success",
    )
    served = served.order_by(answer.step_index.desc()).limit(1)
    return (
        query.join(Run, JOIN.LEFT_OUTER, on=(Run.id == newest))
        .join(Step, JOIN.LEFT_OUTER, on=(Step.id == current))
        .join(_SERVED, JOIN.LEFT_OUTER, on=(_SERVED.id == served))
    )


def _under_way(step: Any) -> tuple[Any, ...]:
    # The status is literal, because only then does the index of running steps apply.
    return Turn.status == "running", step.run_id == Run.id, step.status == SQL("'running'")


def _fell_back() -> peewee.ColumnBase:
    """Whether a fallback was among the attempts that led to the answer."""
    first, attempt = Step.alias(), Step.alias()
    began = first.select(fn.MAX(first.step_index)).where(
        first.run_id == _SERVED.run_id,
        first.step_index <= _SERVED.step_index,
        first.step_type == "llm_call",
        first.attempt == 1,
    )
    return fn.EXISTS(
        attempt.select(SQL("1")).where(
            attempt.run_id == _SERVED.run_id,
            attempt.step_index > began,
            attempt.step_index <= _SERVED.step_index,
            attempt.attempt_reason == "fallback",
        )
    )


def _strip(project: str | None, now: datetime.datetime) -> peewee.Select:
    failed = Turn.select(fn.COUNT(Turn.id)).where(
        Turn.status == SQL("'error'"), Turn.ended_at >= clock.to_db(now - ERRORS_WITHIN)
    )
    if project is not None:
        failed = failed.where(Turn.project_id == project)
    counts: dict[str, Any] = {
        "running": _open(project, "running"),
        "waiting": _open(project, "waiting_tool"),
        "stalled": _open(project, "running").where(is_stalled(Run, Turn, now)),
        "errors": failed,
    }
    return peewee.Select(columns=[count.alias(name) for name, count in counts.items()])


def _open(project: str | None, run_status: str) -> peewee.ModelSelect[Run]:
    """How many turns are open with a run of this status, found by the index on it."""
    query = Run.select(fn.COUNT(Run.id)).join(Turn, on=(Turn.id == Run.turn_id))
    query = query.where(Run.status == SQL(f"'{run_status}'"), Turn.status == "running")
    return query if project is None else query.where(Turn.project_id == project)


# -- the rows --------------------------------------------------------------------------------------


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
    waits_for = "approval" if turn["endpoint"] is None else "tool"
    return TurnOverview(
        state,
        _cause(turn, state),
        waits_for if state == "waiting" else None,
        _now(found),
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
