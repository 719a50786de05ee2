"""The demo's speed: waits between tokens, which end when the client leaves or the server stops."""

from __future__ import annotations

import selectors
import socket
import threading
from hashlib import blake2b

# Seconds at pace 1. A whole answer comes sooner than a stream of it would end: nobody reads along.
FIRST_TOKEN_SECONDS = 0.4
TOKEN_SECONDS = 1 / 35
WHOLE_TOKEN_SECONDS = 1 / 150
SILENCE_SECONDS = 600.0


class ClientLeft(ConnectionError):
    """The client closed its connection, or the server stops."""


class Pace:
    """Waits for one answer on one connection; `factor` multiplies every wait but silence."""

    def __init__(self, connection: socket.socket, stopping: threading.Event, factor: float) -> None:
        self._connection = connection
        self._stopping = stopping
        self._factor = factor
        self._watching = True
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Pace:
        self._selector.register(self._connection, selectors.EVENT_READ)
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def for_seconds(self, seconds: float) -> None:
        """Waits so long, whatever the factor is."""
        self._wait(seconds)

    def before_first_token(self) -> None:
        """Waits as long as a provider takes to begin."""
        self._wait(FIRST_TOKEN_SECONDS * self._factor)

    def before_token(self, number: int) -> None:
        """Waits for one token of a stream; the same token always takes the same time."""
        jitter = blake2b(number.to_bytes(4, "big"), digest_size=1).digest()[0] / 255
        self._wait(TOKEN_SECONDS * (0.6 + 0.8 * jitter) * self._factor)

    def before_whole(self, tokens: int) -> None:
        """Waits for an answer of so many tokens that is not streamed."""
        self._wait(WHOLE_TOKEN_SECONDS * tokens * self._factor)

    def silence(self) -> None:
        """Waits until the other side gives up, or for `SILENCE_SECONDS`."""
        self._wait(SILENCE_SECONDS)

    def _wait(self, seconds: float) -> None:
        if not self._watching:
            self._stopping.wait(seconds)
        elif seconds > 0 and self._selector.select(seconds):
            if not self._connection.recv(1, socket.MSG_PEEK):
                raise ClientLeft
            # The next request is there already: from here on only time is waited for.
            self._watching = False
        if self._stopping.is_set():
            raise ClientLeft
