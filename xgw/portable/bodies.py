"""Bodies on their way into a bundle: each once, masked, what it is put together from before it.

A request that resends its history is a list of references, as it is in the store: to its messages,
and to each sixteen, 256 … of them together, so that N turns take O(N) here too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import orjson

from xgw.portable import kept
from xgw.portable.digests import Digests, Part
from xgw.portable.redaction import Edit, Place, Redactor
from xgw.portable.redaction.edits import moved_places
from xgw.portable.scratch import Noted, Scratch
from xgw.store import payloads
from xgw.store.database import Store
from xgw.store.digits import packed_hash
from xgw.store.listing import FAN_OUT
from xgw.store.rows import PRUNED, digest, entries, opened, spelled_out
from xgw.store.templates import WORTH_IT

LISTED_FROM = 4096
"""Bytes from which a request is told as references; shorter ones are easier to read whole."""

SLOT = b"0"
"""Stands for messages while what is around them is masked: JSON that is no secret."""

Json = dict[str, Any]


class Gone(LookupError):
    """The store does not have (all of) a body any more."""


class Bodies:
    """Writes bodies to `out`, a JSON object a line, inside one snapshot of the store.

    `whole` is whether their content leaves; hash and size alone otherwise.
    """

    def __init__(
        self, store: Store, scratch: Scratch, out: BinaryIO, redactor: Redactor, *, whole: bool
    ) -> None:
        self.store = store
        self._scratch = scratch
        self._out = out
        self._redactor = redactor
        self._whole = whole
        self._digests = Digests(self._pieces)

    def put(self, key: str, at: Place) -> Noted:
        """Have the body of this hash in the bundle; `at` is what names it.

        Without a hash there where the store does not have it any more.
        """
        noted = self._noted(key, at)
        if (
            noted.hash is not None
            and not self._whole
            and self._scratch.keep(f"={noted.hash}", None)
        ):
            self._tell(noted.hash, noted.size, {})
        return noted

    def edits_of(self, key: str) -> list[Edit]:
        """What was masked in a body that was put."""
        return [Edit(*told) for told in orjson.loads(self._scratch.edits(key))]

    def _noted(self, key: str, at: Place) -> Noted:
        noted = self._scratch.noted(key)
        if noted is None:
            try:
                noted = self._read(key, at)
            except Gone:
                noted = self._left_out(key)
            self._scratch.note(key, noted)
        return noted

    def _left_out(self, key: str) -> Noted:
        """A body that was left out of the bundle that the store was made from is so again."""
        size = kept.read_size(self.store, key)
        if size is None:
            return Noted(None, 0)
        if self._whole:
            self._tell(key, size, {})
        return Noted(key, size)

    def _read(self, key: str, at: Place) -> Noted:
        size, codec, content = self._row(key)
        if not self._whole and not self._redactor.on:
            return Noted(key, size)
        if codec == "parts" and size >= LISTED_FROM:
            segments = orjson.loads(content)
            if any("s" in one or "e" in one for one in segments if isinstance(one, dict)):
                return self._listed(key, size, segments, at)
        whole = self._load([key])[key]
        masked, edits = self._redactor.body(whole, at)
        if not edits:
            self._write(key, size, spelled(whole), None)
            return Noted(key, size)
        self._scratch.keep_edits(key, spelled_edits(edits))
        return Noted(self._write_content(masked), len(masked), edited=True)

    def _row(self, key: str) -> tuple[int, str, bytes]:
        found = "SELECT size, codec, data FROM payloads WHERE hash = ?"
        rows = self.store.sql(found, (packed_hash(key),))
        if not rows or rows[0][1] == PRUNED:
            raise Gone(key)
        size, codec, content = rows[0]
        return size, codec, opened(codec, content)

    def _load(self, keys: Iterable[str]) -> dict[str, bytes]:
        try:
            return payloads.load_many(self.store, keys)
        except LookupError as error:
            raise Gone(*error.args) from None

    # -- requests with a list of messages ----------------------------------------------------------

    def _listed(self, key: str, size: int, segments: list[Any], at: Place) -> Noted:
        around = _Around(segments, self._load)
        masked, edits = self._redactor.body(around.text, at)
        parts: list[Part] = []
        edited = bool(edits)
        for content, segment in around.cut(masked, edits):
            if segment is None:
                parts.append(content.decode())
            elif "r" in segment:
                parts.append(self._part(content))
            else:
                for part, is_edited in self._messages(segment, at):
                    parts.append(part)
                    edited = edited or is_edited
        parts = joined(parts)
        hash, length = self._digests.of(parts) if edited else (key, size)
        self._write(hash, length, {"parts": parts}, orjson.dumps(parts).decode())
        return Noted(hash, length, edited)

    def _part(self, content: bytes) -> Part:
        """A part that is kept by itself, if it is worth it."""
        if len(content) <= WORTH_IT:
            return content.decode()
        return {"ref": self._write_content(content)}

    def _messages(self, segment: Json, at: Place) -> Iterator[tuple[Part, bool]]:
        """The messages of a segment, each with whether it was edited."""
        if "e" in segment:
            yield self._message(segment["e"], at)
        elif "n" in segment:
            each = (self._message(key, at) for key in segment["n"])
            yield from between((segment["s"], False), each)
        else:
            yield from self._tree(segment["l"], segment["s"], at)

    def _message(self, key: str, at: Place) -> tuple[Part, bool]:
        noted = self._noted(key, at)
        if noted.hash is None:
            raise Gone(key)
        return {"ref": noted.hash}, noted.edited

    def _tree(self, node: str, gap: str, at: Place) -> Iterator[tuple[Part, bool]]:
        """References to the whole nodes of a tree, from the top: those at its end are its own."""
        content = self._row(node)[2]
        if not self._is_whole(content):
            yield from self._children(content, gap, at)
            return
        name = f"{node} {gap}"
        noted = self._scratch.noted(name)
        if noted is None:
            noted = self._node(content, gap, at)
            self._scratch.note(name, noted)
        yield {"ref": noted.hash}, noted.edited

    def _node(self, content: bytes, gap: str, at: Place) -> Noted:
        """All that is in a node, as one body of the bundle."""
        children = list(self._children(content, gap, at))
        parts = joined(part for part, _ in children)
        hash, size = self._digests.of(parts)
        self._write(hash, size, {"parts": parts}, orjson.dumps(parts).decode())
        return Noted(hash, size, any(edited for _, edited in children))

    def _children(self, content: bytes, gap: str, at: Place) -> Iterator[tuple[Part, bool]]:
        for number, child in enumerate(entries(content)):
            if number:
                yield gap, False
            if content[0] == 0:
                yield self._message(child, at)
            else:
                yield from self._tree(child, gap, at)

    def _is_whole(self, content: bytes) -> bool:
        children = entries(content)
        if len(children) < FAN_OUT:
            return False
        return content[0] == 0 or self._is_whole(self._row(children[-1])[2])

    # -- what is written ---------------------------------------------------------------------------

    def _pieces(self, hash: str) -> Iterator[bytes]:
        """The content that the bundle has under a hash."""
        kept = self._scratch.kept(hash)
        if kept is None:
            yield self._load([hash])[hash]
        elif isinstance(kept, bytes):
            yield kept
        else:
            for part in orjson.loads(kept):
                if isinstance(part, str):
                    yield part.encode()
                else:
                    yield from self._pieces(part["ref"])

    def _write_content(self, content: bytes) -> str:
        hash = digest(content).hex()
        self._write(hash, len(content), spelled(content), content)
        return hash

    def _write(self, hash: str, size: int, told: Json, kept: bytes | str | None) -> None:
        if self._scratch.keep(hash, kept) and self._whole:
            self._tell(hash, size, told)

    def _tell(self, hash: str, size: int, told: Json) -> None:
        self._out.write(orjson.dumps({"hash": hash, "size": size, **told}) + b"\n")


class _Around:
    """What is around the messages of a request, as one JSON text with a slot for each list."""

    def __init__(self, segments: list[Any], load: Any) -> None:
        self._marks: list[tuple[int, int, Json]] = []
        pieces: list[bytes] = []
        at = 0
        for segment in segments:
            piece = self._piece(segment, load)
            if isinstance(segment, dict) and not {"t", "a"} & segment.keys():
                self._marks.append((at, at + len(piece), segment))
            pieces.append(piece)
            at += len(piece)
        self.text = b"".join(pieces)

    def _piece(self, segment: Any, load: Any) -> bytes:
        if isinstance(segment, str):
            return segment.encode()
        if "s" in segment or "e" in segment:
            return SLOT
        (key,) = segment.values()
        return spelled_out(segment, load([key])[key])

    def cut(self, masked: bytes, edits: list[Edit]) -> Iterator[tuple[bytes, Json | None]]:
        """The text after its edits, cut before and behind each segment that is more than text."""
        places = moved_places([place for a, b, _ in self._marks for place in (a, b)], edits)
        done = 0
        for (_, _, segment), start, end in zip(self._marks, places[::2], places[1::2], strict=True):
            yield masked[done:start], None
            yield masked[start:end], segment
            done = end
        yield masked[done:], None


def spelled(content: bytes) -> Json:
    """The content of a body as JSON can tell it: text, base64 where it is none."""
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def spelled_edits(edits: Iterable[Edit]) -> str:
    """Edits as JSON; `Edit(*told)` of each is it again."""
    return orjson.dumps([(edit.start, edit.stop, edit.text) for edit in edits]).decode()


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
