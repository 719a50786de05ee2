"""Clients' sockets, and request bodies as they come off them."""

from __future__ import annotations

import contextlib
import errno
import mmap
import select
import socket
from collections.abc import Iterator
from typing import Any, cast

from gunicorn.http import body as parsed
from gunicorn.http import errors as parsing
from gunicorn.http.unreader import SocketUnreader

from xgw.cli.refusals import MAX_HEAD_BYTES
from xgw.web.bodies import BODY_SILENCE_SECONDS, BrokenBody

MAX_BODY_READ = 1 << 20
BODY_SECONDS = BODY_SILENCE_SECONDS
WRITE_SECONDS = 60.0
"""A client that takes nothing for so long is cut."""

NEXT_BYTES = 16384
"""Received at once of a request that follows: its head, and all of a short body. What comes of a
long one along with its head is copied once more than the rest.
"""

ROOM_BYTES = 4 << 20
ROOM_FROM = 65536
"""Bytes still to come from which a body is received into a room."""

SPARE_ROOMS = 2

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# Plain numbers: joining the members of an enum costs more than the call that they are for.
_DONT_WAIT = int(socket.MSG_DONTWAIT)


class ClientSocket(socket.socket):
    """A client's socket: it waits, but never without end, for a client that does nothing."""

    @classmethod
    def adopt(cls, accepted: socket.socket) -> ClientSocket:
        """The same connection; `accepted` itself is not usable any more."""
        family, kind, proto = accepted.family, accepted.type, accepted.proto
        return cls(family, kind, proto, accepted.detach())

    _arrivals: select.poll | None = None

    def setblocking(self, flag: bool) -> None:
        """As it is most of the time already: gunicorn asks for it with each request."""
        if self.gettimeout() != (None if flag else 0.0):
            super().setblocking(flag)

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

    def receive_into(self, room: memoryview, silence: float) -> int:
        """Fill the room from the front; how many bytes came, fewer only at the end.

        TimeoutError after `silence` seconds without any.
        """
        filled = 0
        while filled < len(room):
            try:
                count = self.recv_into(room[filled:], 0, _DONT_WAIT)
            except BlockingIOError:
                if not self._ready(select.POLLIN, silence):
                    raise TimeoutError("the client sends nothing") from None
                continue
            if not count:
                break
            filled += count
        return filled

    def receive_within(self, seconds: float) -> bytes:
        """What comes within `seconds`; b"" if nothing does, or at the end."""
        if self._arrivals is None:
            self._arrivals = select.poll()
            self._arrivals.register(self, select.POLLIN)
        if not self._arrivals.poll(seconds * 1000):
            return b""
        try:
            return self.recv(NEXT_BYTES, _DONT_WAIT)
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


class Rooms:
    """Memory that large bodies are received into, used again: pages that the system has to bring
    first cost several times what receiving costs. They are only taken as far as they are filled.
    """

    def __init__(self) -> None:
        self._spare: list[mmap.mmap] = []

    @contextlib.contextmanager
    def lent(self) -> Iterator[memoryview]:
        """A room for the block's time."""
        try:
            room = self._spare.pop()
        except IndexError:
            room = mmap.mmap(-1, ROOM_BYTES)
        with memoryview(room) as view:
            yield view
        if len(self._spare) < SPARE_ROOMS:
            self._spare.append(room)
        else:
            room.close()


ROOMS = Rooms()


LARGEST_CHUNK = (1 << 63) - 1
"""A size that no one means: other servers may read its last digits alone."""


class Unreader(SocketUnreader):  # type: ignore[misc]
    """Where the parser reads from: the whole of a head is there already, a body may pause."""

    in_head = True

    def chunk(self, size_hint: int | None = None) -> bytes:
        if self.in_head:
            raise parsing.InvalidRequestLine("")
        size = min(max(size_hint or 0, self.mxchunk), MAX_BODY_READ)
        return cast(ClientSocket, self.sock).receive(size, BODY_SECONDS)


