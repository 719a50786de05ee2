"""The bundle: one document that holds all that was recorded of something, as JSON or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from xgw.portable.chosen import TABLES
from xgw.portable.source import Source


def write_json(source: Source, out: BinaryIO) -> None:
    """One JSON object, a row a line."""
    out.write(b"{\n")
    for name, value in source.head().items():
        out.write(_member(name, value) + b",\n")
    for table in TABLES:
        _write_list(out, table, map(spelled, source.rows(table)))
    _write_list(out, "agents", map(spelled, source.agents()))
    _write_list(out, "payloads", source.payloads())
    out.write(b",\n".join(_member(name, value) for name, value in source.tail().items()))
    out.write(b"\n}\n")


def write_lines(source: Source, out: BinaryIO) -> None:
    """A JSON object a line: the head, then `{"table", "row"}` each, last what is behind them."""
    out.write(spelled(source.head()) + b"\n")
    for table in TABLES:
        for row in source.rows(table):
            out.write(_line(table, spelled(row)))
    for agent in source.agents():
        out.write(_line("agents", spelled(agent)))
    for payload in source.payloads():
        out.write(_line("payloads", payload))
    out.write(spelled(source.tail()) + b"\n")


def spelled(value: Any) -> bytes:
    """A value as JSON; half of a surrogate pair is an escape."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _member(name: str, value: Any) -> bytes:
    return orjson.dumps(name) + b": " + spelled(value)


def _line(table: str, row: bytes) -> bytes:
    return b'{"table":"%b","row":%b}\n' % (table.encode(), row)


def _write_list(out: BinaryIO, name: str, rows: Iterator[bytes]) -> None:
    out.write(orjson.dumps(name) + b": [")
    gap = b"\n"
    for row in rows:
        out.write(gap + row)
        gap = b",\n"
    out.write(b"],\n" if gap == b"\n" else b"\n],\n")
