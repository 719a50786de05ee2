"""Large bodies, kept once under the hash of their content.

A JSON request body is kept as a template: its text with each element of `messages` (or `input`)
and the `tools` array replaced by references. The references of a list form a tree of nodes with
sixteen entries each, and those that fill no node stand in the template, so that a conversation that
resends its history shares all but the last few: N turns cost O(N), not O(N²). Long texts in
elements and in other JSON bodies are replaced by references too, see `rows`. A body is always
rebuilt to the very same bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import orjson

from xgw.frozen import frozen_thing
from xgw.resent import HASH_BYTES, Body, Hashes, Run, grown
from xgw.store.listing import FAN_OUT, Listed, goes_on, levels_over
from xgw.store.pins import Pins
from xgw.store.rebuilding import find_listed, find_many, load, load_many, parts, sizes
from xgw.store.rows import (
    PayloadRow,
    digest,
    leads_to,
    packed_rows,
    put,
    put_literal,
    row_of,
    template_row,
    untouched_row,
)
from xgw.store.templates import LONG, Apart, take_apart

__all__ = [
    "PayloadRow",
    "Shelf",
    "Stored",
    "find_listed",
    "find_many",
    "fold",
    "load",
    "load_many",
    "parts",
    "sizes",
]

KNOWN_LIMIT = 32768
RUNS_FROM = 32768
"""Bytes from which it pays to note what was worked out of a body."""

NO_HASHES = Hashes()
Content = TypeVar("Content", bytes, Body)


@frozen_thing
class Stored:
    """A body's hash and size, the rows that it still needs, and the hashes of its elements.

    `run` is what a body that begins with the same elements need not work out again; None for
    short bodies, and for those whose elements are spaced unevenly.
    """

    hash: str
    size: int
    rows: tuple[PayloadRow, ...]
    elements: Hashes = NO_HASHES
    run: Run | None = None


class Shelf:
    """Prepares rows for bodies and remembers which hashes are surely in the store.

    Hashes become known by `committed`, never before, so that a unit that was rolled back cannot
    leave a reference to nothing. `others_delete`: another process may delete payloads here, so that
    nothing is ever surely in the store. `packs`: bodies are taken apart and packed at once; else it
    is left to the transaction.
    """

    def __init__(self, *, others_delete: bool = False, packs: bool = True) -> None:
        self._others_delete = others_delete
        self._packs = packs
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._before: set[str] = set()
        self.pins = Pins()

    def knows(self, key: str) -> bool:
        """Whether the store has this hash for sure."""
        return not self.pins.sweeping and (key in self._known or key in self._before)

    def committed(self, rows: Iterable[PayloadRow]) -> None:
        """These rows were committed."""
        with self._lock:
            if self.pins.sweeping or self._others_delete:
                return
            if len(self._known) > KNOWN_LIMIT:
                self._before, self._known = self._known, set()
            self._known.update(row[0] for row in rows)

    def clear(self) -> None:
        """Forget everything: rows may have been deleted."""
        with self._lock:
            self._known, self._before = set(), set()

    def begin_sweep(self) -> set[str]:
        """Rows are about to be deleted; returns the hashes that bodies in someone's hands need.

        Until `end_sweep` whatever is handed out is pinned, and comes with all of its rows.
        """
        in_hands = self.pins.begin()
        self.clear()
        needed = {stored.hash for stored in in_hands}
        for stored in in_hands:
            for key, _, codec, content in packed_rows(stored.rows, set()):
                needed.update((key, *leads_to(codec, content)))
        return needed

    def end_sweep(self) -> None:
        """No more rows are deleted."""
        self.pins.end()

    def whole(self, content: bytes) -> Stored:
        """Any body; if it is JSON, its long texts are kept by themselves."""
        return self._hand_out(self._whole, content)

    def text(self, text: str) -> Stored:
        """A body that is nothing but this text; kept once with the bodies that have it inside."""
        return self._hand_out(self._text, text.encode("utf-8", "replace"))

    def request(self, body: bytes | Body) -> Stored:
        """A JSON request body; anything else is kept whole."""
        given = body if isinstance(body, Body) else Body.plain(body)
        return self._hand_out(self._request, given)

    def _hand_out(self, prepare: Callable[[Content], Stored], content: Content) -> Stored:
        while True:
            epoch = self.pins.epoch
            stored = prepare(content)
            if self.pins.hand_out(stored, epoch):
                return stored

    def _whole(self, content: bytes) -> Stored:
        rows: list[PayloadRow] = []
        return Stored(self._add(rows, content), len(content), self._ready(rows))

    def _text(self, content: bytes) -> Stored:
        key = digest(content).hex()
        if len(content) < LONG or self.knows(key):
            return self._whole(content)
        rows: list[PayloadRow] = []
        literal = put_literal(rows, orjson.dumps(content.decode()), self.knows)
        rows.append(template_row(key, len(content), [{"t": literal}]))
        return Stored(key, len(content), self._ready(rows))

    def _request(self, body: Body) -> Stored:
        apart = take_apart(body.folded)
        if body.run is not None and not goes_on(body, apart):
            body = Body.plain(body.whole)
            apart = take_apart(body.whole)
        if apart is None:
            return self._whole(body.whole)
        return self._templated(body, apart)

    def _templated(self, body: Body, apart: Apart) -> Stored:
        listed = Listed.of(body.run, apart)
        hashes, size, run = listed.hashes, body.size, None
        if size >= RUNS_FROM and apart.gap is not None:
            run, own = grown(body, apart.before, listed.new, apart.gap, hashes, apart.after)
            key = own.hex()
        else:
            key = digest(body.whole).hex()
        if self.knows(key):
            return Stored(key, size, (), hashes, run)
        rows: list[PayloadRow] = []
        written: list[Any] = []
        for segment in apart.segments():
            if isinstance(segment, bytes):
                written.append({"r": self._add_as_it_is(rows, segment)})
            elif isinstance(segment, int):
                written.append({"e": self._add_element(rows, listed, segment)})
            elif isinstance(segment, dict):
                written += self._add_list(rows, listed, segment["s"])
            else:
                written.append(segment)
        rows.append(template_row(key, size, written))
        return Stored(key, size, self._ready(rows), hashes, run)

    def _ready(self, rows: Iterable[PayloadRow]) -> tuple[PayloadRow, ...]:
        """While a sweep is under way, all that comes with a body has to be known: it is pinned."""
        is_whole = self._packs or self.pins.sweeping
        return tuple(packed_rows(rows, set()) if is_whole else rows)

    def _put(self, rows: list[PayloadRow], key: str, content: bytes) -> None:
        if self._packs:
            put(rows, key, content, self.knows)
        else:
            rows.append(untouched_row(key, content))

    def _add(self, rows: list[PayloadRow], content: bytes) -> str:
        key = digest(content).hex()
        if not self.knows(key):
            self._put(rows, key, content)
        return key

    def _add_element(self, rows: list[PayloadRow], listed: Listed, position: int) -> str:
        key = listed.hashes[position].hex()
        if not self.knows(key):
            self._put(rows, key, listed.element(position))
        return key

    def _add_as_it_is(self, rows: list[PayloadRow], content: bytes) -> str:
        key = digest(content).hex()
        if not self.knows(key):
            rows.append(row_of(key, content))
        return key

    def _add_list(self, rows: list[PayloadRow], listed: Listed, gap: str) -> list[Any]:
        """Segments of a list: a tree for all that fills nodes of it, and the names of the rest."""
        count = len(listed.hashes)
        treed = count - count % FAN_OUT if count > FAN_OUT else 0
        rest = [self._add_element(rows, listed, n) for n in range(treed, count)]
        named = {"n": rest, "s": gap}
        if not treed:
            return [named]
        tree = {"l": self._add_tree(rows, listed, treed), "s": gap}
        return [tree, gap, named] if rest else [tree]

    def _add_tree(self, rows: list[PayloadRow], listed: Listed, count: int) -> str:
        """Rows of a tree over the first hashes; what is under a node that is known is known too."""
        levels = levels_over(listed.hashes[:count].joined)
        unknown = [0]
        for level in range(len(levels) - 1, -1, -1):
            below: list[int] = []
            for number in unknown:
                key, content = levels[level][number]
                if not self.knows(key.hex()):
                    rows.append((key.hex(), len(content), "list", content))
                    below += range(number * FAN_OUT, number * FAN_OUT + len(content) // HASH_BYTES)
            unknown = below
        for position in unknown:
            self._add_element(rows, listed, position)
        return levels[-1][0][0].hex()


def fold(hashes: Hashes) -> bytes:
    """One hash over a list of element hashes: equal folds are equal histories."""
    return hashes.fold