class LengthReader(parsed.LengthReader):  # type: ignore[misc]
    """A body of known length."""

    unreader: Unreader
    length: int

    def read(self, size: int) -> bytes:
        size = min(self.length, size)
        buffered: bytes = self.unreader.take_buffered()
        if len(buffered) == size:
            self.length -= size
            return buffered
        self.unreader.unread(buffered)
        if size - len(buffered) < ROOM_FROM:
            return cast(bytes, super().read(size))
        self.unreader.take_buffered()
        self.length -= size
        return b"".join(self._received(buffered, size))

    def readinto(self, room: memoryview) -> int:
        """Fill the room; how many bytes came, fewer only at the end."""
        wanted = min(self.length, len(room))
        buffered = self.unreader.take_buffered()
        filled = min(len(buffered), wanted)
        room[:filled] = buffered[:filled]
        self.unreader.unread(buffered[filled:])
        if filled < wanted:
            sock = cast(ClientSocket, self.unreader.sock)
            filled += sock.receive_into(room[filled:wanted], BODY_SECONDS)
        self.length -= filled
        return filled

    def _received(self, buffered: bytes, left: int) -> Iterator[bytes]:
        """What was read with the head, and what comes; less than `left` only at the end."""
        sock = cast(ClientSocket, self.unreader.sock)
        while left:
            with ROOMS.lent() as room, room[:left] as piece:
                piece[: len(buffered)] = buffered
                filled = len(buffered)
                with piece[filled:] as rest:
                    filled += sock.receive_into(rest, BODY_SECONDS)
                yield bytes(piece[:filled])
                if filled < len(piece):
                    return
            left -= filled
            buffered = b""


class ChunkedReader(parsed.ChunkedReader):  # type: ignore[misc]
    """A chunked body. What cannot become a chunk is refused at once, not when silence ends it."""

    def parse_chunk_size(
        self, unreader: Unreader, data: bytes | None = None
    ) -> tuple[int, bytes | None]:
        """The size of the next chunk, and what came behind its line."""
        line = bytearray(data or b"")
        while (end := line.find(b"\n")) < 0 and len(line) <= self.limit_chunk_size_line:
            self.read_into(unreader, line)
        if end >= 0 and line[end - 1 : end] != b"\r":
            raise parsing.InvalidChunkSize(bytes(line[:end]))
        found: tuple[int, bytes | None] = super().parse_chunk_size(unreader, bytes(line))
        if found[0] > LARGEST_CHUNK:
            raise parsing.InvalidChunkSize(bytes(line[:end]))
        return found


class Body(parsed.Body):  # type: ignore[misc]
    """A request's body; what a reader brings in one piece is not copied once more."""

    reader: BodyReader
    failed: bool

    def read(self, size: int | None = None) -> bytes:
        if size and size > 0 and not self.buf.tell() and self.reader.has_length:
            return cast(bytes, self._read_reader(size))
        return cast(bytes, super().read(size))

    def readinto(self, room: memoryview) -> int:
        """Fill the room from a body of known length of which nothing else was read."""
        try:
            return self.reader.readinto(room)
        except Exception:
            self.failed = True
            raise


class BodyReader:
    """A body as the client sends it: asked for first where the client waits for that.

    `ended` says whether its last byte was read: only then is it known where the next request
    begins. Faults in it are `BrokenBody`.
    """

    def __init__(self, reader: Any, asks: ClientSocket | None) -> None:
        self._reader = reader
        self._asks = asks
        self.has_length = isinstance(reader, LengthReader)
        """Whether it is known how much is to come: then a read brings all that it asks for."""

    @property
    def ended(self) -> bool:
        return getattr(self._reader, "length", None) == 0 or (
            getattr(self._reader, "parser", self) is None
        )

    def readinto(self, room: memoryview) -> int:
        self._ask()
        return cast(int, self._reader.readinto(room))

    def read(self, size: int) -> bytes:
        self._ask()
        try:
            return cast(bytes, self._reader.read(size))
        except parsing.NoMoreData:
            raise BrokenBody("the request's body ended before it was complete") from None
        except parsing.ParseException:
            raise BrokenBody("the request's body is not validly chunked") from None

    def _ask(self) -> None:
        if self._asks is not None:
            asks, self._asks = self._asks, None
            asks.sendall(CONTINUE)
