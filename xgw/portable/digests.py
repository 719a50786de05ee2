"""Hashes of bodies that are put together from parts; what such a one begins with is hashed once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

Part = str | dict[str, Any]
Pieces = Callable[[str], Iterator[bytes]]

REMEMBERED = 64
"""Conversations whose newest body is remembered."""


class Digests:
    """Hash and size of what parts make; `pieces` gives the content behind a reference.

    A conversation sends all that it sent before, and something more.
    """

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._latest: OrderedDict[str, tuple[Sequence[Part], list[tuple[Any, int]]]] = OrderedDict()

    def of(self, parts: Sequence[Part]) -> tuple[str, int]:
        """Of these parts, one after the other."""
        name = repr(parts[:2])
        before, states = self._latest.pop(name, ((), [(blake2b(digest_size=16), 0)]))
        alike = 0
        while alike < min(len(parts), len(before)) and parts[alike] == before[alike]:
            alike += 1
        states = states[: alike + 1]
        for part in parts[alike:]:
            states.append(self._then(*states[-1], part))
        self._latest[name] = (parts, states)
        if len(self._latest) > REMEMBERED:
            self._latest.popitem(last=False)
        state, size = states[-1]
        return state.hexdigest(), size

    def _then(self, state: Any, size: int, part: Part) -> tuple[Any, int]:
        grown = state.copy()
        for piece in (part.encode(),) if isinstance(part, str) else self._pieces(part["ref"]):
            grown.update(piece)
            size += len(piece)
        return grown, size
