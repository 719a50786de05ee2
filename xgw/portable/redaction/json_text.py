"""Secrets in JSON text: each string is read without its escapes, and its field's name counts.

The text may be broken, and strings may hold JSON again, as the arguments of tool calls do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from xgw.portable.redaction.finds import Find
from xgw.portable.redaction.names import (
    HEADERS,
    is_credential,
    is_nothing,
    is_secret,
    kind_of,
    names_person,
    scheme_end,
    sureness,
)
from xgw.portable.redaction.people import is_card, is_phone
from xgw.portable.redaction.spellings import json_spelling

Scan = Callable[[str], Iterable[Find]]
"""Finds what is secret in a text that is not JSON."""

_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)(?:"(\s*+:)?+|\Z)', re.DOTALL)
_LIST = re.compile(r"\s*+\[")
_NUMBER = re.compile(r"\s*+(-?\d[\d.eE+-]*)")
_LOGPROB = re.compile(r'"?\s*,\s*"(?:logprob|bytes|id|text_offset)"')
_BEGIN = re.compile(r'\s*+(?:\{\s*+(?:"|\})|\[\s*+(?:[\[{"\d-]|\]|true|false|null))')


def looks_like_json(text: str) -> bool:
    """Whether `text` begins as a JSON object or list does."""
    return _BEGIN.match(text) is not None


def is_json(text: str) -> bool:
    """Whether `text` is JSON to its end."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def json_finds(text: str, scan: Scan) -> Iterator[Find]:
    """Every secret in JSON text."""
    name, named_to, previous = "", -1, ""
    for found in _STRING.finditer(text):
        start, stop = found.span(1)
        inner = found[1]
        if found[2]:
            yield from string_finds("", inner, start, scan)
            name = json_spelling(inner).text if "\\" in inner else inner
            named_to = _reach(text, found.end(), name)
            if named_to < 0 and _matters(name):
                yield from _number(text, found.end(), name)
            continue
        within = start - 1 <= named_to
        field = name if within else ""
        if previous in HEADERS and field in ("", "value") and is_credential(inner):
            field = previous
        if field == "token" and _LOGPROB.match(text, stop):
            field = ""
        yield from string_finds(field, inner, start, scan)
        previous = inner.lower() if len(inner) < 32 else ""


def string_finds(name: str, inner: str, at: int, scan: Scan) -> Iterator[Find]:
    """The secrets of one string, whose inside stands at `at`, in a field of this name."""
    if not inner:
        return
    if "\\" not in inner:
        for find in value_finds(name, inner, scan):
            yield find.moved(at)
        return
    spelling = json_spelling(inner)
    for find in value_finds(name, spelling.text, scan):
        yield spelling.back(find).moved(at)


def value_finds(name: str, value: str, scan: Scan) -> Iterable[Find]:
    """The secrets of what a field of this name holds: all of it, or what it says."""
    if name and (whole := _whole(name, value)):
        return [whole]
    return scan(value)


def _whole(name: str, value: str) -> Find | None:
    how = sureness(name)
    if how and is_secret(value, how):
        start = scheme_end(value)
        return (
            None
            if is_nothing(value[start:])
            else Find(start, len(value), kind_of(name), value[start:])
        )
    person = names_person(name)
    if person == "phone" and is_phone(value):
        return Find(0, len(value), "phone", "".join(c for c in value if c.isdigit() or c == "+"))
    return None


def field_name(name: str, of: Mapping[str, Any]) -> str:
    """The name that a field's value is judged by: a token with a probability is a piece of text."""
    return "" if name == "token" and "logprob" in of else name


def number_find(name: str, digits: str) -> Find | None:
    """A number that is a password, a card's or a phone's."""
    person = names_person(name)
    if sureness(name) == "sure":
        return Find(0, len(digits), "secret", digits, '"') if len(digits) > 2 else None
    if (person == "card" and is_card(digits)) or (person == "phone" and is_phone(digits)):
        return Find(0, len(digits), person, digits, '"')
    return None


def _matters(name: str) -> bool:
    return sureness(name) == "sure" or names_person(name) is not None


def _reach(text: str, at: int, name: str) -> int:
    """How far the strings behind a colon go by this name: one string, or those of a list."""
    listed = _LIST.match(text, at)
    if listed is None:
        while text[at : at + 1].isspace():
            at += 1
        return at if text[at : at + 1] == '"' else -1
    if sureness(name) is None and names_person(name) is None:
        return -1
    end = text.find("]", at)
    return end if end >= 0 else len(text)


def _number(text: str, at: int, name: str) -> Iterator[Find]:
    found = _NUMBER.match(text, at)
    if found and (find := number_find(name, found[1])):
        yield find.moved(found.start(1))
