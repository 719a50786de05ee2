"""A text cut into passages: whole paragraphs as far as they fit, each with its line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ENOUGH = 600
"""Characters after which a passage ends with its paragraph, or before a heading."""

MOST = 1500
"""Characters that a passage never exceeds."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a text; `line` counts from 1."""

    line: int
    text: str


def cut(text: str) -> Iterator[Passage]:
    """The passages of a text, in order; blank ones are left out."""
    begun, parts, size = 1, list[str](), 0
    for number, line in _lines(text):
        is_break = size >= ENOUGH and (not line.strip() or line.startswith("#"))
        if parts and (is_break or size + len(line) > MOST):
            yield from _passage(begun, parts)
            parts, size = [], 0
        if not parts:
            begun = number
        parts.append(line)
        size += len(line)
    yield from _passage(begun, parts)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line with its number; a long one in pieces."""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        for start in range(0, len(line), MOST):
            yield number, line[start : start + MOST]


def _passage(begun: int, parts: list[str]) -> Iterator[Passage]:
    blank = 0
    while blank < len(parts) and not parts[blank].strip():
        blank += 1
    text = "".join(parts[blank:]).rstrip()
    if text:
        yield Passage(begun + blank, text)
