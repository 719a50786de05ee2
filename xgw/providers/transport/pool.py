"""Idle connections, kept for the next request to the same origin."""

from __future__ import annotations

import socket
import threading
from collections import deque

from xgw import clock
from xgw.providers.transport.origins import Origin

IDLE_SECONDS = 60.0


class Pool:
    """At most `max_idle` idle connections an origin, closed after `idle_seconds`; thread-safe.

    The last one given is the first one taken, so that a quiet hour empties the pool.
    """

    def __init__(self, max_idle: int, idle_seconds: float = IDLE_SECONDS) -> None:
        self._max_idle = max_idle
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._idle: dict[Origin, deque[tuple[float, socket.socket]]] = {}
        self._sweeper: threading.Thread | None = None
        self._closed = False

    def take(self, origin: Origin) -> socket.socket | None:
        """A connection, now the caller's own, who looks if it is alive; None if there is none."""
        with self._lock:
            idle = self._idle.get(origin)
            return idle.pop()[1] if idle else None

    def give(self, origin: Origin, sock: socket.socket) -> None:
        """Keep a connection on which nothing is under way."""
        surplus: socket.socket | None = sock
        with self._lock:
            if not self._closed and self._max_idle > 0:
                idle = self._idle.setdefault(origin, deque())
                surplus = idle.popleft()[1] if len(idle) >= self._max_idle else None
                idle.append((clock.monotonic() + self._idle_seconds, sock))
                self._start_sweeper()
        if surplus is not None:
            surplus.close()

    def close(self) -> None:
        """Close what is idle; what is given later is closed at once."""
        with self._changed:
            self._closed = True
            socks = [sock for idle in self._idle.values() for _, sock in idle]
            self._idle.clear()
            self._changed.notify_all()
        for sock in socks:
            sock.close()

    def _start_sweeper(self) -> None:
        if self._sweeper is None:
            self._sweeper = threading.Thread(
                target=self._sweep, name="idle connections", daemon=True
            )
            self._sweeper.start()

    def _sweep(self) -> None:
        """Close what has been idle for too long; ends when nothing is left to watch."""
        while True:
            with self._changed:
                expired = self._take_expired(clock.monotonic())
                oldest = min((idle[0][0] for idle in self._idle.values()), default=None)
                if oldest is None:
                    self._sweeper = None
                elif not expired:
                    self._changed.wait(oldest - clock.monotonic())
            for sock in expired:
                sock.close()
            if oldest is None:
                return

    def _take_expired(self, now: float) -> list[socket.socket]:
        expired = []
        for origin, idle in list(self._idle.items()):
            while idle and idle[0][0] <= now:
                expired.append(idle.popleft()[1])
            if not idle:
                del self._idle[origin]
        return expired
