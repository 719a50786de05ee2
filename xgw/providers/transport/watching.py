"""Waiting for a socket while an eye is kept on the client."""

from __future__ import annotations

import select
import socket
import sys
from typing import Protocol

from xgw import clock
from xgw.providers.transport.calls import Call, Cancelled, ClientGone

if sys.platform == "win32":
    READABLE, WRITABLE, BROKEN = 1, 4, 24
else:
    READABLE, WRITABLE = select.POLLIN, select.POLLOUT
    BROKEN = select.POLLERR | select.POLLHUP | select.POLLNVAL

_PEEK = socket.MSG_PEEK | getattr(socket, "MSG_DONTWAIT", 0)


class Poller(Protocol):
    """What is used of `select.poll`."""

    def register(self, fd: int, events: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...
    def poll(self, milliseconds: float, /) -> list[tuple[int, int]]: ...


class SelectPoller:
    """A Poller by `select`, where there is no `poll` (Windows)."""

    def __init__(self) -> None:
        self._events: dict[int, int] = {}

    def register(self, fd: int, events: int, /) -> None:
        """Watch `fd` for `events`, or change what it is watched for."""
        self._events[fd] = events

    def unregister(self, fd: int, /) -> None:
        """Watch `fd` no more."""
        del self._events[fd]

    def poll(self, milliseconds: float, /) -> list[tuple[int, int]]:
        """Which of them are ready, and for what."""
        readers = [fd for fd, events in self._events.items() if events & READABLE]
        writers = [fd for fd, events in self._events.items() if events & WRITABLE]
        # Windows reports a failed connection as exceptional only.
        readable, writable, failed = select.select(readers, writers, writers, milliseconds / 1000)
        ready = dict.fromkeys(readable, READABLE)
        for fd in writable:
            ready[fd] = ready.get(fd, 0) | WRITABLE
        for fd in failed:
            ready[fd] = ready.get(fd, 0) | BROKEN
        return list(ready.items())


def new_poller() -> Poller:
    """`poll` where there is one, because `select` stops at descriptor 1023 there."""
    if sys.platform == "win32":
        return SelectPoller()
    return select.poll()


def is_quiet(sock: socket.socket) -> bool:
    """True if nothing waits to be read from `sock` and nothing has happened to it."""
    poller = new_poller()
    poller.register(sock.fileno(), READABLE)
    return not poller.poll(0)


class Watch:
    """Waits for `sock` on behalf of `call`."""

    def __init__(self, sock: socket.socket, call: Call) -> None:
        self._call = call
        self._poller = new_poller()
        self._fd = sock.fileno()
        self._events = 0
        self._client_fd = self._watch_client()

    def wait(self, events: int, deadline: float) -> int:
        """What of `events` has become possible (or BROKEN ones); 0 at the deadline.

        `deadline` is a `clock.monotonic` time. Raises Cancelled and ClientGone.
        """
        if events != self._events:
            self._poller.register(self._fd, events)
            self._events = events
        while True:
            left = deadline - clock.monotonic()
            ready = dict(self._poller.poll(max(0.0, left * 1000)))
            if self._call.cancelled:
                raise Cancelled
            if self._client_fd in ready:
                self._look_at_client()
            if self._fd in ready:
                return ready[self._fd]
            if left <= 0:
                return 0

    def _watch_client(self) -> int:
        if self._call.client is None:
            return -1
        fd = self._call.client.fileno()
        if fd < 0:
            raise ClientGone
        self._poller.register(fd, READABLE)
        return fd

    def _look_at_client(self) -> None:
        client = self._call.client
        if client is None:
            return
        try:
            # Past any TLS layer: a peek there is refused, and an alert is a sign of life enough.
            seen = socket.socket.recv(client, 1, _PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            seen = b""
        if not seen:
            raise ClientGone
        # It sends ahead (pipelining): its end of file now stands behind that, so it cannot be seen.
        self._call.client = None
        self._poller.unregister(self._client_fd)
        self._client_fd = -1
