"""Large bodies, kept once under the hash of their content.

A JSON request body is kept as a template: its text with each element of `messages` (or `input`)
and the `tools` array replaced by references. The references of a list form a tree of nodes with
sixteen entries each, so that a conversation that resends its history shares all but the last
nodes: N turns cost O(N), not O(N²). Long texts in elements and in other JSON bodies are replaced by
references too, see `rows`. A body is always rebuilt to the very same bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from xgw.store.database import Store
from xgw.store.pins import Pins
from xgw.store.rows import (
    PayloadRow,
    digest,
    entries,
    leads_to,
    node_digest,
    opened,
    put,
    put_literal,
    references,
    row_of,
    spelled_out,
    template_row,
    woven,
)
from xgw.store.templates import LONG, take_apart

__all__ = ["PayloadRow", "Shelf", "Stored", "fold", "load", "load_many", "parts", "sizes"]

FAN_OUT = 16
KNOWN_LIMIT = 32768
BATCH = 400


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Stored:
    """A body's hash and size, the rows that it still needs, and the hashes of its elements."""

    hash: str
    size: int
    rows: tuple[PayloadRow, ...]
    elements: tuple[bytes, ...] = ()


class Shelf:
    """Prepares rows for bodies and remembers which hashes are surely in the store.

    Hashes become known by `committed`, never before, so that a unit that was rolled back cannot
    leave a reference to nothing.
    """

    def __init__(self) -> None:
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
            if self.pins.sweeping:
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
            for key, _, codec, content in stored.rows:
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

    def request(self, body: bytes) -> Stored:
        """A JSON request body; anything else is kept whole."""
        return self._hand_out(self._request, body)

    def _hand_out(self, prepare: Callable[[bytes], Stored], content: bytes) -> Stored:
        while True:
            epoch = self.pins.epoch
            stored = prepare(content)
            if self.pins.hand_out(stored, epoch):
                return stored

    def _whole(self, content: bytes) -> Stored:
        rows: list[PayloadRow] = []
        return Stored(self._add(rows, content), len(content), tuple(rows))

    def _text(self, content: bytes) -> Stored:
        key = digest(content).hex()
        if len(content) < LONG or self.knows(key):
            return self._whole(content)
        rows: list[PayloadRow] = []
        literal = put_literal(rows, orjson.dumps(content.decode()), self.knows)
        rows.append(template_row(key, len(content), [{"t": literal}]))
        return Stored(key, len(content), tuple(rows))

    def _request(self, body: bytes) -> Stored:
        template = take_apart(body)
        if template is None:
            return self._whole(body)
        return self._templated(body, *template)

    def _templated(self, body: bytes, segments: list[Any], elements: list[bytes]) -> Stored:
        key = digest(body).hex()
        hashes = tuple(digest(element) for element in elements)
        if self.knows(key):
            return Stored(key, len(body), (), hashes)
        rows: list[PayloadRow] = []
        written: list[Any] = []
        for segment in segments:
            if isinstance(segment, bytes):
                written.append({"r": self._add_as_it_is(rows, segment)})
            elif isinstance(segment, int):
                written.append({"e": self._add(rows, elements[segment])})
            elif isinstance(segment, dict) and len(elements) <= FAN_OUT:
                named = [self._add(rows, element) for element in elements]
                written.append({"n": named, "s": segment["s"]})
            elif isinstance(segment, dict):
                root = self._add_list(rows, hashes, elements)
                written.append({"l": root, "s": segment["s"]})
            else:
                written.append(segment)
        rows.append(template_row(key, len(body), written))
        return Stored(key, len(body), tuple(rows), hashes)

    def _add(self, rows: list[PayloadRow], content: bytes) -> str:
        key = digest(content).hex()
        if not self.knows(key):
            put(rows, key, content, self.knows)
        return key

    def _add_as_it_is(self, rows: list[PayloadRow], content: bytes) -> str:
        key = digest(content).hex()
        if not self.knows(key):
            rows.append(row_of(key, content))
        return key

    def _add_list(
        self, rows: list[PayloadRow], hashes: Sequence[bytes], elements: Sequence[bytes]
    ) -> str:
        """Rows of a tree over `hashes`; elements under a node that is known are known too."""
        level, below = 0, list(hashes)
        while True:
            nodes = [below[at : at + FAN_OUT] for at in range(0, len(below), FAN_OUT)] or [[]]
            above = []
            for position, node in enumerate(nodes):
                content = bytes([level]) + b"".join(node)
                key = node_digest(content)
                above.append(key)
                if self.knows(key.hex()):
                    continue
                rows.append((key.hex(), len(content), "list", content))
                if level == 0:
                    for element in elements[position * FAN_OUT : (position + 1) * FAN_OUT]:
                        self._add(rows, element)
            if len(above) == 1:
                return above[0].hex()
            level, below = level + 1, above


