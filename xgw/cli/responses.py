"""Answers on their way to clients: from what the application says to the bytes on the connection.

gunicorn's own does this for any application; the usual answer, whole and of a length that is told,
takes a shorter way here to the same bytes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from email.utils import formatdate
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

from gunicorn import util
from gunicorn.http import wsgi
from gunicorn.http.message import TOKEN_RE

from xgw import clock

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

    from xgw.cli.connections import ClientRequest, Connection

log = logging.getLogger("xgw.server")

TOGETHER_BYTES = 65536
"""Length up to which a body is joined with its head: a longer one takes longer to copy."""

_VALUES = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_STATUS = re.compile(r"[2-5][0-9]{2} [ -~]*")
_LONGEST_NAME = 64
_MOST_LINES = 64
_BLANKS = " \t"
_BODILESS = frozenset({"204", "304"})


class Response(wsgi.Response):  # type: ignore[misc]
    """The answer to one request."""

    req: ClientRequest
    status: str | None
    headers_sent: bool
    _lines: str | None = None
    """The application's header lines, of an answer that goes the short way."""

    _spelled: bytes | None = None
    """Its head, where all that is in it is known before the first byte of a body."""

    def start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], None]:
        """As WSGI has it; whatever is unusual is for gunicorn to judge."""
        if exc_info is None and self.status is None and self._is_usual(status):
            found = _spell(headers)
            if found is not None:
                self.status, self.status_code = status, int(status[:3])
                self._lines, self.response_length = found
                if self.req.was_read:
                    self._spelled = self._spell_head()
                return self.write
        begun = cast(Callable[[bytes], None], super().start_response(status, headers, exc_info))
        self._lines = self._spelled = None
        return begun

    def _is_usual(self, status: str) -> bool:
        return self.req.method != "HEAD" and _is_usual_status(status)

    def send_headers(self) -> None:
        """Send the head, once."""
        if self._lines is None:
            super().send_headers()
        elif not self.headers_sent:
            self.sock.sendall(self._spelled or self._spell_head())
            self.headers_sent = True

    def write(self, arg: bytes) -> None:
        """Send a block of the body; one that is all of it goes out together with the head.

        The head by itself costs as much as both do, and wakes the client twice.
        """
        whole = self._lines is not None and not self.headers_sent
        if whole and isinstance(arg, bytes) and len(arg) == self.response_length <= TOGETHER_BYTES:
            self.headers_sent = True
            self.sent = len(arg)
            self.sock.sendall((self._spelled or self._spell_head()) + arg)
        else:
            super().write(arg)

    def _spell_head(self) -> bytes:
        major, minor = self.req.version
        connection = "close" if self.should_close() else "keep-alive"
        head = (
            f"HTTP/{major}.{minor} {self.status}\r\nServer: {self.version}\r\n"
            f"Date: {_spell_date(clock.seconds())}\r\n"
            f"Connection: {connection}\r\n{self._lines}\r\n"
        )
        return head.encode("latin-1")


def answer(
    application: WSGIApplication, request: ClientRequest, conn: Connection, cfg: Any, *, last: bool
) -> bool:
    """Send what the application answers; whether the connection may stay open, unless it is `last`.

    Raises what the application raises, OSError where the client is gone, and StopIteration where
    nothing else can be said any more.
    """
    response, environ = _begin(request, conn, cfg)
    if last:
        response.force_close()
    try:
        _send(response, application, environ)
    except OSError:
        raise
    except Exception:
        if not response.headers_sent:
            raise
        log.exception("Error handling request")
        util.close_graceful(conn.sock)
        raise StopIteration from None
    return not response.should_close()


def _begin(request: ClientRequest, conn: Connection, cfg: Any) -> tuple[Response, dict[str, Any]]:
    """The answer to a request, of which nothing is said yet, and the environ to ask for it with."""
    known = request.known
    environ = known.environ(request.length, request.body) if known is not None else None
    if environ is not None:
        return Response(request, conn.sock, cfg), environ
    response, environ = wsgi.create(request, conn.sock, conn.client, conn.server, cfg, Response)
    environ["wsgi.multithread"] = True
    # It holds this answer; nothing here sends hints.
    environ.pop("wsgi.early_hints", None)
    if known is not None:
        known.keep(environ)
    return response, environ


def _send(response: Response, application: WSGIApplication, environ: dict[str, Any]) -> None:
    body: Iterable[bytes] = application(environ, response.start_response)
    try:
        if isinstance(body, wsgi.FileWrapper):
            response.write_file(body)
        else:
            for block in body:
                response.write(block)
        response.close()
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()


def _spell(headers: list[tuple[str, str]]) -> tuple[str, int] | None:
    """Header lines and the length that they tell; None where gunicorn has to look at them."""
    if not 0 < len(headers) <= _MOST_LINES:
        return None
    names, values = zip(*headers, strict=True)
    form = _form(names)
    if form is None:
        return None
    lines, length_at = form
    length = values[length_at]
    stripped = tuple(map(str.strip, values, repeat(_BLANKS)))
    if not (length.isascii() and length.isdecimal() and _VALUES.fullmatch("".join(stripped))):
        return None
    return lines % stripped, int(length)


@lru_cache(maxsize=128)
def _is_usual_status(status: str) -> bool:
    return status[:3] not in _BODILESS and _STATUS.fullmatch(status) is not None


@lru_cache(maxsize=128)
def _form(names: tuple[str, ...]) -> tuple[str, int] | None:
    """What lines of these names are made of, and which of them tells the length.

    None if one is no name, or concerns the connection alone, and without just one that tells it.
    Most answers have the same names.
    """
    if any(len(name) > _LONGEST_NAME or not _is_plain(name) for name in names):
        return None
    lengths = [at for at, name in enumerate(names) if name.lower() == "content-length"]
    if len(lengths) != 1:
        return None
    return "".join([f"{name.replace('%', '%%')}: %s\r\n" for name in names]), lengths[0]


def _is_plain(name: str) -> bool:
    return TOKEN_RE.fullmatch(name) is not None and not util.is_hoppish(name)


@lru_cache(maxsize=2)
def _spell_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
