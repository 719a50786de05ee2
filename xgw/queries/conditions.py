"""The filters of lists as conditions on columns, one table a noun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import peewee
from peewee import fn

from xgw import clock
from xgw.queries.filters import NONE, OPEN_TURN, Filters, Value
from xgw.queries.search import OPEN_STATES, SEARCH, failed_turns
from xgw.store.models import RequestLog, Session, Turn

DEFAULT_PROJECT = "default"

Condition = peewee.ColumnBase
Select = Any
Values = tuple[Any, ...]
Build = Callable[[Values, "Reader"], Condition]


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads: `project` bounds what they may see, None is everything."""

    project: str | None

    @property
    def own_project(self) -> str:
        """Where a session key is looked up."""
        return self.project or DEFAULT_PROJECT


def activity_of(session: Any) -> peewee.ColumnBase:
    """When something last began in a session: what sessions are sorted by."""
    return fn.COALESCE(session.last_turn_at, session.created_at)


def start_of(turn: Any) -> peewee.ColumnBase:
    """When a turn began, for a queued one when it was asked for: what turns are sorted by."""
    return fn.COALESCE(turn.started_at, turn.created_at)


def of_sessions(filters: Filters, project: str | None) -> list[Condition]:
    """The conditions on `sessions`; archived ones only where they are asked for by name."""
    conditions = _built(SESSIONS, filters, Reader(project))
    if project is not None:
        conditions.append(Session.project_id == project)
    states = [value for one in filters.sought if one.name == "state" for value in one.values]
    if not (filters.has("status") or filters.has("session_key") or "archived" in states):
        conditions.append(Session.status != "archived")
    if states and OPEN_STATES.issuperset(states):
        conditions.append(Session.id.in_(_open_sessions()))  # few, and found by an index
    return conditions


def of_query(filters: Filters) -> list[Condition]:
    """The conditions on `sessions` that the query of the filters asks for."""
    return [SEARCH[one.name](one.values) for one in filters.sought]


def of_turns(filters: Filters, project: str | None) -> list[Condition]:
    """The conditions on `turns`."""
    conditions = _built(TURNS, filters, Reader(project))
    return conditions if project is None else [*conditions, Turn.project_id == project]


def of_requests(filters: Filters, project: str | None) -> list[Condition]:
    """The conditions on `request_logs`."""
    conditions = _built(REQUESTS, filters, Reader(project))
    return conditions if project is None else [*conditions, RequestLog.project_id == project]


def session_id_of(ref: str, reader: Reader) -> peewee.Function:
    """The id of the session that `ref` names: an id, else a session key in the own project.

    A key may be spelled as the id of a session that the reader must not see.
    """
    by_id = Session.select(Session.id).where(Session.id == ref)
    if reader.project is not None:
        by_id = by_id.where(Session.project_id == reader.project)
    by_key = Session.select(Session.id).where(
        Session.project_id == reader.own_project, Session.session_key == ref
    )
    return fn.COALESCE(by_id, by_key)


def _built(table: dict[str, Build], filters: Filters, reader: Reader) -> list[Condition]:
    return [table[c.name](c.values, reader) for c in filters.conditions]


def _is(condition: Condition, wanted: Value) -> Condition:
    negated: Condition = ~condition
    return condition if wanted else negated


def _any(conditions: list[Condition]) -> Condition:
    first, *others = conditions
    for condition in others:
        first = first | condition
    return first


def _column(column: peewee.Field) -> Build:
    return lambda values, _: column.in_(values)


def _exists(rows: Select) -> Condition:
    return fn.EXISTS(rows)


# -- time: rows whose interval from start to end (open: until now) touches the one asked for -------


def _earliest(*starts: Select) -> Select:
    """The smallest of the starts that these selects bring, each as column `first`."""
    union: Any = starts[0]
    for start in starts[1:]:
        union = union.union_all(start)
    rows = union.alias("starts")
    return peewee.Select((rows,), (fn.MIN(rows.c.first),))


def _ends_after(model: Any, starts: Callable[[Any], peewee.ColumnBase]) -> Build:
    # A list is sorted by the start. Without the lower bound, which an index on the end finds, a
    # page would read everything that ended long ago to look for what is still going on. The count
    # is there because for a lone MIN SQLite walks the index on the start instead.
    def build(values: Values, _: Reader) -> Condition:
        since = clock.to_db(values[0])
        other = model.alias()
        first = other.select(fn.MIN(starts(other)).alias("first"), fn.COUNT(peewee.SQL("*")))
        later, unended = first.where(other.ended_at >= since), first.where(other.ended_at.is_null())
        ends = (model.ended_at >= since) | model.ended_at.is_null()
        touches: Condition = ends & (starts(model) >= _earliest(later, unended))
        return touches

    return build


def _starts_before(start: peewee.ColumnBase) -> Build:
    return lambda values, _: start <= clock.to_db(values[0])


# -- sessions --------------------------------------------------------------------------------------


def _open_sessions() -> Select:
    return Turn.select(Turn.session_id).where(
        Turn.status.in_(OPEN_TURN), Turn.session_id.is_null(False)
    )


