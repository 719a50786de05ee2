"""One connection while it serves one call: a request goes out, bytes of the answer come in."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence

from xgw import clock
from xgw.providers.transport.calls import Call, Cancelled, ClientGone
from xgw.providers.transport.framing import Head, HeadReader
from xgw.providers.transport.requests import Piece
from xgw.providers.transport.watching import BROKEN, READABLE, WRITABLE, Watch

BLOCK = 65536
_TOGETHER = 65536


class Silence(Exception):
    """The upstream took nothing for too long."""


class Wire:
    """A non-blocking connection in the hands of one thread; `call.cancel` shuts it down.

    Every method may raise Cancelled, those that wait ClientGone too.
    """

    def __init__(self, sock: socket.socket, call: Call) -> None:
        self._sock = sock
        self.call = call
        self._needed = READABLE
        try:
            self._watch = Watch(sock, call)
            call.attach(self._interrupt)
        except (Cancelled, ClientGone):
            sock.close()
            raise

    def receive(self) -> bytes | None:
        """The bytes that are there, at most `BLOCK`; None if there are none, b"" at the very end.

        Raises OSError when the connection is broken.
        """
        try:
            block = self._sock.recv(BLOCK)
        except (BlockingIOError, ssl.SSLWantReadError):
            self._needed = READABLE
            return None
        except ssl.SSLWantWriteError:
            self._needed = WRITABLE
            return None
        except OSError:
            if self.call.cancelled:
                raise Cancelled from None
            raise
        if not block and self.call.cancelled:
            raise Cancelled
        return block

    def wait(self, deadline: float) -> bool:
        """Wait until `receive` is worth another try; False at the deadline."""
        return self._watch.wait(self._needed, deadline) != 0

    def glance(self) -> bool:
        """Look whether the client has gone, without waiting; whether the upstream says anything."""
        return self._watch.wait(self._needed, 0) != 0

    def is_alive(self) -> bool:
        """Whether a connection that was idle may be used: nothing has come that was not asked for.

        The client is looked after as well: one system call does both.
        """
        if not self.glance():
            return True
        if not isinstance(self._sock, ssl.SSLSocket):
            return False
        try:
            self._sock.recv(1)
        except ssl.SSLWantReadError:
            return True  # a session ticket or the like
        except OSError:
            return False
        return False

    def send(
        self,
        head: bytes,
        body: Sequence[Piece],
        idle: float,
        answer: HeadReader,
        on_wait: Callable[[], None] | None = None,
    ) -> bool:
        """Send a request; False if not all of it went, because the upstream answers or hangs up.

        What it says meanwhile is fed to `answer`: an error status ends the sending. `on_wait` is
        called each time before it is waited for. Raises Silence when `idle` seconds pass in which
        it takes nothing, and what `answer` raises.
        """
        for block in _together(head, body):
            if not self._send_all(memoryview(block), idle, answer, on_wait):
                return False
        return True

    def release(self) -> socket.socket | None:
        """The connection, no longer the call's; None (and closed) if the call was cancelled."""
        if self.call.detach():
            return self._sock
        self._sock.close()
        return None

    def close(self) -> None:
        """Close the connection, whatever is under way on it."""
        self.call.detach()
        self._sock.close()

    def _interrupt(self) -> None:
        with contextlib.suppress(OSError):
            # Past the TLS layer: its shutdown would take the keys from under the reading thread.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def _send_all(
        self,
        left: memoryview,
        idle: float,
        answer: HeadReader,
        on_wait: Callable[[], None] | None,
    ) -> bool:
        while left:
            if self.call.cancelled:
                raise Cancelled
            try:
                left = left[self._sock.send(left[: 4 * BLOCK]) :]
                continue
            except (BlockingIOError, ssl.SSLWantWriteError):
                needed = WRITABLE
            except ssl.SSLWantReadError:
                needed = READABLE
            except OSError:
                if self.call.cancelled:
                    raise Cancelled from None
                return False
            if on_wait is not None:
                on_wait()
            if not self._wait_to_send(needed, idle, answer):
                return False
        return True

    def _wait_to_send(self, needed: int, idle: float, answer: HeadReader) -> bool:
        listen = READABLE if answer.head is None else 0
        ready = self._watch.wait(needed | listen, clock.monotonic() + idle)
        if not ready:
            raise Silence
        if listen and ready & (READABLE | BROKEN):
            return self._listen(answer)
        return True

    def _listen(self, answer: HeadReader) -> bool:
        """Whether to go on sending after a look at what the upstream says."""
        try:
            block = self.receive()
        except OSError:
            return False
        if block is None:
            return True
        head: Head | None = answer.feed(block) if block else None
        return bool(block) and (head is None or head.status < 300)


def _together(head: bytes, body: Sequence[Piece]) -> Iterator[Piece]:
    """What is sent, small pieces joined with what stands before them."""
    if len(body) == 1 and len(head) + len(body[0]) <= _TOGETHER:
        yield b"".join((head, body[0]))
        return
    joined: list[Piece] = [head]
    size = len(head)
    for piece in body:
        if size + len(piece) > _TOGETHER:
            yield b"".join(joined) if len(joined) > 1 else joined[0]
            joined, size = [], 0
        joined.append(piece)
        size += len(piece)
    yield b"".join(joined) if len(joined) > 1 else joined[0]
