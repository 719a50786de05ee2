"""HTTP/1.1 answers as they come in: where the head ends, and which bytes are the body (RFC 9112).

No sockets here: bytes go in as they were received, in any pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

from xgw.frozen import frozen

MAX_HEAD = 65536
_MAX_SIZE_LINE = 4096
_SHORT_HEAD = 4096

_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n\0]*)?")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_FIRST_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\0]*)?\r\n")
_NEXT_SIZE = re.compile(rb"\r\n" + _FIRST_SIZE.pattern)
_PART_OF_FIRST = re.compile(rb"(?:[0-9A-Fa-f]{1,15}[ \t]*(?:;[^\r\n\0]*)?\r?)?")
_PART_OF_NEXT = re.compile(rb"\r?|\r\n" + _PART_OF_FIRST.pattern)


Header = tuple[str, str]


class ProtocolFault(Exception):
    """The answer breaks HTTP; its text continues a sentence that the upstream's name begins."""

    before = b""
    """Bytes of the body that came just before it, which nobody has got yet."""


class CutShort(Exception):
    """The answer ended before it was complete; its text continues such a sentence too."""


@frozen
class Head:
    """Status and headers of an answer; `version` is the minor one of HTTP/1."""

    version: int
    status: int
    headers: tuple[Header, ...]
    joined: dict[str, str]
    """By lower-case name, repeated ones joined by commas."""

    def values(self, name: str) -> list[str]:
        """The elements of the header `name` (lower case), taken apart at the commas."""
        joined = self.joined.get(name)
        if joined is None:
            return []
        return [part for part in (p.strip(" \t") for p in joined.split(",")) if part]

    def keeps_alive(self) -> bool:
        """Whether its connection may serve another request."""
        joined = self.joined
        if "transfer-encoding" not in joined and "connection" not in joined:
            return self.version == 1
        tokens = {token.lower() for token in self.values("connection")}
        if self.values("transfer-encoding") and (
            self.version == 0 or self.values("content-length")
        ):
            return False
        return "close" not in tokens and (self.version == 1 or "keep-alive" in tokens)


class HeadReader:
    """Finds the head of the final answer; 1xx answers before it are skipped."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.rest = b""
        """What was fed after the head; before that, what is not complete yet."""
        self._skipped = 0

    @property
    def untouched(self) -> bool:
        """Not one byte of an answer has come."""
        return self.head is None and not self.rest and not self._skipped

    def feed(self, block: bytes) -> Head | None:
        """The head once it is complete. Raises ProtocolFault."""
        self.rest += block
        while self.head is None:
            end = self.rest.find(b"\r\n\r\n")
            if self._skipped + (end if end >= 0 else len(self.rest)) > MAX_HEAD:
                raise ProtocolFault(f"sent headers of more than {MAX_HEAD // 1024} KiB")
            if end < 0:
                _check_beginning(self.rest)
                return None
            head = _parse_head(self.rest[:end])
            self.rest = self.rest[end + 4 :]
            if head.status == 101:
                raise ProtocolFault("switched protocols without being asked")
            if head.status >= 200:
                self.head = head
            self._skipped += end + 4
        return self.head


def _check_beginning(block: bytes) -> None:
    if block[:2] == b"\x15\x03":
        raise ProtocolFault("speaks TLS: its address begins with https://")
    line, newline, _ = block.partition(b"\n")
    if not line.startswith(b"HTTP/1."[: len(line)]) or (newline and not line.endswith(b"\r")):
        raise ProtocolFault("sent something that is not HTTP/1.1")


def _parse_head(block: bytes) -> Head:
    # As latin-1 each byte is one character: taken apart as text, nothing is decoded one by one.
    status_line, *lines = block.decode("latin-1").split("\r\n")
    matched = _STATUS_LINE.fullmatch(status_line)
    if matched is None:
        _check_beginning(block)
        raise ProtocolFault("sent a malformed status line")
    parsed = [*map(_often if len(block) <= _SHORT_HEAD else _parse_line, lines)]
    headers, lowered = zip(*parsed, strict=True) if parsed else ((), ())
    joined = dict(lowered)
    if len(joined) < len(lowered):
        joined = _join(lowered)
    return Head(int(matched[1]), int(matched[2]), headers, joined)


def _join(headers: Iterable[Header]) -> dict[str, str]:
    """The values by name, those of a name that comes again joined by commas."""
    joined: dict[str, str] = {}
    for name, value in headers:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def _parse_line(line: str) -> tuple[Header, Header]:
    """A header's name and value; the same with the name in lower case."""
    header = _HEADER.fullmatch(line)
    if header is None:
        raise ProtocolFault("sent a malformed header line")
    value = header[2].rstrip(" \t")
    return (header[1], value), (header[1].lower(), value)


