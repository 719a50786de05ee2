"""Bodies of a bundle on their way into a store: put together, measured, compared with their hash.

A body may be told as parts that refer to bodies before it. So that few bytes of a file do not
become many of a disk, what comes of the references is bounded.
"""

from __future__ import annotations

import base64
import binascii
import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from xgw.portable.arriving import is_hash
from xgw.portable.refusal import BadBundle
from xgw.portable.unpacking import Unpacked

MOST_BODY = 256 << 20
MOST_TOGETHER = 32 << 30
"""Bytes of all bodies put together; a history that is resent N times has N² / 2 of it."""

MOST_PIECES = 16
"""How many times its own length a bundle may take for what its bodies are put together from."""

SPARE = 8 << 20
REMEMBERED = 32 << 20

_FIELDS = frozenset({"hash", "size", "text", "base64", "parts"})


class Contents:
    """What the bodies of one bundle are; those that no row names are kept until `close`.

    `find` gives the bytes of a body that rows name, once it is in the store.
    """

    def __init__(self, file: Unpacked, store: Any) -> None:
        self._file = file
        self._store = store
        self._scratch = sqlite3.connect("", isolation_level=None)
        self._scratch.execute("PRAGMA synchronous = off")
        self._scratch.execute("BEGIN")
        self._scratch.execute("CREATE TABLE named (hash TEXT PRIMARY KEY) WITHOUT ROWID")
        self._scratch.execute("CREATE TABLE pieces (hash TEXT PRIMARY KEY, data BLOB)")
        self._recent: OrderedDict[str, bytes] = OrderedDict()
        self._remembered = 0
        self._together = 0
        self._pieces = 0

    def close(self) -> None:
        """Forget them."""
        self._scratch.close()

    def name(self, key: str) -> None:
        """A row names this body."""
        self._scratch.execute("INSERT OR IGNORE INTO named VALUES (?)", (key,))

    def is_named(self, key: str) -> bool:
        """Whether a row does."""
        return bool(self._scratch.execute("SELECT 1 FROM named WHERE hash = ?", (key,)).fetchone())

    def read(self, entry: Any, place: int) -> tuple[str, int, bytes | None]:
        """Hash, size and content of an entry, the last None where it was left out; BadBundle."""
        key, size = _checked(entry, place)
        if len(entry) == 2:
            return key, size, None
        is_piece = not self.is_named(key)
        if is_piece:
            self._count_piece(size)
        content = self._content(entry, size, place)
        if len(content) != size or blake2b(content, digest_size=16).hexdigest() != key:
            raise BadBundle(f"payloads[{place}] is not what its hash and size say")
        self._remember(key, content)
        if is_piece:
            self._scratch.execute("INSERT OR IGNORE INTO pieces VALUES (?, ?)", (key, content))
        return key, size, content

    def _content(self, entry: Any, size: int, place: int) -> bytes:
        if isinstance(text := entry.get("text"), str):
            return text.encode()
        if isinstance(spelled := entry.get("base64"), str):
            try:
                return base64.b64decode(spelled, validate=True)
            except (binascii.Error, ValueError):
                raise BadBundle(f"payloads[{place}] is no base64") from None
        if not isinstance(entry.get("parts"), list):
            raise BadBundle(f"payloads[{place}] has no content")
        return self._joined(entry["parts"], size, place)

    def _joined(self, parts: list[Any], size: int, place: int) -> bytes:
        self._together += size
        if self._together > MOST_TOGETHER:
            raise BadBundle(f"the bodies of the bundle are over {MOST_TOGETHER >> 30} GiB together")
        pieces: list[bytes] = []
        left = size
        for piece in self._found(parts, place):
            left -= len(piece)
            if left < 0:
                raise BadBundle(f"payloads[{place}] is longer than it says")
            pieces.append(piece)
        return b"".join(pieces)

    def _found(self, parts: list[Any], place: int) -> Iterator[bytes]:
        for part in parts:
            if isinstance(part, str):
                yield part.encode()
            elif isinstance(part, dict) and part.keys() == {"ref"} and is_hash(part["ref"]):
                yield self._before(part["ref"], place)
            else:
                raise BadBundle(f"payloads[{place}] has a part that is neither text nor reference")

    def _before(self, key: str, place: int) -> bytes:
        if (known := self._recent.get(key)) is not None:
            self._recent.move_to_end(key)
            return known
        row = self._scratch.execute("SELECT data FROM pieces WHERE hash = ?", (key,)).fetchone()
        content = self._store(key) if row is None else row[0]
        if content is None:
            raise BadBundle(f"payloads[{place}] refers to {key}, which is not before it")
        self._remember(key, content)
        return bytes(content)

    def _remember(self, key: str, content: bytes) -> None:
        if key in self._recent or len(content) > REMEMBERED >> 3:
            return
        self._recent[key] = content
        self._remembered += len(content)
        while self._remembered > REMEMBERED:
            self._remembered -= len(self._recent.popitem(last=False)[1])

    def _count_piece(self, size: int) -> None:
        self._pieces += size
        if self._pieces > SPARE + MOST_PIECES * self._file.unpacked:
            raise BadBundle("the bundle is refused: its references make far more than it has")


def _checked(entry: Any, place: int) -> tuple[str, int]:
    if not isinstance(entry, dict) or not entry.keys() <= _FIELDS or len(entry) not in (2, 3):
        raise BadBundle(f"payloads[{place}] is no body")
    key, size = entry.get("hash"), entry.get("size")
    if not is_hash(key):
        raise BadBundle(f"payloads[{place}] has no hash")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise BadBundle(f"payloads[{place}] has no size")
    if size > MOST_BODY:
        raise BadBundle(f"payloads[{place}] is over {MOST_BODY >> 20} MiB")
    return str(key), size
