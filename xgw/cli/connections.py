"""Client connections of the server: the head of each request, its framing, and how one ends.

gunicorn parses; what is stricter or more patient here than there is the subject of this module.
"""

from __future__ import annotations

import contextlib
import enum
import socket
from typing import Any, cast

from gunicorn.http import body as parsed
from gunicorn.http import errors as parsing
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.workers.gthread import TConn

from xgw import clock
from xgw.cli.heads import END, Repeatable
from xgw.cli.receiving import (
    MAX_BODY_READ,
    Body,
    BodyReader,
    ChunkedReader,
    ClientSocket,
    LengthReader,
    Unreader,
)
from xgw.cli.refusals import MAX_HEAD_BYTES, HeadTooLarge
from xgw.gateway.identity import HEADERS, REPEATED

MAX_CHUNK_LINE_BYTES = 1024

LINGER_SECONDS = 10.0
LINGER_SILENCE_SECONDS = 2.0
LINGER_BYTES = 64 << 20

_IDENTIFIERS = frozenset(name.upper() for name in HEADERS.values())

_HEALTH = b"GET /health "
_CALLS = (b"POST /v1/", b"POST /s/")


class ClientRequest(Request):  # type: ignore[misc]
    """One request. Framing that two servers could read differently is refused (RFC 9112, 6.3)."""

    body: Body
    headers: list[tuple[str, str]]
    known: Repeatable | None = None
    """What later requests with the same head are made of."""

    length = "0"
    """The digits of the Content-Length of a request whose head was known."""

    _expected_100_continue: bool

    @classmethod
    def again(cls, known: Repeatable, length: str, unreader: Unreader) -> ClientRequest:
        """Another request with a known head and a body of this length, which comes next."""
        request = cls.__new__(cls)
        request.__dict__.update(known.said)
        request.known = known
        request.length = length
        request.headers = known.headers(length)
        request.body = Body(BodyReader(LengthReader(unreader, int(length)), None))
        return request

    def set_body_reader(self) -> None:
        self.headers = _each_once(self.headers)
        self.unreader.in_head = False
        self.max_buffer_headers = MAX_HEAD_BYTES
        codings = [value for name, value in self.headers if name == "TRANSFER-ENCODING"]
        if codings and [coding.lower() for coding in codings] != ["chunked"]:
            raise parsing.InvalidHeader("TRANSFER-ENCODING", req=self)
        super().set_body_reader()
        reader: Any = self.body.reader
        if isinstance(reader, parsed.LengthReader):
            reader = LengthReader(self.unreader, reader.length)
        if codings:
            reader = ChunkedReader(self, self.unreader)
            reader.limit_chunk_size_line = MAX_CHUNK_LINE_BYTES
        # gunicorn would answer 100 before the application has seen the request.
        asks = self.unreader.sock if self._expected_100_continue else None
        self._expected_100_continue = False
        self.body = Body(BodyReader(reader, asks))

    @property
    def was_read(self) -> bool:
        """Whether nothing of it is left on the connection."""
        return self.body.reader.ended and not self.body.failed

    def _peer_is_trusted_proxy(self) -> bool:
        """Never: what proxies say is not used. gunicorn takes the peer's address apart for this."""
        return False

    def should_close(self) -> bool:
        if not self.was_read:
            self.must_close = True
        # A head that is kept asks for no end of its connection.
        return self.must_close if self.known is not None else cast(bool, super().should_close())


