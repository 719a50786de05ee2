"""What an export would hold, before it leaves: rows and bytes by kind, and what is masked."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from xgw.frozen import frozen
from xgw.portable.bundle import spelled
from xgw.portable.chosen import TABLES
from xgw.portable.source import Asked, Source
from xgw.portable.writing import FORMATS, written
from xgw.store.database import Store

Json = dict[str, Any]


@frozen
class Part:
    """The rows of one kind, and how many bytes of JSON they are."""

    name: str
    rows: int
    bytes: int


@frozen
class Preview:
    """What would leave.

    `size` is that of the document, `masked` what is said of it there, `left_out` what the format
    cannot tell, in words.
    """

    parts: tuple[Part, ...]
    size: int
    masked: list[Json]
    left_out: list[str]


class _Tally:
    """Counts what a source tells."""

    def __init__(self) -> None:
        self.parts: tuple[Part, ...] = ()
        self.masked: list[Json] = []

    def write(self, source: Source, out: BinaryIO) -> None:
        """Counts all of it, and writes nothing."""
        rows = [_part(table, map(spelled, source.rows(table))) for table in TABLES]
        agents = _part("agents", map(spelled, source.agents()))
        self.parts = (*rows, agents, _part("payloads", source.payloads()))
        self.masked = source.tail()["redaction"]["masked"]


def preview(store: Store, asked: Asked, format: str) -> Preview:
    """What an export in this format would hold now; it is made, measured and thrown away."""
    tally = _Tally()
    with tempfile.TemporaryFile() as out:
        told = written(store, asked, FORMATS[format].write, out)
        size = out.tell()
        again = replace(asked, redactor=asked.redactor.renewed())
        written(store, again, tally.write, out)
    return Preview(tally.parts, size, tally.masked, told)


def _part(name: str, lines: Iterator[bytes]) -> Part:
    rows = size = 0
    for line in lines:
        rows, size = rows + 1, size + len(line)
    return Part(name, rows, size)
