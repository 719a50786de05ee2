"""Recorded text on a terminal: made harmless, measured in cells, cut and wrapped.

Whatever an application, a model or a tool said may hold escape sequences, characters that turn the
reading direction around, and invisible ones: they are shown as what they are and never do anything.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

TAB = "    "

# All controls but LF, and what is invisible or changes the direction; the joiners U+200C and U+200D
# stay, because Persian, Indic scripts and emoji are spelled with them.
_HARMFUL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_PICTURES, _DELETE, _DELETE_PICTURE = 0x2400, 0x7F, "\u2421"
_CHARACTERS_PER_CELL = 8
"""More than that is a pile of accents on one place."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The first lines of a text, and how many characters are left out."""

    lines: list[str]
    hidden: int


def harmless(text: str) -> str:
    """The text with every dangerous character shown instead of sent; line feeds stay."""
    return _HARMFUL.sub(_shown, text.replace("\r\n", "\n"))


def one_line(text: str, most: int | None = None) -> str:
    """The text on one line, spaces collapsed, harmless; cut to `most` cells."""
    known = text if most is None else text[: (most + 1) * _CHARACTERS_PER_CELL]
    line = " ".join(harmless(known).split())
    if most is None:
        return line
    return cut(line if len(known) == len(text) else f"{line}…", most)


def cells(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def cut(text: str, most: int) -> str:
    """The text in at most so many cells, with an ellipsis where something is left out."""
    if _fitting(text, 0, most) == len(text):
        return text
    return text[: _fitting(text, 0, max(0, most - 1))] + "…"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """The text with blanks up to so many cells, before it if it stands at the right."""
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks


def wrap(text: str, width: int) -> list[str]:
    """The text, harmless already, in lines of at most so many cells; broken at spaces if it can."""
    return [part for line in text.split("\n") for part in _wrapped(line, width)]


def excerpt(text: str, width: int, most: int | None) -> Excerpt:
    """At most so many wrapped, harmless lines of a recorded text; None is all of them."""
    if most is None:
        return Excerpt(wrap(harmless(text.rstrip("\n")), width), 0)
    known = text[: most * width * 2].rstrip("\n")
    lines = wrap(harmless(known), width)
    left = len(text.rstrip("\n")) - len(known)
    return Excerpt(lines[:most], max(0, left) + sum(map(len, lines[most:])))


def _shown(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character == "\t":
        return TAB
    if code < 0x20:
        return chr(_PICTURES + code)
    if code == _DELETE:
        return _DELETE_PICTURE
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _cells_of(character: str) -> int:
    if character < "\u0300":
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _fitting(text: str, start: int, width: int) -> int:
    """Where the part of the text that begins at `start` and takes at most `width` cells ends."""
    limit = min(len(text), start + width * _CHARACTERS_PER_CELL)
    if text.isascii():
        return min(len(text), start + width)
    used = 0
    for at in range(start, limit):
        used += _cells_of(text[at])
        if used > width:
            return at
    return limit


def _wrapped(line: str, width: int) -> list[str]:
    found, start = [], 0
    # At least one character a line, however wide it is.
    while (end := max(start + 1, _fitting(line, start, width))) < len(line):
        space = line.rfind(" ", start, end + 1)
        breaks = space > start and not line[start:space].isspace()
        found.append(line[start : space if breaks else end].rstrip())
        start = space + 1 if breaks else end
    return [*found, line[start:].rstrip()]