def _session_ends_after(values: Values, _: Reader) -> Condition:
    since = clock.to_db(values[0])
    other = Session.alias()
    opened = other.select(fn.MIN(activity_of(other)).alias("first")).where(
        other.id.in_(_open_sessions())
    )
    bound = _earliest(opened, peewee.Select(columns=(peewee.Value(since).alias("first"),)))
    activity = activity_of(Session)
    ends = (activity >= since) | Session.id.in_(_open_sessions())
    touches: Condition = ends & (activity >= bound)
    return touches


def _session_failed(values: Values, _: Reader) -> Condition:
    return _is(_exists(failed_turns()), values[0])


SESSIONS: dict[str, Build] = {
    "session_key": _column(Session.session_key),
    "status": _column(Session.status),
    "kind": _column(Session.kind),
    "agent": _column(Session.agent_name),
    "model": _column(Session.model),
    "task_id": _column(Session.task_id),
    "end_user_id": _column(Session.end_user_id),
    "has_error": _session_failed,
    "running": lambda values, _: _is(Session.id.in_(_open_sessions()), values[0]),
    "since": _session_ends_after,
    "until": _starts_before(Session.created_at),
}

# -- turns and requests ----------------------------------------------------------------------------


def _by_session(column: peewee.Field) -> Build:
    def build(values: Values, reader: Reader) -> Condition:
        if values[0] == NONE:
            return column.is_null()
        return column == session_id_of(values[0], reader)

    return build


def _by_session_column(column: peewee.Field, of_session: peewee.Field) -> Build:
    return lambda values, _: column.in_(Session.select(Session.id).where(of_session.in_(values)))


def _kinds(is_agent: Condition) -> Build:
    return lambda values, _: _any([_is(is_agent, value == "agent") for value in values])


def _of_turn(condition: Callable[[Values], Condition]) -> Build:
    """The turn of a request fits."""
    return lambda values, _: _exists(
        Turn.select(peewee.SQL("1")).where(Turn.id == RequestLog.turn_id, condition(values))
    )


_AGENT_TURN = Turn.endpoint.is_null()
_AGENT_REQUEST = _exists(
    Turn.select(peewee.SQL("1")).where(Turn.id == RequestLog.turn_id, _AGENT_TURN)
)

TURNS: dict[str, Build] = {
    "session_key": _by_session_column(Turn.session_id, Session.session_key),
    "session_id": _by_session(Turn.session_id),
    "status": _column(Turn.status),
    "kind": _kinds(_AGENT_TURN),
    "agent": _column(Turn.agent_name),
    "model": _column(Turn.final_model),
    "task_id": _column(Turn.task_id),
    "end_user_id": _by_session_column(Turn.session_id, Session.end_user_id),
    "has_error": lambda values, _: _is(Turn.status == "error", values[0]),
    "running": lambda values, _: _is(Turn.status.in_(OPEN_TURN), values[0]),
    "since": _ends_after(Turn, start_of),
    "until": _starts_before(start_of(Turn)),
}

_RUNNING = RequestLog.ended_at.is_null()
# The numbers are literal, here and above, because only then do partial indexes apply.
_REFUSED = RequestLog.status_code >= peewee.SQL("400")
_FAILED = RequestLog.error_type.is_null(False) | _REFUSED
_NOT_FAILED = RequestLog.error_type.is_null() & (RequestLog.status_code.is_null() | ~_REFUSED)
_REQUEST_STATUS = {"running": _RUNNING, "error": _FAILED, "success": ~_RUNNING & _NOT_FAILED}


def _status_code(values: Values, _: Reader) -> Condition:
    ranges = [
        (value, value)
        if isinstance(value, int)
        else (int(value[0]) * 100, int(value[0]) * 100 + 99)
        for value in values
    ]
    fits = _any([RequestLog.status_code.between(*range) for range in ranges])
    # Saying so lets the index of failed requests find them.
    return fits & _FAILED if min(ranges)[0] >= 400 else fits


REQUESTS: dict[str, Build] = {
    "session_key": _by_session_column(RequestLog.session_id, Session.session_key),
    "session_id": _by_session(RequestLog.session_id),
    "turn_id": _column(RequestLog.turn_id),
    "status": lambda values, _: _any([_REQUEST_STATUS[value] for value in values]),
    "status_code": _status_code,
    "provider": _column(RequestLog.provider_name),
    "kind": _kinds(_AGENT_REQUEST),
    "agent": _of_turn(lambda values: Turn.agent_name.in_(values)),
    "model": _column(RequestLog.model),
    "task_id": _of_turn(lambda values: Turn.task_id.in_(values)),
    "end_user_id": _by_session_column(RequestLog.session_id, Session.end_user_id),
    "has_error": lambda values, _: _FAILED if values[0] else _NOT_FAILED,
    "running": lambda values, _: _is(_RUNNING, values[0]),
    "since": _ends_after(RequestLog, lambda request: request.started_at),
    "until": _starts_before(RequestLog.started_at),
}
