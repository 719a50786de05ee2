"""The filters of lists: which there are for each noun, and how their values are spelled.

A condition may hold several values, of which one must fit; conditions all must.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from xgw import clock, errors, ids
from xgw.queries import language
from xgw.queries.language import Sought

Value = str | int | bool | datetime.datetime

NONE = "none"
"""`session_id=none`: what belongs to no session."""

QUERY = "q"
"""A query in the filter language, which sessions have."""

OPEN_TURN = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Condition:
    """One filter with the values that it accepts, parsed."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to; empty is everything. `sought` is what a query asks for."""

    conditions: tuple[Condition, ...] = ()
    sought: tuple[Sought, ...] = ()

    def values(self, name: str) -> tuple[Value, ...]:
        """The values of one condition, () where it is not asked for."""
        return next((c.values for c in self.conditions if c.name == name), ())

    def has(self, name: str) -> bool:
        """Whether this condition is asked for."""
        return bool(self.values(name))

    def and_also(self, name: str, *values: Value) -> Filters:
        """These filters and one condition more."""
        return replace(self, conditions=(*self.conditions, Condition(name, values)))


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a filter's values are read; `single` ones may be given once."""

    read: Callable[[str], Value]
    single: bool = False


def parse(noun: str, pairs: Iterable[tuple[str, str]]) -> Filters:
    """The filters of a list (`sessions`, `turns` or `requests`) from names and texts.

    A name given several times accepts any of its values. Raises ApiError 422 that names the
    filter, for a value that it does not know as well as for a filter that the noun does not have.
    """
    kinds = NOUNS[noun]
    given: dict[str, list[str]] = {}
    for name, text in pairs:
        if name not in kinds:
            raise errors.unprocessable(f"{noun} have no filter {name[:64]!r}", param=name[:64])
        given.setdefault(name, []).append(text)
    query = list(dict.fromkeys(given.get(QUERY, ())))
    if len(query) > 1:
        raise errors.unprocessable(f"{QUERY} can be given once only", param=QUERY)
    conditions = tuple(
        _condition(kinds[name], name, texts) for name, texts in given.items() if name != QUERY
    )
    return Filters(conditions, language.parse(query[0]) if query else ())


def _condition(kind: _Kind, name: str, texts: list[str]) -> Condition:
    if kind.single and len(set(texts)) > 1:
        raise errors.unprocessable(f"{name} can be given once only", param=name)
    try:
        return Condition(name, tuple(kind.read(text) for text in dict.fromkeys(texts)))
    except ValueError as error:
        raise errors.unprocessable(f"{name}: {error}", param=name) from None


def _text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def _choice(*known: str) -> _Kind:
    def read(text: str) -> str:
        if text not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return text

    return _Kind(read)


def _status_code(text: str) -> int | str:
    if text.isascii() and len(text) == 3 and text[0] in "12345":
        if text.isdigit():
            return int(text)
        if text[1:] == "xx":
            return text
    raise ValueError("must be an HTTP status such as 429, or a class of them such as 5xx")


TEXT = _Kind(_text)
IDENTIFIER = _Kind(ids.client_identifier)
ONE_IDENTIFIER = _Kind(ids.client_identifier, single=True)
FLAG = _Kind(_flag, single=True)
TIME = _Kind(clock.parse_time, single=True)
KIND = _choice("chat", "agent")

_SHARED: dict[str, _Kind] = {
    "session_key": IDENTIFIER,
    "kind": KIND,
    "agent": TEXT,
    "model": TEXT,
    "task_id": IDENTIFIER,
    "end_user_id": IDENTIFIER,
    "has_error": FLAG,
    "running": FLAG,
    "since": TIME,
    "until": TIME,
}

NOUNS: dict[str, dict[str, _Kind]] = {
    "sessions": {**_SHARED, "status": _choice(*language.STATUSES), QUERY: TEXT},
    "turns": {
        **_SHARED,
        "status": _choice("queued", "running", "success", "error", "cancelled"),
        "session_id": ONE_IDENTIFIER,
    },
    "requests": {
        **_SHARED,
        "status": _choice("running", "success", "error"),
        "session_id": ONE_IDENTIFIER,
        "turn_id": TEXT,
        "status_code": _Kind(_status_code),
        "provider": TEXT,
    },
}
"""The filters of each noun."""