_often = lru_cache(maxsize=512)(_parse_line)
"""Most lines of an upstream's heads are the same each time."""


class Framing(Protocol):
    """Tells the body's bytes from those around them."""

    ended: bool
    surplus: bool
    """Bytes came that belong to no answer: the connection is not to be used again."""

    def feed(self, block: bytes) -> bytes:
        """The bytes of the body in `block`. Raises ProtocolFault."""
        ...

    def end_of_file(self) -> None:
        """The connection has ended. Raises CutShort if the body had not."""
        ...


def new_framing(head: Head, method: str) -> Framing:
    """How the body that follows `head` is delimited (RFC 9112, 6.3). Raises ProtocolFault."""
    if method == "HEAD" or head.status in (204, 304):
        return Sized(0)
    if "transfer-encoding" in head.joined:
        codings = [coding.lower() for coding in head.values("transfer-encoding")]
        if codings == ["chunked"]:
            return Chunked()
        if codings and codings != ["identity"]:
            raise ProtocolFault("sent a body with an unknown transfer encoding")
    lengths = set(head.values("content-length"))
    if not lengths:
        return UntilClose()
    length = lengths.pop()
    if lengths or not (length.isascii() and length.isdigit()) or len(length) > 18:
        raise ProtocolFault("sent a content-length that cannot be trusted")
    return Sized(int(length))


class Sized:
    """A body of a length that was told."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.ended = length == 0
        self.surplus = False

    def feed(self, block: bytes) -> bytes:
        """The bytes of the body in `block`."""
        left = self._left
        if len(block) > left:
            self.surplus = True
            block = block[:left]
        self._left = left - len(block)
        self.ended = self._left == 0
        return block

    def end_of_file(self) -> None:
        """Raises CutShort if bytes are missing."""
        if not self.ended:
            raise CutShort(f"closed the connection {self._left} bytes before the end of its answer")


class UntilClose:
    """A body that ends with its connection."""

    def __init__(self) -> None:
        self.ended = False
        self.surplus = True

    def feed(self, block: bytes) -> bytes:
        """All of `block`."""
        return block

    def end_of_file(self) -> None:
        """The proper end."""
        self.ended = True


class Chunked:
    """A body in chunks; extensions and trailers are dropped."""

    def __init__(self) -> None:
        self.ended = False
        self.surplus = False
        self._left = 0
        self._kept = b""
        self._in_trailer = False
        self._size, self._part = _FIRST_SIZE, _PART_OF_FIRST

    def feed(self, block: bytes) -> bytes:
        """The bytes of the body in `block`. Raises ProtocolFault."""
        pieces: list[bytes] = []
        try:
            self._take(block, pieces)
        except ProtocolFault as fault:
            fault.before = b"".join(pieces)
            raise
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _take(self, block: bytes, pieces: list[bytes]) -> None:
        if self._kept:
            block, self._kept = self._kept + block, b""
        at = 0
        while not self._in_trailer:
            if self._left:
                piece = block[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
            matched = self._size.match(block, at)
            if matched is None:
                self._keep(block[at:])
                break
            at = matched.end()
            self._size, self._part = _NEXT_SIZE, _PART_OF_NEXT
            self._left = int(matched[1], 16)
            self._in_trailer = self._left == 0
        if self._in_trailer:
            self._feed_trailer(block[at:])

    def end_of_file(self) -> None:
        """Raises CutShort if the last chunk is missing."""
        if not self.ended:
            raise CutShort("closed the connection before the last chunk of its answer")

    def _keep(self, part: bytes) -> None:
        if len(part) > _MAX_SIZE_LINE or self._part.fullmatch(part) is None:
            raise ProtocolFault("sent a chunk whose size cannot be read")
        self._kept = part

    def _feed_trailer(self, block: bytes) -> None:
        if block.startswith(b"\r\n"):
            end = 2
        elif (last := block.find(b"\r\n\r\n")) >= 0:
            end = last + 4
        elif len(block) > MAX_HEAD:
            raise ProtocolFault(f"sent trailers of more than {MAX_HEAD // 1024} KiB")
        else:
            self._kept = block
            return
        self.ended = True
        self.surplus = len(block) > end
