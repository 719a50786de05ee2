"""Long texts and bodies cut to what a page shows; how large they are in whole is told beside."""

from __future__ import annotations

from typing import Any

import orjson

MOST = 256 * 1024
"""Bytes of a text or a body that are shown."""

DEEPEST = 64
"""Levels of a JSON value that are looked into; what lies deeper is there whole or not at all."""


def cut_text(text: str, most: int = MOST) -> tuple[str, int | None]:
    """The text, and its size in bytes where it had to be cut at `most` of them."""
    if len(text) * 4 <= most:
        return text, None
    encoded = text.encode(errors="replace")
    if len(encoded) <= most:
        return text, None
    return encoded[:most].decode(errors="ignore"), len(encoded)


def cut_json(value: Any, most: int = MOST) -> tuple[Any, int | None]:
    """A JSON value, and its size as JSON in bytes where something had to go.

    Strings are cut, and elements and fields left out at the end, once about `most` bytes are there.
    """
    size = len(orjson.dumps(value))
    if size <= most:
        return value, None
    return _Cutter(most).take(value, 0), size


def cut_columns(row: dict[str, Any], names: tuple[str, ...], most: int = MOST) -> None:
    """Cut these columns, and put into `cut` the whole size in bytes of each that was too large."""
    row["cut"] = {}
    for name in names:
        value = row[name]
        if value is None:
            continue
        shown, size = cut_text(value, most) if isinstance(value, str) else cut_json(value, most)
        if size is not None:
            row[name] = shown
            row["cut"][name] = size


class _Cutter:
    """Takes values while there is room for them."""

    def __init__(self, room: int) -> None:
        self._room = room

    def take(self, value: Any, depth: int) -> Any:
        if depth < DEEPEST:
            if isinstance(value, dict):
                return self._fields(value, depth)
            if isinstance(value, list):
                return self._elements(value, depth)
        if isinstance(value, str):
            shown, _ = cut_text(value, max(0, self._room))
            self._room -= len(shown.encode(errors="replace")) + 3
            return shown
        size = len(orjson.dumps(value)) + 1
        self._room -= size
        return value if self._room >= 0 else None

    def _fields(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        taken: dict[str, Any] = {}
        for name, inner in value.items():
            self._room -= len(name.encode(errors="replace")) + 4
            if self._room <= 0:
                break
            taken[name] = self.take(inner, depth + 1)
        return taken

    def _elements(self, value: list[Any], depth: int) -> list[Any]:
        taken: list[Any] = []
        for inner in value:
            if self._room <= 0:
                break
            taken.append(self.take(inner, depth + 1))
        return taken
