"""Heads that clients send again: what was made of one is kept with its connection for the next.

Most clients send the same head with each of their calls but for the length of the body. To parse
one, to apply each rule to it and to spell it as WSGI does takes longer than to see that it is the
same.
"""

from __future__ import annotations

import re
from typing import Any

END = b"\r\n\r\n"

LONGEST_KEPT = 8192
"""Bytes of a head that is kept: idle connections have theirs in memory."""

_LENGTH = re.compile(rb"\r\nContent-Length:[ \t]*([0-9]{1,9})[ \t]*(?=\r\n)", re.IGNORECASE)
_DIGITS = re.compile(rb"[0-9]{1,9}")
_NOT_KEPT = frozenset({"TRANSFER-ENCODING", "EXPECT", "UPGRADE"})
"""Where these stand, more than the head alone says how the request goes on."""

_STAYS = frozenset({"", "keep-alive"})
"""What a head that is kept may say of its connection: that it is to stay open."""


class Repeatable:
    """A head that was accepted as `request`, all of it but the digits of its one Content-Length.

    Only a head with every other byte the same is the same head: all that was found of the one then
    holds for the other.
    """

    def __init__(self, before: bytes, after: bytes, request: Any) -> None:
        self._before = before
        self._after = after
        self._at = next(
            i for i, (name, _) in enumerate(request.headers) if name == "CONTENT-LENGTH"
        )
        self.said: dict[str, Any] = {
            name: value for name, value in vars(request).items() if name not in ("body", "headers")
        }
        """The attributes of the request that the head alone decides."""
        self._headers: list[tuple[str, str]] = request.headers
        self._environ: dict[str, Any] = {}

    @classmethod
    def find(cls, head: bytes, request: Any) -> Repeatable | None:
        """What can be kept of a head, its empty line included; None for a request of its own."""
        if len(head) > LONGEST_KEPT or request.method != "POST" or request.version != (1, 1):
            return None
        named = dict(request.headers)
        if not _NOT_KEPT.isdisjoint(named) or named.get("CONNECTION", "").lower() not in _STAYS:
            return None
        lengths = [*_LENGTH.finditer(head)]
        if len(lengths) != 1:
            return None
        start, end = lengths[0].span(1)
        return cls(head[:start], head[end:], request)

    def match(self, data: bytes) -> tuple[str, int] | None:
        """The digits of the Content-Length and the head's size, if `data` begins with this head."""
        if not data.startswith(self._before):
            return None
        digits = _DIGITS.match(data, len(self._before))
        if digits is None or not data.startswith(self._after, digits.end()):
            return None
        return digits[0].decode(), digits.end() + len(self._after)

    def headers(self, length: str) -> list[tuple[str, str]]:
        """The request's headers with this Content-Length."""
        headers = self._headers.copy()
        headers[self._at] = ("CONTENT-LENGTH", length)
        return headers

    def keep(self, environ: dict[str, Any]) -> None:
        """Remember what the application is given with this head, before it has been given that.

        `environ["xgw.head"]` is a place for what depends on nothing but the head: what is put there
        stands in the environ of all requests with it.
        """
        environ["xgw.head"] = {}
        self._environ = environ.copy()
        del self._environ["wsgi.input"]

    def environ(self, length: str, body: Any) -> dict[str, Any] | None:
        """The environ of another request with this head; None if none was kept yet."""
        if not self._environ:
            return None
        return {**self._environ, "CONTENT_LENGTH": length, "wsgi.input": body}
