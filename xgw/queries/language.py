"""The filter language of sessions: `state:running model:gpt-* cost>0.1 "refund"`.

Words are separated by spaces and must all fit; of one word given several times any of its values
may. What has no colon and no comparison is looked for in the session's key, title and first input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from xgw import errors

MAX_CHARACTERS = 1000
MAX_TERMS = 32

STATES = (
    "running",
    "stalled",
    "waiting",
    "paused",
    "queued",
    "done",
    "error",
    "cancelled",
    "empty",
)
STATUSES = ("active", "archived", "closed")
PATTERNS = ("agent", "model", "tool", "error")
NUMBERS = ("cost", "tokens", "attempts")
WORDS = ("state", *PATTERNS, *NUMBERS)
"""What may stand before a colon or a comparison."""

TEXT = "text"
"""The name of what stands alone."""

_HEAD = re.compile(r"([A-Za-z_]+)(:|>=|<=|>|<|=)")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_SPACE = re.compile(r"\s*")
_BARE = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A number and how it is compared: `>`, `>=`, `<`, `<=` or `=`."""

    operator: str
    number: float


@dataclass(frozen=True, slots=True)
class Sought:
    """What is sought: a name of WORDS or TEXT, and values of which one must fit."""

    name: str
    values: tuple[str | Comparison, ...]


def parse(text: str) -> tuple[Sought, ...]:
    """What a query asks for. Raises ApiError 422 `q` that says where it goes wrong."""
    if len(text) > MAX_CHARACTERS:
        raise errors.unprocessable(f"q must not be over {MAX_CHARACTERS} characters", param="q")
    if "\0" in text:  # where SQLite ends a pattern
        _fail(text.index("\0"), "a NUL cannot be looked for")
    terms: list[tuple[str, str | Comparison]] = []
    at = _skip(text, 0)
    while at < len(text):
        term, at = _term(text, at)
        terms.append(term)
        at = _skip(text, at)
    if not terms:
        raise errors.unprocessable("q must hold a word", param="q")
    if len(terms) > MAX_TERMS:
        raise errors.unprocessable(f"q must not hold more than {MAX_TERMS} words", param="q")
    return _grouped(terms)


def quote(text: str) -> str:
    """The query that looks for this very text."""
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'


def _grouped(terms: Iterable[tuple[str, str | Comparison]]) -> tuple[Sought, ...]:
    """Values of one word are choices; texts and comparisons must all fit."""
    choices: dict[str, list[str | Comparison]] = {}
    alone: list[Sought] = []
    for name, value in terms:
        if name == TEXT or name in NUMBERS:
            alone.append(Sought(name, (value,)))
        else:
            choices.setdefault(name, []).append(value)
    return (*(Sought(name, tuple(values)) for name, values in choices.items()), *alone)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _term(text: str, at: int) -> tuple[tuple[str, str | Comparison], int]:
    head = _HEAD.match(text, at)
    if head is None:
        value, end = _value(text, at)
        return (TEXT, value), end
    name, operator = head[1].lower(), head[2]
    if name not in WORDS:
        known = ", ".join(WORDS)
        _fail(at, f"there is no word {name[:32]!r} (there are {known}; put a text in quotes)")
    value, end = _value(text, head.end())
    if not value.strip():
        _fail(head.end(), f"something must follow {head[0]}")
    if name in NUMBERS:
        return (name, _comparison(name, operator, value, head.end())), end
    if operator != ":":
        _fail(head.start(2), f"{name} takes a colon and a text, as in {name}:value")
    return (name, _state(value, head.end()) if name == "state" else value), end


def _state(value: str, at: int) -> str:
    if value.lower() not in (*STATES, *STATUSES):
        _fail(at, f"state must be one of {', '.join((*STATES, *STATUSES))}")
    return value.lower()


def _value(text: str, at: int) -> tuple[str, int]:
    if not text.startswith('"', at):
        bare = _BARE.match(text, at)
        return (bare[0], bare.end()) if bare else ("", at)
    quoted = _QUOTED.match(text, at)
    if quoted is None:
        _fail(at, "the quote that begins here is not closed")
    value = re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL)
    if not value.strip():
        _fail(at, "there is nothing in these quotes")
    return value, quoted.end()


def _comparison(name: str, operator: str, value: str, at: int) -> Comparison:
    if operator == ":":
        _fail(at - 1, f"{name} is compared, as in {name}>1")
    if _NUMBER.fullmatch(value) is None:
        _fail(at, f"{name}{operator} must be followed by a number, not {value[:32]!r}")
    number = float(value)
    if name != "cost" and not number.is_integer():
        _fail(at, f"{name} is a whole number")
    return Comparison(operator, number)


def _fail(at: int, message: str) -> NoReturn:
    """Positions are counted from 1, as people do."""
    raise errors.unprocessable(f"q: {message} (character {at + 1})", param="q")