def fold(hashes: Sequence[bytes]) -> bytes:
    """One hash over a list of element hashes: equal folds are equal histories."""
    return digest(b"".join(hashes))


def load(store: Store, key: str) -> bytes:
    """The bytes behind a hash; LookupError if the store does not have them."""
    return load_many(store, [key])[key]


def load_many(store: Store, keys: Iterable[str]) -> dict[str, bytes]:
    """Bodies by hash, in a few statements whatever their number; LookupError for a missing one."""
    wanted = list(dict.fromkeys(keys))
    with store.reading():
        rows = _fetch(store, wanted)
        _fetch_below(store, rows)
    return {key: _build(rows, key) for key in wanted}


def parts(store: Store, keys: Iterable[str]) -> dict[str, list[str]]:
    """The element hashes of requests' messages, in order, by hash; [] for a body kept whole.

    LookupError for a missing one. One statement for up to FAN_OUT elements, one more for each
    factor of it beyond, whatever the number of requests.
    """
    with store.reading():
        rows = _fetch(store, list(dict.fromkeys(keys)))
        segments = {key: _segments(*row) for key, row in rows.items()}
        _fetch_nodes(store, rows, [s["l"] for each in segments.values() for s in each if "l" in s])
    return {key: _elements(rows, each) for key, each in segments.items()}


def sizes(store: Store, keys: Iterable[str]) -> dict[str, int]:
    """Size in bytes by hash, of those that the store has."""
    wanted = list(dict.fromkeys(keys))
    found: dict[str, int] = {}
    for at in range(0, len(wanted), BATCH):
        batch = tuple(wanted[at : at + BATCH])
        marks = ", ".join("?" * len(batch))
        found.update(store.sql(f"SELECT hash, size FROM payloads WHERE hash IN ({marks})", batch))
    return found


# -- reading -----------------------------------------------------------------------------------


def _fetch(store: Store, keys: Sequence[str]) -> dict[str, tuple[str, bytes]]:
    found: dict[str, tuple[str, bytes]] = {}
    for at in range(0, len(keys), BATCH):
        batch = tuple(keys[at : at + BATCH])
        marks = ", ".join("?" * len(batch))
        rows = store.sql(f"SELECT hash, codec, data FROM payloads WHERE hash IN ({marks})", batch)
        for key, codec, content in rows:
            found[key] = (codec, opened(codec, content))
    missing = [key for key in keys if key not in found]
    if missing:
        raise LookupError(f"payload {missing[0]} is not in the store")
    return found


def _fetch_below(store: Store, rows: dict[str, tuple[str, bytes]]) -> None:
    """Add everything that templates and list nodes refer to, level by level."""
    level = list(rows)
    while level:
        below = {key for parent in level for key in references(*rows[parent])}
        level = [key for key in below if key not in rows]
        rows.update(_fetch(store, level))


def _segments(codec: str, content: bytes) -> list[dict[str, Any]]:
    """What a template refers to."""
    return [s for s in orjson.loads(content) if isinstance(s, dict)] if codec == "parts" else []


def _elements(rows: dict[str, tuple[str, bytes]], segments: Iterable[dict[str, Any]]) -> list[str]:
    found: list[str] = []
    for segment in segments:
        if "s" in segment:
            found += _listed(rows, segment)
        elif "e" in segment:
            found.append(segment["e"])
    return found


def _fetch_nodes(store: Store, rows: dict[str, tuple[str, bytes]], roots: Sequence[str]) -> None:
    """Add the nodes of lists, level by level, without the elements below them."""
    level = list(dict.fromkeys(roots))
    while level:
        nodes = _fetch(store, level)
        rows.update(nodes)
        inner = [node for _, node in nodes.values() if node[0] > 0]
        level = list(dict.fromkeys(key for node in inner for key in entries(node)))


def _leaves(rows: dict[str, tuple[str, bytes]], root: str) -> list[str]:
    node = rows[root][1]
    if node[0] == 0:
        return entries(node)
    return [leaf for entry in entries(node) for leaf in _leaves(rows, entry)]


def _listed(rows: dict[str, tuple[str, bytes]], segment: dict[str, Any]) -> list[str]:
    """The element hashes of a list's segment."""
    if "n" in segment:
        return list(segment["n"])
    return _leaves(rows, segment["l"])


def _build(rows: dict[str, tuple[str, bytes]], key: str) -> bytes:
    codec, content = rows[key]
    if codec == "stream":
        return woven(content, lambda said: _build(rows, said))
    if codec != "parts":
        return content
    built = []
    for segment in orjson.loads(content):
        if isinstance(segment, str):
            built.append(segment.encode())
        elif "s" not in segment:
            (reference,) = segment.values()
            built.append(spelled_out(segment, _build(rows, reference)))
        else:
            parts = (_build(rows, key) for key in _listed(rows, segment))
            built.append(segment["s"].encode().join(parts))
    return b"".join(built)
