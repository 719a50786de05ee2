"""The bytes of a bundle's file, unpacked where it is gzip, never more than is bearable."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from hashlib import blake2b
from typing import IO

from xgw.portable.refusal import BadBundle

BLOCK = 1 << 16
MOST_PACKED = 1 << 30
MOST_UNPACKED = 8 << 30
DENSE_FROM = 64 << 20
DENSEST = 400
"""How much longer gzip may get above `DENSE_FROM` bytes: text never is so dense."""

_GZIP = b"\x1f\x8b"


class Unpacked:
    """Reads a bundle's file once, in blocks; `hash` is that of what was read so far, unpacked."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = blake2b(digest_size=16)
        self.packed = 0
        self.unpacked = 0

    @property
    def hash(self) -> str:
        """BLAKE2b, 16 bytes, as digits."""
        return self._hash.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        first = self._read()
        blocks = self._gunzipped(first) if first[:2] == _GZIP else self._plain(first)
        for block in blocks:
            self.unpacked += len(block)
            self._check()
            self._hash.update(block)
            yield block

    def _read(self) -> bytes:
        block = self._file.read(BLOCK)
        self.packed += len(block)
        if self.packed > MOST_PACKED:
            raise BadBundle(f"the bundle is over {MOST_PACKED >> 30} GiB")
        return block

    def _plain(self, block: bytes) -> Iterator[bytes]:
        while block:
            yield block
            block = self._read()

    def _gunzipped(self, block: bytes) -> Iterator[bytes]:
        member = zlib.decompressobj(31)
        while block:
            try:
                unpacked = member.decompress(block, BLOCK)
            except zlib.error:
                raise BadBundle("the bundle is damaged: it is no valid gzip") from None
            if unpacked:
                yield unpacked
            if member.eof:
                block = member.unused_data or self._read()
                if block:
                    member = zlib.decompressobj(31)
            else:
                block = member.unconsumed_tail or self._read()
        if not member.eof:
            raise BadBundle("the bundle is not whole: its gzip breaks off")

    def _check(self) -> None:
        if self.unpacked > MOST_UNPACKED:
            raise BadBundle(f"the bundle is over {MOST_UNPACKED >> 30} GiB unpacked")
        if self.unpacked > DENSE_FROM and self.unpacked > DENSEST * self.packed:
            raise BadBundle(
                "the bundle is refused: it unpacks to more than "
                f"{DENSEST} times its size, as no record does"
            )
