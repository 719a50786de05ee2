"""What an export would hold, before it leaves: rows and bytes by kind, and what is masked.

Of many things the newest are looked at, as many as there is time for.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from xgw import clock
from xgw.frozen import changed, frozen
from xgw.portable.bundle import spelled
from xgw.portable.chosen import TABLES
from xgw.portable.selection import Selection
from xgw.portable.source import Asked, Source
from xgw.portable.writing import FORMATS, written
from xgw.store.database import Store

Json = dict[str, Any]

SECONDS = 2.0
MOST_MORE = 16
"""Times as many as before that are looked at next: some are far larger than others."""


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
        again = changed(asked, redactor=asked.redactor.renewed())
        written(store, again, tally.write, out)
    return Preview(tally.parts, size, tally.masked, told)


@frozen
class Sample:
    """A preview of what was `looked_at` first, of `found` things; of more if not `all_counted`."""

    seen: Preview
    looked_at: int
    found: int
    all_counted: bool


class _OutOfTime(Exception):
    pass


def sample(
    store: Store, asked: Asked, format: str, selection: Selection, seconds: float = SECONDS
) -> Sample:
    """A preview of the newest of a selection, of all of it if that takes no longer.

    Takes twice as long at most, but for the first one, which is looked at however large it is.
    """
    begun = clock.monotonic()
    found, all_counted = selection.count(begun + seconds / 2)
    number, seen = 1, _of_first(store, asked, format, selection, 1, None)
    while number < found and (more := _number(number, clock.monotonic() - begun, seconds)):
        whole = more >= found and all_counted
        try:
            seen = _of_first(
                store, asked, format, selection, None if whole else more, begun + 2 * seconds
            )
        except _OutOfTime:
            break
        number = min(more, found)
    return Sample(seen, min(number, found), found, all_counted)


def _number(number: int, passed: float, seconds: float) -> int:
    """How many can be looked at in the time that is left; 0 if it is not worth it."""
    left = seconds - passed
    more = min(number * MOST_MORE, int(number * left / max(passed, 0.001)))
    return more if more >= 2 * number else 0


def _of_first(
    store: Store,
    asked: Asked,
    format: str,
    selection: Selection,
    number: int | None,
    until: float | None,
) -> Preview:
    """A preview of the first so many, of all without a number; _OutOfTime."""

    def before_row() -> None:
        if until is not None and clock.monotonic() > until:
            raise _OutOfTime

    asked = changed(asked, before_row=before_row, redactor=asked.redactor.renewed())
    if number is not None:
        roots = list(itertools.islice(selection, number))
        asked = changed(asked, roots=roots, filter=asked.filter or {})
    return preview(store, asked, format)


def _part(name: str, lines: Iterator[bytes]) -> Part:
    rows = size = 0
    for line in lines:
        rows, size = rows + 1, size + len(line)
    return Part(name, rows, size)
