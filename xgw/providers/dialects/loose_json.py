"""JSON as servers send it: read what a strict parser refuses, edit it without touching the rest.

Python servers print NaN and infinities, JavaScript ones cut surrogate pairs in half, and some send
numbers beyond a double or bytes that are not UTF-8. orjson and msgspec refuse all of these.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec
import orjson

Members = dict[str, msgspec.Raw]
"""The members of a JSON object, each value as its bytes stood."""

DEEPEST_RECORD = 100
"""Levels of nesting that are kept of an answer; what lies deeper is relayed, but not recorded."""

MARKS_READ = 8192

_MARK = re.compile(rb'[\[\]{}]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_OBJECT = msgspec.json.Decoder(Members)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_LARGEST_INTEGER = 2**63 - 1

_CONSTANT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?(?:NaN|Infinity)', re.DOTALL)
# A surrogate's escape, alone or with its other half; a backslash before it must be no escaped one.
_SURROGATES = re.compile(
    rb"(?<!\\)((?:\\\\)*+)(?:\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\u([dD][89a-fA-F][0-9a-fA-F]{2}))"
)
# Stands for the `\u` of a lone surrogate while msgspec reads the text: nobody can guess it.
_LONE = secrets.token_urlsafe(12).encode()


def parse_loose(text: bytes, *, constants: bool = True) -> Any:
    """The value of JSON that may hold lone surrogates, numbers beyond a double, bad UTF-8 (U+FFFD).

    With `constants` also NaN and infinities, as None. Lone surrogates are in the strings; see
    `storable`. Raises ValueError for anything else.
    """
    try:
        decoded = text.decode("utf-8-sig", "replace") if constants else text.decode()
        return json.loads(decoded, parse_constant=_as_none if constants else _refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_and_judge(text: bytes) -> tuple[Any, bool]:
    """The value of an answer's JSON, fit to be stored, and whether a strict parser read it.

    Raises ValueError if it is not JSON.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return storable(parse_loose(text)), False
    return (storable(value) if is_deeper(text, value, DEEPEST_RECORD) else value), True


def null_constants(text: bytes) -> bytes:
    """JSON text with NaN and infinities as null, the very same bytes if there are none.

    `text` must be JSON otherwise: an open string would take time in the square of its length.
    """
    if b"NaN" not in text and b"Infinity" not in text:
        return text
    return _replace(_CONSTANT, text, lambda m: None if m[0].startswith(b'"') else b"null")


def storable(value: Any, levels: int = DEEPEST_RECORD) -> Any:
    """`value` as every JSON writer and UTF-8 takes it.

    Lone surrogates become U+FFFD; NaN, infinities and what lies deeper than `levels` become None;
    integers beyond 64 bits become floats.
    """
    if type(value) is int:
        return value if abs(value) <= _LARGEST_INTEGER else _as_float(value)
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        if levels <= 0:
            return None
        return {
            # Of most objects, counts above all, no value needs a look of its own.
            encodable(str(k)): v
            if type(v) is int and 0 <= v <= _LARGEST_INTEGER
            else storable(v, levels - 1)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [storable(v, levels - 1) for v in value] if levels > 0 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _as_float(value: int) -> float | None:
    """A number that is too large for an integer; None where it is for a float, too."""
    return float(value) if value.bit_length() < 1024 else None


def encodable(text: str) -> str:
    """`text` with halves of surrogate pairs joined, and lone ones as U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def json_text(value: Any) -> str:
    """`value` as compact JSON text."""
    return orjson.dumps(storable(value)).decode()


def is_deeper(text: bytes, value: Any, levels: int) -> bool:
    """Whether `value`, parsed from `text`, nests arrays and objects deeper than `levels`."""
    if not _opens_more(text, levels):
        return False
    layer = [value]
    for _ in range(levels):
        layer = [part for outer in layer for part in _parts(outer)]
        if not layer:
            return False
    return True


def _opens_more(text: bytes, most: int) -> bool:
    """Whether `text` has more than `most` opening brackets and braces."""
    # Most have few, between which `find` goes ten times as fast as `count` does; it also ends here.
    for mark in (b"{", b"["):
        at = text.find(mark)
        while at >= 0:
            most -= 1
            if most < 0:
                return True
            at = text.find(mark, at + 1)
    return False


def tell_fault(text: bytes, error: orjson.JSONDecodeError) -> str:
    """Why a strict parser refuses the text, for people; else in orjson's own words."""
    if not text.strip():
        return "it is empty"
    try:
        text.decode()
    except UnicodeDecodeError as odd:
        return f"it is not UTF-8 (byte {odd.start})"
    return str(error)


def begins_deeper(text: bytes, levels: int) -> bool:
    """Whether text that no parser takes opens more arrays and objects in one another than `levels`.

    Parsers may give up on it with words of their own, such as of memory. It is looked at as far as
    a few thousand marks: whoever nests deep does so there.
    """
    depth = 0
    for found in islice(_MARK.finditer(text), MARKS_READ):
        mark = found[0]
        depth += mark in b"[{" or -(mark in b"]}")
        if depth > levels:
            return True
    return False


def _parts(value: Any) -> list[Any]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [part for part in parts if isinstance(part, (dict, list))]


def members(text: bytes | msgspec.Raw) -> Members:
    """The members of a JSON object (a repeated name: the last). Raises msgspec.DecodeError."""
    return _OBJECT.decode(text)


def elements(text: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    """The elements of a JSON array. Raises msgspec.DecodeError."""
    return _LIST.decode(text)


def raw(value: Any) -> msgspec.Raw:
    """`value`, `Members` and lists of raw values included, as raw JSON."""
    return msgspec.Raw(msgspec.json.encode(value))


def hide_lone_surrogates(text: bytes) -> bytes:
    """JSON text that msgspec can read; `show_lone_surrogates` undoes it after any edit."""
    return _replace(_SURROGATES, text, lambda m: m[1] + _LONE + m[2] if m[2] else None)


def show_lone_surrogates(text: bytes) -> bytes:
    """What `hide_lone_surrogates` hid, as it was."""
    return text.replace(_LONE, b"\\u")


def _replace(
    pattern: re.Pattern[bytes], text: bytes, new: Callable[[re.Match[bytes]], bytes | None]
) -> bytes:
    """`text` with some matches replaced; where most stay, `re.sub` would take far more memory."""
    changed = bytearray()
    done = 0
    for match in pattern.finditer(text):
        replacement = new(match)
        if replacement is not None:
            changed += text[done : match.start()]
            changed += replacement
            done = match.end()
    return bytes(changed + text[done:]) if done else text


def _as_none(_: str) -> None:
    return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
