"""Content encodings undone while the body comes in, a bounded piece at a time."""

from __future__ import annotations

import zlib

from xgw.providers.transport.framing import CutShort, Head, ProtocolFault

PIECE = 65536
_GZIP_MAGIC = b"\x1f\x8b"


def new_decoder(head: Head) -> Decoder | None:
    """What undoes the content encoding that `head` names; None if there is none.

    Raises ProtocolFault for an encoding that cannot be undone.
    """
    if "content-encoding" not in head.joined:
        return None
    encodings = [e.lower() for e in head.values("content-encoding") if e.lower() != "identity"]
    if not encodings:
        return None
    if encodings in (["gzip"], ["x-gzip"]):
        return Decoder(gzip=True)
    if encodings == ["deflate"]:
        return Decoder(gzip=False)
    name = ", ".join(encodings)[:64]
    raise ProtocolFault(f'sent a body in the content encoding "{name}", which was not asked for')


class Decoder:
    """Undoes gzip (of several members too) or deflate (bare and in its zlib wrapping).

    A body that is labelled gzip and does not begin like one is taken as the plain text that it is.
    """

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._input = b""
        self._plain = False
        self._inflate: zlib._Decompress | None = None
        self._members = 0
        self._pending = False

    def feed(self, encoded: bytes) -> None:
        """Add bytes of the body as it was sent."""
        self._input = self._input + encoded if self._input else encoded

    def take(self, *, complete: bool) -> bytes:
        """The next decoded bytes, at most `PIECE` (plain ones: all at hand); b"" if there are none.

        `complete` says that nothing more will be fed. Raises ProtocolFault (corrupt) and, once it
        is complete, CutShort.
        """
        while self._input or self._pending:
            if self._plain or (self._inflate is None and not self._begin(complete)):
                return self._take_plain()
            if piece := self._take_inflated():
                return piece
        if complete and self._inflate is not None:
            raise CutShort("sent a compressed body that ends before it is complete")
        return b""

    def _begin(self, complete: bool) -> bool:
        """Start on a member; False if that needs more input, or if this is plain text."""
        if self._members:
            return self._begin_next(complete)
        start = self._input[:2]
        if len(start) < 2 and not complete and (not self._gzip or _GZIP_MAGIC.startswith(start)):
            return False
        if self._gzip:
            self._plain = start != _GZIP_MAGIC
            if self._plain:
                return False
            self._inflate = zlib.decompressobj(31)
        else:
            wrapped = start[0] & 0x0F == 8 and int.from_bytes(start) % 31 == 0
            self._inflate = zlib.decompressobj(15 if wrapped else -15)
        return True

    def _begin_next(self, complete: bool) -> bool:
        # Some writers pad with zeros; anything else behind a member can only be another one.
        self._input = self._input.lstrip(b"\0")
        if self._gzip and self._input.startswith(_GZIP_MAGIC):
            self._inflate = zlib.decompressobj(31)
            return True
        if self._input and (complete or not _GZIP_MAGIC.startswith(self._input)):
            raise ProtocolFault("sent a compressed body with something else behind it")
        return False

    def _take_plain(self) -> bytes:
        if not self._plain:
            return b""
        piece, self._input = self._input, b""
        return piece

    def _take_inflated(self) -> bytes:
        assert self._inflate is not None
        try:
            piece = self._inflate.decompress(self._input, PIECE)
        except zlib.error:
            raise ProtocolFault("sent a compressed body that is corrupt") from None
        self._input = self._inflate.unconsumed_tail
        # A full piece may leave output inside zlib that no further input would bring out.
        self._pending = len(piece) == PIECE and not self._inflate.eof
        if self._inflate.eof:
            self._input = self._inflate.unused_data
            self._inflate = None
            self._members += 1
        return piece
