"""The words of the filter language as conditions on sessions.

None of them has an index of its own: each looks at one session at a time, by the indexes that lead
from it to its turns and steps. So a list examines a bounded number of sessions a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import peewee
from peewee import OP, SQL, Expression, fn

from xgw import clock
from xgw.queries.language import STATUSES, Comparison
from xgw.queries.quiet import is_stalled
from xgw.store.models import Run, Session, Step, Turn

Condition = Any
Values = tuple[Any, ...]

OPEN_STATES = frozenset({"running", "stalled", "waiting", "paused", "queued"})
_WAITS = {"waiting": "waiting_tool", "paused": "paused"}
_ENDED = {"done": "success", "error": "error", "cancelled": "cancelled", "queued": "queued"}


def _any(conditions: Iterable[Condition]) -> Condition:
    first, *others = conditions
    for condition in others:
        first = first | condition
    return first


def _exists(rows: Any) -> Condition:
    return fn.EXISTS(rows)


def _like(column: Any, pattern: str) -> Condition:
    return peewee.NodeList((column, SQL("LIKE"), peewee.Value(pattern), SQL("ESCAPE '\\'")))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _pattern(text: str) -> str:
    """`*` stands for any letters."""
    return _escaped(text).replace("*", "%")


def _within(text: str) -> str:
    """Anywhere in it, unless it says itself where."""
    return _pattern(text) if "*" in text else f"%{_escaped(text)}%"


# -- words -----------------------------------------------------------------------------------------


def _state(values: Values) -> Condition:
    """Of the turn that counts: the active one, else the newest; or the session's own status."""
    statuses = [value for value in values if value in STATUSES]
    fits = [Session.status.in_(statuses)] if statuses else []
    if "empty" in values:
        fits.append(Session.turn_count == 0)
    of_turn = [_turn_is(value) for value in values if value in OPEN_STATES or value in _ENDED]
    if of_turn:
        other = Turn.alias()
        newest = other.select(other.id).where(other.session_id == Session.id)
        newest = newest.order_by(other.turn_index.desc()).limit(1)
        counts = Turn.id == fn.COALESCE(Session.active_turn_id, newest)
        fits.append(_exists(Turn.select(SQL("1")).where(counts, _any(of_turn))))
    return _any(fits)


def _turn_is(state: str) -> Condition:
    if state in _ENDED:
        return Turn.status == _ENDED[state]
    run = Run.select(Run.status).where(Run.turn_id == Turn.id)
    run = run.order_by(Run.run_index.desc()).limit(1)
    if state == "stalled":
        stalled = Run.select(SQL("1")).where(
            Run.turn_id == Turn.id, is_stalled(Run, Turn, clock.now())
        )
        return (Turn.status == "running") & _exists(stalled)
    waits = _WAITS.get(state)
    if waits is not None:
        return (Turn.status == "running") & (run == waits)
    return (Turn.status == "running") & Expression(run, OP.NOT_IN, tuple(_WAITS.values()))


def _by_pattern(column: peewee.Field) -> Callable[[Values], Condition]:
    return lambda values: _any([_like(column, _pattern(value)) for value in values])


def _tool(values: Values) -> Condition:
    named = _any([_like(Step.name, _pattern(value)) for value in values])
    calls = Step.select(SQL("1")).where(
        Step.session_id == Session.id,
        Step.tool_call_id.is_null(False),
        named,
    )
    return _exists(calls)


def failed_turns(*kind: Any) -> peewee.ModelSelect[Turn]:
    """The turns of the session at hand that failed.

    Of two indexes on failed turns SQLite takes the one on sessions only if it is told that the
    status by itself says little: it would go through the other one for every session anew.
    """
    failed = fn.LIKELY(Turn.status == SQL("'error'"))
    return Turn.select(SQL("1")).where(Turn.session_id == Session.id, failed, *kind)


def _error(values: Values) -> Condition:
    return _exists(failed_turns(_any([_like(Turn.error_type, _within(one)) for one in values])))


def _text(values: Values) -> Condition:
    looked_for = [f"%{_escaped(value)}%" for value in _spellings(values[0])]
    first = Turn.select(SQL("1")).where(
        Turn.session_id == Session.id,
        Turn.turn_index == 0,
        _any([_like(Turn.user_input, pattern) for pattern in looked_for]),
    )
    own = [
        _like(column, pattern)
        for column in (Session.title, Session.session_key)
        for pattern in looked_for
    ]
    return _any([*own, _exists(first)])


def _spellings(text: str) -> list[str]:
    """SQLite knows upper and lower case of ASCII alone."""
    if text.isascii():
        return [text]
    return list(dict.fromkeys((text, text.lower(), text.upper(), text.title())))


def _compared(column: peewee.Field) -> Callable[[Values], Condition]:
    return lambda values: _holds(values[0].operator, column, values[0].number)


def _holds(operator: str, column: peewee.Field, number: float) -> Condition:
    match operator:
        case ">":
            return column > number
        case ">=":
            return column >= number
        case "<":
            return column < number
        case "<=":
            return column <= number
    return column == number


def _attempts(values: Values) -> Condition:
    """How often the model answer that needed the most tries was tried."""
    wanted: Comparison = values[0]
    number = int(wanted.number)
    asked, fewer = Session.request_count > 0, ~_tried_more(number)
    match wanted.operator:
        case ">":
            return _tried_more(number)
        case ">=":
            return _tried_more(number - 1)
        case "<":
            return asked & ~_tried_more(number - 1)
        case "<=":
            return asked & fewer
    return _tried_more(number - 1) & fewer


def _tried_more(often: int) -> Condition:
    if often < 1:
        return Session.request_count > 0
    tried = Step.select(SQL("1")).where(Step.turn_id == Turn.id, Step.attempt > often)
    # Few turns have more attempts than calls: only their steps are looked at.
    turns = Turn.select(SQL("1")).where(
        Turn.session_id == Session.id, Turn.attempts > Turn.llm_calls, _exists(tried)
    )
    return _exists(turns)


SEARCH: dict[str, Callable[[Values], Condition]] = {
    "state": _state,
    "agent": _by_pattern(Session.agent_name),
    "model": _by_pattern(Session.model),
    "tool": _tool,
    "error": _error,
    "cost": _compared(Session.cost_usd),
    "tokens": _compared(Session.total_tokens),
    "attempts": _attempts,
    "text": _text,
}
"""The conditions by the name of their word."""
