"""Client connections of the server: heads and bodies as they come off the wire, and how one ends.

gunicorn parses; what is stricter or more patient here than there is the subject of this module.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import select
import socket
from typing import Any, cast

from gunicorn.http import errors as parsing
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.http.unreader import SocketUnreader
from gunicorn.workers.gthread import TConn

from xgw import clock
from xgw.cli.refusals import MAX_HEAD_BYTES, HeadTooLarge
from xgw.web.bodies import BODY_SILENCE_SECONDS, BrokenBody

MAX_CHUNK_LINE_BYTES = 1024
MAX_BODY_READ = 1 << 20
BODY_SECONDS = BODY_SILENCE_SECONDS
WRITE_SECONDS = 60.0
"""A client that takes nothing for so long is cut."""

LINGER_SECONDS = 10.0
LINGER_SILENCE_SECONDS = 2.0
LINGER_BYTES = 64 << 20

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_END = b"\r\n\r\n"
# Plain numbers: joining the members of an enum costs more than the call that they are for.
_DONT_WAIT = int(socket.MSG_DONTWAIT)
_PEEK = int(socket.MSG_DONTWAIT | socket.MSG_PEEK)


class ClientSocket(socket.socket):
    """A client's socket: it waits, but never without end, for a client that does nothing."""

    @classmethod
    def adopt(cls, accepted: socket.socket) -> ClientSocket:
        """The same connection; `accepted` itself is not usable any more."""
        family, kind, proto = accepted.family, accepted.type, accepted.proto
        return cls(family, kind, proto, accepted.detach())

    def receive_now(self) -> bytes | None:
        """What is there, b"" at the end, None if nothing is there yet."""
        try:
            return self.recv(MAX_HEAD_BYTES, _DONT_WAIT)
        except BlockingIOError:
            return None

    def receive(self, size: int, silence: float) -> bytes:
        """The next bytes, b"" at the end; TimeoutError after `silence` seconds without any."""
        while True:
            try:
                return self.recv(size, _DONT_WAIT)
            except BlockingIOError:
                if not self._ready(select.POLLIN, silence):
                    raise TimeoutError("the client sends nothing") from None

    def peek(self, seconds: float) -> bytes:
        """What comes within `seconds`, left where it is; b"" if nothing does, or at the end."""
        if not self._ready(select.POLLIN, seconds):
            return b""
        try:
            return self.recv(MAX_HEAD_BYTES, _PEEK)
        except OSError:
            return b""

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """Send everything; BrokenPipeError once the client has taken nothing for too long.

        Unlike a socket's timeout this does not limit the whole: a slow reader gets all of it.
        """
        view = memoryview(data)
        while view:
            try:
                view = view[self.send(view, flags | _DONT_WAIT) :]
            except BlockingIOError:
                if not self._ready(select.POLLOUT, WRITE_SECONDS):
                    raise _reads_nothing() from None
            except TimeoutError:  # the application has set a limit of its own
                raise _reads_nothing() from None

    def _ready(self, events: int, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self, events)
        return bool(poll.poll(seconds * 1000))


def _reads_nothing() -> BrokenPipeError:
    return BrokenPipeError(errno.EPIPE, "the client reads nothing")


class Unreader(SocketUnreader):  # type: ignore[misc]
    """Where the parser reads from: the whole of a head is there already, a body may pause."""

    in_head = True

    def chunk(self, size_hint: int | None = None) -> bytes:
        if self.in_head:
            raise parsing.InvalidRequestLine("")
        size = min(max(size_hint or 0, self.mxchunk), MAX_BODY_READ)
        return cast(ClientSocket, self.sock).receive(size, BODY_SECONDS)


class BodyReader:
    """A body as the client sends it: asked for first where the client waits for that.

    `ended` says whether its last byte was read: only then is it known where the next request
    begins. Faults in it are `BrokenBody`.
    """

    def __init__(self, reader: Any, asks: ClientSocket | None) -> None:
        self._reader = reader
        self._asks = asks

    @property
    def ended(self) -> bool:
        return getattr(self._reader, "length", None) == 0 or (
            getattr(self._reader, "parser", self) is None
        )

    def read(self, size: int) -> bytes:
        if self._asks is not None:
            asks, self._asks = self._asks, None
            asks.sendall(CONTINUE)
        try:
            return cast(bytes, self._reader.read(size))
        except parsing.NoMoreData:
            raise BrokenBody("the request's body ended before it was complete") from None
        except parsing.ParseException:
            raise BrokenBody("the request's body is not validly chunked") from None


class ClientRequest(Request):  # type: ignore[misc]
    """One request. Framing that two servers could read differently is refused (RFC 9112, 6.3)."""

    _expected_100_continue: bool

    def set_body_reader(self) -> None:
        self.unreader.in_head = False
        self.max_buffer_headers = MAX_HEAD_BYTES
        codings = [value for name, value in self.headers if name == "TRANSFER-ENCODING"]
        if codings and [coding.lower() for coding in codings] != ["chunked"]:
            raise parsing.InvalidHeader("TRANSFER-ENCODING", req=self)
        super().set_body_reader()
        reader = self.body.reader
        if codings:
            reader.limit_chunk_size_line = MAX_CHUNK_LINE_BYTES
        # gunicorn would answer 100 before the application has seen the request.
        asks = self.unreader.sock if self._expected_100_continue else None
        self._expected_100_continue = False
        self.body.reader = BodyReader(reader, asks)

    @property
    def was_read(self) -> bool:
        """Whether nothing of it is left on the connection."""
        return cast(bool, self.body.reader.ended) and not self.body.failed

    def should_close(self) -> bool:
        if not self.was_read:
            self.must_close = True
        return cast(bool, super().should_close())


class ClientParser(RequestParser):  # type: ignore[misc]
    """The requests of one connection."""

    mesg_class = ClientRequest


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

    def follows(self, seconds: float) -> bool:
        """Whether the next request's whole head is there, or comes within `seconds`.

        Nothing is taken from the socket: what is only begun is for the main thread to gather.
        """
        if self.parser.unreader.buf.tell():
            return False
        seen = self.sock.peek(seconds)
        return _END in seen and self.read_head() is Head.COMPLETE

    def begin(self, keep: float) -> None:
        """Give the parser the head, in the thread that answers; HeadTooLarge instead.

        `keep` is how many seconds the connection may be idle afterwards.
        """
        self._keep = keep
        self.init()
        self.parser.mesg = None
        if len(self._head) > MAX_HEAD_BYTES and self._head.find(_END, 0, MAX_HEAD_BYTES) < 0:
            raise HeadTooLarge
        self.parser.unreader.in_head = True
        self.parser.unreader.unread(bytes(self._head))
        self._head.clear()
        self._complete = False

    def _add(self, block: bytes) -> None:
        """Complete is a head that the parser can judge: whole, too large, or not HTTP at all.

        Each byte is looked at once, however small the pieces are in which it comes.
        """
        head, before = self._head, len(self._head)
        head += block
        if head.find(_END, max(0, before - 3)) >= 0 or len(head) > MAX_HEAD_BYTES:
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
