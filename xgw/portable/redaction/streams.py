"""Secrets in streamed answers (SSE), also those that are split over several chunks.

The pieces of one text, or of one call's arguments, are read together: the placeholder stands in the
first piece that a secret touches, the others are emptied of it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from xgw.portable.redaction.chunks import Chunks, Path
from xgw.portable.redaction.finds import Find
from xgw.portable.redaction.json_text import Scan, string_finds

_STREAM = re.compile(r"\ufeff?\s*(?:data|event|id|retry)?:")
_LINE = re.compile(r"(data:[ ]?)?([^\r\n]*)[\r\n]*")


class _Text:
    """The pieces of one text in the order in which they came, with the escapes of JSON."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._places: list[int] = []

    def add(self, raw: str, at: int) -> None:
        self._pieces.append(raw)
        self._places.append(at)

    def finds(self, scan: Scan) -> Iterator[Find]:
        begins = list(accumulate(map(len, self._pieces[:-1]), initial=0))
        for find in string_finds("", "".join(self._pieces), 0, scan):
            yield from self._parts(find, begins)

    def _parts(self, find: Find, begins: list[int]) -> Iterator[Find]:
        number = bisect_right(begins, find.start) - 1
        rest = False
        while number < len(begins) and begins[number] < find.stop:
            begin = begins[number]
            start, stop = max(find.start - begin, 0), find.stop - begin
            stop = min(stop, len(self._pieces[number]))
            if start < stop:
                part = Find(start, stop, find.kind, find.value, find.quote, rest)
                yield part.moved(self._places[number])
                rest = True
            number += 1


def looks_like_stream(text: str) -> bool:
    """Whether `text` begins as server-sent events do."""
    return _STREAM.match(text) is not None


def stream_finds(text: str, scan: Scan) -> Iterator[Find]:
    """Every secret in server-sent events."""
    texts: dict[Path, _Text] = {}
    chunks = Chunks(text)
    for line in _LINE.finditer(text):
        start, stop = line.span(2)
        chunk = chunks.read(start, stop) if line[1] else None
        if chunk is None:
            for find in scan(text[start:stop]):
                yield find.moved(start)
            continue
        clean = True
        for name, at, end in chunk.leaves:
            for find in string_finds(name, text[at:end], at, scan):
                clean = False
                yield find
        if clean:
            chunk.is_clean()
        for path, at, end in chunk.pieces:
            if path not in texts:
                texts[path] = _Text()
            texts[path].add(text[at:end], at)
    for together in texts.values():
        yield from together.finds(scan)
