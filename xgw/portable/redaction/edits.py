"""Edits: what stands in the place of a part of a text, and where the rest is afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from xgw.frozen import frozen


@frozen
class Edit:
    """`[start:stop]` gives way to `text`."""

    start: int
    stop: int
    text: str


def applied(text: str, edits: Sequence[Edit]) -> str:
    """`text` after edits, which are in its order and not over one another."""
    if not edits:
        return text
    pieces: list[str] = []
    at = 0
    for edit in edits:
        pieces += (text[at : edit.start], edit.text)
        at = edit.stop
    return "".join([*pieces, text[at:]])


def moved_places(places: Sequence[int], edits: Sequence[Edit]) -> list[int]:
    """Where these places, in rising order, are after the edits; one within stays within."""
    found: list[int] = []
    shift, number = 0, 0
    for place in places:
        while number < len(edits) and edits[number].stop <= place:
            shift += _growth(edits[number])
            number += 1
        here = place
        if number < len(edits) and edits[number].start < place:
            edit = edits[number]
            here = edit.start + min(place - edit.start, len(edit.text))
        found.append(here + shift)
    return found


def in_bytes(text: str, edits: Sequence[Edit]) -> list[Edit]:
    """The same edits by the bytes of the text in UTF-8."""
    if text.isascii():
        return list(edits)
    found: list[Edit] = []
    at, size = 0, 0
    for edit in edits:
        start = size + _size(text[at : edit.start])
        size = start + _size(text[edit.start : edit.stop])
        found.append(Edit(start, size, edit.text))
        at = edit.stop
    return found


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _growth(edit: Edit) -> int:
    return len(edit.text) - (edit.stop - edit.start)
