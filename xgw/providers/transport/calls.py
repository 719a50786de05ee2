"""A call to an upstream as others see it: it can be cancelled, and its client can go away."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class ClientGone(Exception):
    """The client that the call works for has closed its socket."""


class Cancelled(Exception):
    """The call was cancelled from elsewhere."""


class Call:
    """One exchange with an upstream, cancellable from any thread.

    `client` is the socket whose closing ends the call with ClientGone; None watches nobody. It is
    only ever peeked at. A call serves one thread, and one `Transport.send` after the other.
    """

    def __init__(self, client: socket.socket | None = None) -> None:
        self.client = client
        self._for = client
        self.cancelled = False
        self._lock = threading.Lock()
        self._interrupt: Callable[[], None] | None = None

    def cancel(self) -> None:
        """End the call: what it is blocked in, and whatever it begins later, raises Cancelled."""
        with self._lock:
            self.cancelled = True
            if self._interrupt is not None:
                self._interrupt()

    def sever(self) -> None:
        """Cut the client off: it takes nothing, and what is written for it is blocked in that."""
        if self._for is not None:
            with contextlib.suppress(OSError):  # it is closed already
                self._for.shutdown(socket.SHUT_RDWR)

    def attach(self, interrupt: Callable[[], None]) -> None:
        """Have `cancel` wake the call by `interrupt`, until `detach`. Raises Cancelled if late."""
        with self._lock:
            if self.cancelled:
                raise Cancelled
            self._interrupt = interrupt

    def detach(self) -> bool:
        """From here on no interrupt runs; False if one may have."""
        with self._lock:
            self._interrupt = None
            return not self.cancelled