def _each_once(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers, an identifier that comes again as one: WSGI makes a new one of several."""
    named = [header for header in headers if header[0] in _IDENTIFIERS]
    values: dict[str, list[str]] = {}
    for name, value in named:
        values.setdefault(name, []).append(value)
    if len(values) == len(named):
        return headers
    joined = [(name, REPEATED.join(dict.fromkeys(given))) for name, given in values.items()]
    return [*(header for header in headers if header[0] not in _IDENTIFIERS), *joined]


class ClientParser(RequestParser):  # type: ignore[misc]
    """The requests of one connection."""

    mesg_class = ClientRequest
    unreader: Unreader
    mesg: ClientRequest | None
    _known: Repeatable | None = None
    _data = b""

    def begin(self, data: bytes) -> None:
        """The next request begins with `data`, in which its whole head is."""
        self._data = data

    def __next__(self) -> ClientRequest:
        data, self._data = self._data, b""
        found = self._known.match(data) if self._known is not None else None
        if self._known is not None and found is not None:
            length, size = found
            self.req_count += 1
            self.unreader.unread(data[size:])
            self.mesg = ClientRequest.again(self._known, length, self.unreader)
            return self.mesg
        self.unreader.in_head = True
        self.unreader.unread(data)
        request = cast(ClientRequest, super().__next__())
        request.known = self._known = Repeatable.find(data[: data.find(END) + len(END)], request)
        return request


class Head(enum.Enum):
    """How far the head of a connection's next request is."""

    NOTHING = enum.auto()
    PARTIAL = enum.auto()
    COMPLETE = enum.auto()
    GONE = enum.auto()


class Connection(TConn):  # type: ignore[misc]
    """One client connection: the main thread gathers a head, a pool thread answers and closes."""

    initialized: bool

    def __init__(self, cfg: Any, sock: ClientSocket, client: Any, server: Any) -> None:
        super().__init__(cfg, sock, client, server)
        self.data_ready = True
        self._keep = 0.0
        self._head = bytearray()
        self._complete = False

    def init(self) -> None:
        if not self.initialized:
            self.initialized = True
            self.parser = ClientParser(self.cfg, self.sock, self.client)
            self.parser.unreader = Unreader(self.sock)

    def set_timeout(self) -> None:
        self.timeout = clock.monotonic() + self._keep

    def read_head(self) -> Head:
        """Take in what has arrived, after what was read ahead of the last body."""
        if self.parser is not None:
            self._add(self.parser.unreader.take_buffered())
        if not self._complete:
            try:
                block = self.sock.receive_now()
            except OSError:
                return Head.GONE
            if block == b"":
                return Head.GONE
            self._add(block or b"")
        if not self._head:
            return Head.NOTHING
        return Head.COMPLETE if self._complete else Head.PARTIAL

    @property
    def asks_for_health(self) -> bool:
        """Whether the request whose head is there asks how the server is."""
        return self._head.startswith(_HEALTH)

    @property
    def is_call(self) -> bool:
        """Whether the request whose head is there is one that goes on to a provider."""
        return self._head.startswith(_CALLS)

    def follows(self, seconds: float) -> bool:
        """Whether another call's whole head is there, or comes within `seconds`.

        Anything else that has come is for the main thread to gather.
        """
        unreader = self.parser.unreader
        if unreader.buf.tell():
            return False
        block = self.sock.receive_within(seconds)
        if block.startswith(_CALLS) and END in block:
            self._add(block)
            return True
        unreader.unread(block)
        return False

    def begin(self, keep: float) -> None:
        """Give the parser the head, in the thread that answers; HeadTooLarge instead.

        `keep` is how many seconds the connection may be idle afterwards.
        """
        self._keep = keep
        self.init()
        self.parser.mesg = None
        if len(self._head) > MAX_HEAD_BYTES and self._head.find(END, 0, MAX_HEAD_BYTES) < 0:
            raise HeadTooLarge
        self.parser.begin(bytes(self._head))
        self._head.clear()
        self._complete = False

    def _add(self, block: bytes) -> None:
        """Complete is a head that the parser can judge: whole, too large, or not HTTP at all.

        Each byte is looked at once, however small the pieces are in which it comes.
        """
        head, before = self._head, len(self._head)
        head += block
        if head.find(END, max(0, before - 3)) >= 0 or len(head) > MAX_HEAD_BYTES:
            self._complete = True
        elif head:
            begins_well = head[:1].isalpha() or head[:1] == b"\r"
            ends = head.count(b"\r\n", max(0, before - 1))
            self._complete = not begins_well or head.count(b"\n", before) != ends

    def end(self) -> None:
        """Let the client read the answer: what it still sends must not reset the connection."""
        request = self.parser.mesg
        with contextlib.suppress(OSError):
            self.sock.settimeout(None)
            self.sock.shutdown(socket.SHUT_WR)
            if request is None or not request.was_read or _upgrades(request):
                self._linger()
        self.close()

    def _linger(self) -> None:
        drained, deadline = 0, clock.monotonic() + LINGER_SECONDS
        while drained < LINGER_BYTES and (left := deadline - clock.monotonic()) > 0:
            block = self.sock.receive(MAX_BODY_READ, min(left, LINGER_SILENCE_SECONDS))
            if not block:
                return
            drained += len(block)

    def close(self, graceful: bool = False) -> None:
        with contextlib.suppress(OSError):
            self.sock.close()


def _upgrades(request: Any) -> bool:
    return any(name == "UPGRADE" for name, _ in request.headers)
