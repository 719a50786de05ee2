r"""Other spellings of a text: what it says once its escapes are read, and where each one stood.

A secret hides from whoever reads the raw text in `\u0040` (JSON) and `%40` (URLs).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property

from xgw.portable.redaction.finds import Find

_ESCAPE = re.compile(
    r"\\(?:u([Dd][89ABab][0-9A-Fa-f]{2})\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|(.))",
    re.DOTALL,
)
_PERCENT = re.compile("%([2-7][0-9A-Fa-f])")
_ENTITY = re.compile(r"&(?:#(\d{2,3})|#[xX]([0-9A-Fa-f]{2})|amp|quot);")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_NAMED = {"&amp;": "&", "&quot;": '"'}


Escape = tuple[int, int, str]
"""Where it stands in the raw text, and what it means: one character."""


class Spelling:
    """A text without its escapes; `back` takes what was found there to the raw text."""

    def __init__(
        self, raw: str, escapes: Callable[[str], Iterator[Escape]], text: str | None = None
    ) -> None:
        self._raw, self._escapes = raw, escapes
        self.text = _without(raw, escapes(raw)) if text is None else text

    def back(self, find: Find) -> Find:
        """The same secret where it stands in the raw text."""
        quote = find.quote
        if quote and self._escapes is _json_escapes:
            quote = quote.replace("\\", "\\\\").replace('"', '\\"')
        return find.at(self._place(find.start), self._place(find.stop), quote)

    @cached_property
    def _steps(self) -> tuple[list[int], list[int]]:
        """Where escapes and what follows them begin: in the text, and in the raw one."""
        here, there = [0], [0]
        at = size = 0
        for start, stop, _ in self._escapes(self._raw):
            size += start - at
            here += (size, size + 1)
            there += (start, stop)
            size, at = size + 1, stop
        return here, there

    def _place(self, at: int) -> int:
        here, there = self._steps
        number = bisect_right(here, at) - 1
        return there[number] + at - here[number]


def json_spelling(raw: str) -> Spelling:
    """What the inside of a JSON string says. Halves of a pair stay halves."""
    try:
        return Spelling(raw, _json_escapes, json.loads(f'"{raw}"', strict=False))
    except ValueError:
        return Spelling(raw, _json_escapes)


def other_spellings(text: str) -> Iterator[Spelling]:
    """What a text says where it is escaped as JSON, URLs or markup are."""
    if "\\u00" in text:
        yield json_spelling(text)
    if "%" in text and _PERCENT.search(text):
        yield Spelling(text, _percents)
    if "&" in text and _ENTITY.search(text):
        yield Spelling(text, _entities)


def _without(raw: str, escapes: Iterator[Escape]) -> str:
    pieces: list[str] = []
    at = 0
    for start, stop, meant in escapes:
        pieces += (raw[at:start], meant)
        at = stop
    return "".join([*pieces, raw[at:]])


def _json_escapes(raw: str) -> Iterator[Escape]:
    for found in _ESCAPE.finditer(raw):
        high, low, code, letter = found.groups()
        if high:
            pair = (int(high, 16), int(low, 16))
            meant = chr(0x10000 + ((pair[0] & 0x3FF) << 10) + (pair[1] & 0x3FF))
        else:
            meant = chr(int(code, 16)) if code else _LETTERS.get(letter, letter)
        yield found.start(), found.end(), meant


def _percents(text: str) -> Iterator[Escape]:
    for found in _PERCENT.finditer(text):
        yield found.start(), found.end(), chr(int(found[1], 16))


def _entities(text: str) -> Iterator[Escape]:
    for found in _ENTITY.finditer(text):
        decimal, hexadecimal = found.groups()
        code = int(decimal) if decimal else int(hexadecimal or "0", 16)
        yield found.start(), found.end(), chr(code) if code else _NAMED[found[0]]
