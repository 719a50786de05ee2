"""Bodies on their way into a bundle: each once, what it is put together from before it.

A request that resends its history is a list of references, as it is in the store: to its messages,
and to each sixteen, 256 … of them together, so that N turns take O(N) here too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, BinaryIO

import orjson

from xgw.portable.scratch import Scratch
from xgw.store import payloads
from xgw.store.database import Store
from xgw.store.digits import packed_hash
from xgw.store.listing import FAN_OUT
from xgw.store.rows import digest, entries, opened, spelled_out

LISTED_FROM = 4096
"""Bytes from which a request is told as references; shorter ones are easier to read whole."""

Json = dict[str, Any]
Part = str | Json


class Gone(LookupError):
    """The store does not have (all of) a body any more."""


class Bodies:
    """Writes bodies to `out`, a JSON object a line, inside one snapshot of the store.

    `whole` is whether their content leaves; hash and size alone otherwise.
    """

    def __init__(self, store: Store, scratch: Scratch, out: BinaryIO, *, whole: bool) -> None:
        self.store = store
        self.count = 0
        self._scratch = scratch
        self._out = out
        self._whole = whole

    def put(self, key: str) -> str:
        """Have the body of this hash in the bundle; returns its hash there.

        The same hash without a body where the store does not have it any more.
        """
        return self._put(key)[0] or key

    def _put(self, key: str) -> tuple[str | None, int]:
        noted = self._scratch.noted(key)
        if noted is None:
            try:
                noted = self._written(key)
            except Gone:
                noted = (None, 0)
            self._scratch.note(key, *noted)
        return noted

    def _written(self, key: str) -> tuple[str, int]:
        size, codec, content = self._row(key)
        if codec == "parts" and size >= LISTED_FROM and self._whole:
            segments = orjson.loads(content)
            if any("s" in one or "e" in one for one in segments if isinstance(one, dict)):
                self._write(key, size, {"parts": joined(self._parts(segments))})
                return key, size
        if self._whole:
            self._write(key, size, spelled(self._load([key])[key]))
        else:
            self._write(key, size, {})
        return key, size

    def _row(self, key: str) -> tuple[int, str, bytes]:
        found = "SELECT size, codec, data FROM payloads WHERE hash = ?"
        rows = self.store.sql(found, (packed_hash(key),))
        if not rows:
            raise Gone(key)
        size, codec, content = rows[0]
        return size, codec, opened(codec, content)

    def _load(self, keys: Iterable[str]) -> dict[str, bytes]:
        try:
            return payloads.load_many(self.store, keys)
        except LookupError as error:
            raise Gone(*error.args) from None

    def _parts(self, segments: list[Any]) -> Iterator[Part]:
        """The parts of a request that the store keeps as these segments."""
        for segment in segments:
            if isinstance(segment, str):
                yield segment
            elif "n" in segment:
                yield from between(segment["s"], (self._ref(key) for key in segment["n"]))
            elif "l" in segment:
                yield from self._tree(segment["l"], segment["s"])
            elif "r" in segment or "e" in segment:
                (key,) = segment.values()
                yield self._ref(key)
            else:
                (key,) = segment.values()
                yield spelled_out(segment, self._load([key])[key]).decode()

    def _ref(self, key: str) -> Json:
        hash, _ = self._put(key)
        if hash is None:
            raise Gone(key)
        return {"ref": hash}

    # -- lists of messages -------------------------------------------------------------------------

    def _tree(self, node: str, gap: str) -> Iterator[Part]:
        """References to the whole nodes of a tree, from the top: those at its end are its own."""
        content = self._row(node)[2]
        if self._is_whole(content):
            yield {"ref": self._node(node, content, gap)}
            return
        yield from joined(self._children(content, gap))

    def _children(self, content: bytes, gap: str) -> Iterator[Part]:
        for number, child in enumerate(entries(content)):
            if number:
                yield gap
            if content[0] == 0:
                yield self._ref(child)
            else:
                yield from self._tree(child, gap)

    def _is_whole(self, content: bytes) -> bool:
        children = entries(content)
        if len(children) < FAN_OUT:
            return False
        return content[0] == 0 or self._is_whole(self._row(children[-1])[2])

    def _node(self, node: str, content: bytes, gap: str) -> str:
        """The hash of all that is in a node, as one body of the bundle."""
        name = f"{node} {gap}"
        noted = self._scratch.noted(name)
        if noted is None:
            parts = joined(self._children(content, gap))
            state, size = blake2b(digest_size=16), 0
            for piece in between(gap.encode(), self._contents(content, gap.encode())):
                state.update(piece)
                size += len(piece)
            noted = (state.hexdigest(), size)
            self._write(state.hexdigest(), size, {"parts": parts})
            self._scratch.note(name, *noted)
        return noted[0] or ""

    def _contents(self, content: bytes, gap: bytes) -> Iterator[bytes]:
        """What is in a node, a leaf at a time."""
        if content[0] == 0:
            keys = entries(content)
            found = self._load(keys)
            yield gap.join(found[key] for key in keys)
            return
        for child in entries(content):
            yield from self._contents(self._row(child)[2], gap)

    # -- what is written ---------------------------------------------------------------------------

    def _write(self, hash: str, size: int, content: Json) -> None:
        self.count += 1
        self._out.write(orjson.dumps({"hash": hash, "size": size, **content}) + b"\n")


def spelled(content: bytes) -> Json:
    """The content of a body as JSON can tell it: text, base64 where it is none."""
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def hash_of(text: str) -> str:
    """The hash of a text, as bodies have it."""
    return digest(text.encode("utf-8", "surrogatepass")).hex()


def between(gap: Any, parts: Iterable[Any]) -> Iterator[Any]:
    """The parts with the gap between each two."""
    for number, part in enumerate(parts):
        if number:
            yield gap
        yield part


def joined(parts: Iterable[Part]) -> list[Part]:
    """The parts; texts that follow on one another are one."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part != "":
            found.append(part)
    return found
