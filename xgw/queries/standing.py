"""The selects behind `overview`: each looks at the turn that counts, its newest run, a few steps.

Whatever the length of a history, only rows that an index leads to are read.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import peewee
from peewee import JOIN, SQL, fn

from xgw import clock
from xgw.queries.conditions import DEFAULT_PROJECT
from xgw.queries.quiet import is_stalled
from xgw.queries.texts import with_text
from xgw.store.models import Event, Run, Session, Step, Turn

TITLE_CHARACTERS = 400
ERRORS_WITHIN = datetime.timedelta(hours=1)

_SERVED, _FIRST = Step.alias(), Turn.alias()

OF_SESSION = "of_session_"
"""What the columns of a session begin with where those of its turn stand beside them."""


def of_sessions(ids: Sequence[str]) -> peewee.ModelSelect[Session]:
    """Each session with the turn that counts, if it has any, its first input and its waste.

    The first input comes with the payload that it may name, see `texts.take_text`.
    """
    return _sessions().where(Session.id.in_(ids))


def of_named_session(refs: Sequence[str]) -> peewee.ModelSelect[Session]:
    """The same of the session with this id, else with this key in `default`: given twice.

    With all of its own columns, the `plan` of that turn's newest run, and the `seq` of the newest
    event.
    """
    id, key = refs
    other = Session.alias()
    by_id = other.select(other.id).where(other.id == id)
    by_key = other.select(other.id).where(
        other.session_key == key, other.project_id == DEFAULT_PROJECT
    )
    own = (column.alias(OF_SESSION + column.name) for column in Session._meta.sorted_fields)
    newest = Event.select(fn.COALESCE(fn.MAX(Event.seq), 0)).alias("newest")
    plan = Run.planner_state.alias("plan")
    return (
        _sessions()
        .select_extend(*own, plan, newest)
        .where(Session.id == fn.COALESCE(by_id, by_key))
    )


def _sessions() -> peewee.ModelSelect[Session]:
    other, first, tried = Turn.alias(), Turn.alias(), Turn.alias()
    newest = other.select(other.id).where(other.session_id == Session.id)
    newest = newest.order_by(other.turn_index.desc()).limit(1)
    first_asked = (
        first.select(first.id)
        .where(first.session_id == Session.id, first.user_input.is_null(False))
        .order_by(first.turn_index)
        .limit(1)
    )
    wasted = tried.select(fn.SUM(tried.attempts - tried.llm_calls)).where(
        tried.session_id == Session.id, tried.attempts > tried.llm_calls
    )
    query = Session.select(
        Session.id.alias("session"),
        fn.SUBSTR(_FIRST.user_input, 1, TITLE_CHARACTERS).alias("first_input"),
        wasted.alias("wasted"),
        Turn.status,
        Turn.endpoint,
        Turn.error_type,
        Turn.ended_by,
        *_columns(),
    ).join(Turn, JOIN.LEFT_OUTER, on=(Turn.id == fn.COALESCE(Session.active_turn_id, newest)))
    query = _with_run(query).join(
        _FIRST, JOIN.LEFT_OUTER, on=(_FIRST.id == first_asked), src=Session
    )
    return with_text(query, _FIRST.user_input)


def of_turns(ids: Sequence[str]) -> peewee.ModelSelect[Turn]:
    """Each turn by its `turn_id`, with what a session tells of the turn that counts."""
    return _with_run(Turn.select(*_columns())).where(Turn.id.in_(ids))


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


def strip(project: str | None, now: datetime.datetime) -> peewee.Select:
    """One row of counts: `running`, `waiting`, `stalled`, `errors`; and the `newest` event."""
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
        "newest": Event.select(fn.COALESCE(fn.MAX(Event.seq), 0)),
    }
    return peewee.Select(columns=[count.alias(name) for name, count in counts.items()])


def _open(project: str | None, run_status: str) -> peewee.ModelSelect[Run]:
    """How many turns are open with a run of this status, found by the index on it."""
    query = Run.select(fn.COUNT(Run.id)).join(Turn, on=(Turn.id == Run.turn_id))
    query = query.where(Run.status == SQL(f"'{run_status}'"), Turn.status == "running")
    return query if project is None else query.where(Turn.project_id == project)
