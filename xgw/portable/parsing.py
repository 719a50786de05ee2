"""A bundle's file read as it comes: its fields, and the rows of its lists one at a time.

The document is one JSON object, or a JSON object a line, which say the same. What was read of it is
never all in memory: one row or one body is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import ijson

from xgw.portable.refusal import BadBundle
from xgw.portable.unpacking import Unpacked
from xgw.portable.versions import VERSIONS, Piece, Versions

MARK = "xgw_bundle"
PAYLOADS = "payloads"
TABLES = ("sessions", "turns", "runs", "steps", "messages", "request_logs", "events")
LISTS = frozenset({*TABLES, PAYLOADS, "agents"})
"""The fields that hold a list whose entries are read one at a time."""

FIELDS = frozenset({"exported_at", "xgw", "asked_for", "filter", "redaction", "imported"})
LAST = "redaction"
"""What every bundle ends with: where it is missing, the rest is, too."""

MOST_DEPTH = 200
MOST_ROW = 64 << 20
MOST_BODY_TEXT = 512 << 20
"""Bytes that one entry may take in the file."""

_OPENING = frozenset({"start_map", "start_array"})

Event = tuple[str, Any]


def read_pieces(file: Unpacked, versions: Versions = VERSIONS) -> Iterator[Piece]:
    """All that is in a bundle, in order, as the current version has it; BadBundle."""
    pieces = _Pieces(file).read()
    name, value = next(pieces, ("", None))
    if name != MARK:
        raise BadBundle("this is no bundle of xgw: there is nothing in it")
    version = versions.check(value)
    is_whole = False
    for piece in pieces:
        if piece[0] == MARK:
            raise BadBundle(f"the bundle says {MARK!r} twice")
        is_whole = is_whole or piece[0] == LAST
        yield from versions.brought_forward(piece, version)
    if not is_whole:
        raise BadBundle("the bundle is not whole: its end is missing")


class _Events:
    """The events of the parser; an entry's bytes are counted from `begin` on."""

    def __init__(self, file: Unpacked) -> None:
        self._file = file
        self._begun = 0
        self._most = MOST_ROW

    def begin(self, most: int) -> None:
        self._begun, self._most = self._file.unpacked, most

    def __iter__(self) -> Iterator[Event]:
        found: Any = ijson.sendable_list()
        parser = ijson.basic_parse_coro(found, use_float=True, multiple_values=True)
        try:
            for block in self._file:
                parser.send(block)
                yield from found
                del found[:]
                if self._file.unpacked - self._begun > self._most:
                    raise BadBundle(f"one entry of the bundle is over {self._most >> 20} MiB")
            parser.close()
            yield from found
        except ijson.JSONError as error:
            raise _broken(error) from None
        finally:
            # Left open, one written in Python would tell of the rest when it is collected.
            with contextlib.suppress(ijson.JSONError):
                parser.close()


def _broken(error: Exception) -> BadBundle:
    told = error.args[0] if error.args else ""
    text = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
    first = text.partition("\n")[0].strip()[:200]
    if "premature EOF" in first or "Incomplete" in first:
        return BadBundle("the bundle is not whole: it breaks off")
    return BadBundle(f"the bundle is no valid JSON: {first}")


class _Pieces:
    def __init__(self, file: Unpacked) -> None:
        self._source = _Events(file)
        self._events = iter(self._source)
        self._seen: set[str] = set()

    def read(self) -> Iterator[Piece]:
        for event, _ in self._events:
            if event != "start_map":
                raise BadBundle("this is no bundle of xgw: it is no JSON object")
            yield from self._object()

    def _object(self) -> Iterator[Piece]:
        """The document, or a line: a row there has its table first."""
        for event, key in self._events:
            if event == "end_map":
                return
            if key == "table":
                yield self._line()
                return
            if not self._seen and key != MARK:
                raise BadBundle(f"this is no bundle of xgw: it does not begin with {MARK!r}")
            if key in self._seen:
                raise BadBundle(f"the bundle says {_named(key)} twice")
            self._seen.add(key)
            if key in LISTS:
                yield from self._list(key)
            elif key == MARK or key in FIELDS:
                self._source.begin(MOST_ROW)
                yield key, self._next_value()
            else:
                raise BadBundle(f"the bundle has a field that is not known: {_named(key)}")

    def _line(self) -> Piece:
        table = self._next_value()
        if table not in LISTS:
            raise BadBundle(f"the bundle has a table that is not known: {_named(table)}")
        if next(self._events, None) != ("map_key", "row"):
            raise BadBundle(f"a line of {table} has no row")
        self._begin(table)
        row = self._next_value()
        if next(self._events, ("", None))[0] != "end_map":
            raise BadBundle(f"a line of {table} has more than a row")
        return table, row

    def _list(self, name: str) -> Iterator[Piece]:
        if next(self._events, ("", None))[0] != "start_array":
            raise BadBundle(f"{name} is no list")
        self._begin(name)
        for event, value in self._events:
            if event == "end_array":
                return
            yield name, self._value(event, value, 1)
            self._begin(name)

    def _begin(self, name: str) -> None:
        self._source.begin(MOST_BODY_TEXT if name == PAYLOADS else MOST_ROW)

    def _next_value(self) -> Any:
        event, value = next(self._events, ("", None))
        return self._value(event, value, 1)

    def _value(self, event: str, value: Any, depth: int) -> Any:
        if event not in _OPENING:
            return value
        if depth > MOST_DEPTH:
            raise BadBundle(f"the bundle is nested deeper than {MOST_DEPTH} levels")
        if event == "start_array":
            return self._array(depth)
        return self._map(depth)

    def _array(self, depth: int) -> list[Any]:
        made = []
        for event, value in self._events:
            if event == "end_array":
                break
            made.append(self._value(event, value, depth + 1) if event in _OPENING else value)
        return made

    def _map(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for event, key in self._events:
            if event == "end_map":
                break
            if key in made:
                raise BadBundle(f"an object in the bundle says {_named(key)} twice")
            event, value = next(self._events)
            made[key] = self._value(event, value, depth + 1) if event in _OPENING else value
        return made


def _named(key: object) -> str:
    return repr(str(key)[:64])
