"""The relay's way to an upstream: kept-alive HTTP/1.1 connections, bytes as they come, no SDK.

`Transport.send` gives an `UpstreamResponse` whose `read` never waits to fill a buffer. While
anything is waited for, a `Call` can be cancelled from any thread and its client is watched.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from functools import partial

from xgw.providers.transport.asking import NoAnswer, ask
from xgw.providers.transport.calls import Call, Cancelled, ClientGone
from xgw.providers.transport.dialing import dial, new_tls_context
from xgw.providers.transport.origins import Origin, find_origin, split_url
from xgw.providers.transport.pool import Pool
from xgw.providers.transport.requests import Timeouts, UpstreamRequest, build_head
from xgw.providers.transport.responses import UpstreamResponse
from xgw.providers.transport.wire import Wire

__all__ = [
    "Call",
    "Cancelled",
    "ClientGone",
    "Timeouts",
    "Transport",
    "UpstreamRequest",
    "UpstreamResponse",
]

# An idle connection that was closed by the other side is noticed within a round trip of its use.
_STALE_SECONDS = 2.0


class Transport:
    """Sends requests to upstreams; thread-safe. One a process, so that connections are shared."""

    def __init__(self, max_idle_per_origin: int = 64) -> None:
        self._pool = Pool(max_idle_per_origin)
        self._origins: dict[tuple[str, str, bool], Origin] = {}
        self._tls: ssl.SSLContext | None = None
        self._tls_lock = threading.Lock()

    def send(
        self,
        request: UpstreamRequest,
        timeouts: Timeouts,
        call: Call,
        meanwhile: Callable[[], None] | None = None,
    ) -> UpstreamResponse:
        """Send `request`; returns when the status line and the headers of the answer are there.

        `meanwhile` is what can be done while the upstream works, something short: it is called when
        the request is out, and before anything that has to be waited for until then.
        An idle connection that turns out to be dead is replaced by a new one. Raises
        UpstreamFailure, Cancelled, ClientGone, and ValueError for a request that cannot be sent.
        """
        origin = self._find_origin(request)
        head = build_head(request, origin)
        idle = self._find_idle(origin, call)
        if idle is not None:
            try:
                return self._exchange(idle, origin, head, request, timeouts, meanwhile)
            except NoAnswer as failure:
                if failure.after > _STALE_SECONDS:
                    raise
        if meanwhile is not None:
            meanwhile()
        fresh = Wire(dial(origin, timeouts.connect, call, self._tls_context), call)
        return self._exchange(fresh, origin, head, request, timeouts, meanwhile)

    def close(self) -> None:
        """Close the idle connections; those in use are closed when their answers end."""
        self._pool.close()

    def _find_idle(self, origin: Origin, call: Call) -> Wire | None:
        """An idle connection that looks alive, in the call's hands; None if there is none."""
        while (sock := self._pool.take(origin)) is not None:
            wire = Wire(sock, call)
            try:
                is_alive = wire.is_alive()
            except BaseException:
                wire.close()
                raise
            if is_alive:
                return wire
            wire.close()
        return None

    def _exchange(
        self,
        wire: Wire,
        origin: Origin,
        head: bytes,
        request: UpstreamRequest,
        timeouts: Timeouts,
        meanwhile: Callable[[], None] | None,
    ) -> UpstreamResponse:
        try:
            asked = ask(wire, origin, head, request.pieces, timeouts, meanwhile)
        except BaseException:
            wire.close()
            raise
        return UpstreamResponse(
            wire,
            asked,
            origin=origin,
            method=request.method,
            timeouts=timeouts,
            finish=partial(self._finish, origin),
        )

    def _finish(self, origin: Origin, wire: Wire, alive: bool) -> None:
        if not alive:
            wire.close()
        elif (sock := wire.release()) is not None:
            self._pool.give(origin, sock)

    def _find_origin(self, request: UpstreamRequest) -> Origin:
        split = split_url(request.url)
        key = (split.scheme, split.netloc, request.direct)
        origin = self._origins.get(key)
        if origin is None:
            origin = self._origins[key] = find_origin(request.url, direct=request.direct)
        return origin

    def _tls_context(self) -> ssl.SSLContext:
        with self._tls_lock:
            if self._tls is None:
                self._tls = new_tls_context()
            return self._tls
