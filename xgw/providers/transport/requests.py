"""The request to an upstream: what a caller says about it, and its head on the wire."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from xgw.frozen import frozen
from xgw.providers.transport.origins import Origin, find_target

# The transport says these itself: how the body is delimited and what becomes of the connection.
_OWN = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "http2-settings",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
Piece = bytes | memoryview

_BREAKS_TARGET = re.compile(r"[\0-\x20\x7f]")


@frozen
class Timeouts:
    """Seconds: to make a connection; from the request having been sent to the first byte of the
    answer's body; without any byte after that (and while a body is sent)."""

    connect: float
    first_byte: float
    idle: float


@frozen
class UpstreamRequest:
    """A request to an upstream. Header values are text that stands for latin-1 bytes, as WSGI has
    it; Host, Accept-Encoding and Authorization (from the URL) are added unless given, and those
    that delimit the body or concern the connection are the transport's own.

    `direct` goes past any proxy (for a server of our own on the loopback address).
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: Piece | tuple[Piece, ...] = b""
    direct: bool = False

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The body, one piece after the other."""
        return self.body if isinstance(self.body, tuple) else (self.body,)

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return sum(map(len, self.pieces))


def build_head(request: UpstreamRequest, origin: Origin) -> bytes:
    """Request line and headers, the empty line included.

    Raises ValueError for a method, URL or header that would break the lines.
    """
    size = request.size
    before, after = _build_around(request.method, request.url, request.headers, origin)
    if not size and request.method not in ("POST", "PUT", "PATCH"):
        return b"%b\r\n%b" % (before, after)
    return b"%b\r\nContent-Length: %d\r\n%b" % (before, size, after)


@functools.lru_cache(maxsize=64)
def _build_around(
    method: str, url: str, headers: tuple[tuple[str, str], ...], origin: Origin
) -> tuple[bytes, bytes]:
    """What stands before and after the line of the body's length: for most calls the same."""
    target = find_target(url, origin)
    headers = tuple((name, value) for name, value in headers if name.lower() not in _OWN)
    given = {name.lower() for name, _ in headers}
    if _BREAKS_TARGET.search(target) or not all(map(_is_token, [method, *given])):
        raise ValueError("a method, URL or header name holds characters that HTTP does not allow")
    before = [f"{method} {target} HTTP/1.1", *_spelled(_own_headers(origin, given))]
    after = [*_spelled(headers), "", ""]
    text = "\r\n".join([*before, *after])
    ends = len(before) + len(after) - 1
    if text.count("\r") != ends or text.count("\n") != ends or "\0" in text:
        raise ValueError("a header value holds a line break or a NUL")
    return b"\r\n".join(map(_as_bytes, before)), b"\r\n".join(map(_as_bytes, after))


def _spelled(headers: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}: {value}" for name, value in headers]


def _own_headers(origin: Origin, given: set[str]) -> list[tuple[str, str]]:
    headers = []
    if "host" not in given:
        headers.append(("Host", origin.authority))
    if "accept-encoding" not in given:
        headers.append(("Accept-Encoding", "identity"))
    if origin.authorization is not None and "authorization" not in given:
        headers.append(("Authorization", origin.authorization))
    if origin.proxy is not None and origin.scheme == "http" and origin.proxy.authorization:
        headers.append(("Proxy-Authorization", origin.proxy.authorization))
    return headers


@functools.lru_cache(maxsize=512)
def _is_token(text: str) -> bool:
    return _TOKEN.fullmatch(text) is not None


def _as_bytes(line: str) -> bytes:
    """Text from a file of ours may hold more than latin-1: then it goes as UTF-8."""
    try:
        return line.encode("latin-1")
    except UnicodeEncodeError:
        return line.encode()
