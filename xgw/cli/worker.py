"""The process that serves, on gunicorn's threaded worker: one main thread, a pool that answers."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from gunicorn.workers.gthread import ThreadWorker

from xgw import clock, errors
from xgw.cli import responses
from xgw.cli.connections import ClientRequest, Connection, Head
from xgw.cli.cores import Core
from xgw.cli.pool import Pool
from xgw.cli.receiving import ClientSocket
from xgw.cli.refusals import HeadTooLarge, head_timeout, refusal_of, refuse, refuse_now
from xgw.cli.server import DRAIN_SECONDS
from xgw.cli.settled import Settled

if TYPE_CHECKING:
    from xgw.cli.server import Services

log = logging.getLogger("xgw.server")

KEEPALIVE_SECONDS = 75
HEAD_SECONDS = 10.0
WORKER_STOP_SECONDS = int(DRAIN_SECONDS) + 2
LAST_CALL_SECONDS = 0.25
"""How long an idle connection stays open in a worker that stops: a request may be on its way."""

AT_ONCE_SECONDS = 0.02
"""How long a thread stays with a connection that it has answered."""

MOST_AT_ONCE = 128
"""Connections that are accepted before the first of them is worked on."""

COLLECTED_FROM = 5000
"""How many objects more than at the last look make the next one due."""

EXPRESS_THREADS = 4
"""Threads for questions after the server's health alone: these are answered in a rush, too."""

UNSENT_BYTES = 64 << 10
"""How much the kernel holds for a client that takes nothing, beyond what is on its way to it.

What has left here is in the record, so in memory: the kernel would take 4 MB of a stream. What is
on its way cannot be limited from here, by the size of the send buffer neither: it is as much as the
client's own kernel takes, by default up to 6 MB for a client that has read fast before it stopped.
"""

_NOTSENT_LOWAT: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)
_TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NOT_NOW = frozenset({errno.EAGAIN, errno.ECONNABORTED, errno.EINTR, errno.EPROTO})


def _spare_collections() -> None:
    """Look for cycles less often, and never among what the start has made, which stays.

    That is most of what there is: to go through it takes 35 ms, in which no request goes on. What
    a request makes has no cycles, and is gone without any collection.
    """
    gc.freeze()
    gc.set_threshold(COLLECTED_FROM)


def leave(code: int) -> NoReturn:
    """End this process without waiting for the threads of its pool."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


class _Outcome:
    """What came of a request, as gunicorn asks for it."""

    def __init__(self, keep: bool) -> None:
        self._keep = keep

    def cancelled(self) -> bool:
        return False

    def result(self) -> bool:
        return self._keep


class Worker(ThreadWorker):  # type: ignore[misc]
    """The serving process.

    Its main thread accepts, gathers heads and watches idle connections; a thread of the pool is
    taken for a request only once its head is there, so that a slow client holds none. Calls have
    a pool of their own, whose threads run on one core.
    """

    lifeline: int
    cfg: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._idle: dict[Connection, None] = {}
        self._partial: dict[Connection, None] = {}
        self._core = Core()
        self._express = Pool(EXPRESS_THREADS, self._core.leave)
        self._others = Pool(self.cfg.threads, self._core.leave)
        self._held_back: list[Callable[[], None]] | None = None
        self._drain = threading.Thread(target=self._drain_services, name="drain")
        self._stop_by = 0.0

    def get_thread_pool(self) -> Pool:
        return Pool(self.cfg.threads, self._core.join)

    # -- life ------------------------------------------------------------------------------------

    @property
    def services(self) -> Services:
        services: Services = self.app.services
        return services

    def init_signals(self) -> None:
        super().init_signals()
        # A terminal tells parent and worker alike of Ctrl-C and of its end; the parent decides.
        # Not SIG_IGN: programs that this process starts would inherit that.
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
            signal.siginterrupt(number, False)

    def run(self) -> None:
        _spare_collections()
        self.cfg = Settled(self.cfg)
        self._core.choose()
        self._core.join()
        self._core.adopt(self.services.relaying_threads())
        self.poller.register(self.lifeline, selectors.EVENT_READ, self._parent_died)
        # Not before: who reads the address sends a request at once, which would wait for all this.
        self.app.announce_ready(self)
        super().run()
        self._drain.join(max(0.0, self._stop_by - clock.monotonic()))
        self.app.unwritten = True  # it stays so if this is cut short
        self.app.unwritten = not self.services.stop()
        leave(0)

    def handle_quit(self, sig: int, frame: Any) -> NoReturn:
        leave(0)

    def _parent_died(self, _pipe: Any) -> NoReturn:
        """Killed, that is: whoever starts the server anew needs the port and the store now."""
        leave(1)

    def set_accept_enabled(self, enabled: bool) -> None:
        super().set_accept_enabled(enabled)
        if not self.alive and not enabled and self._drain.ident is None:
            for listener in self.sockets:
                listener.close()
            self._stop_by = clock.monotonic() + WORKER_STOP_SECONDS
            self._drain.start()

    def _drain_services(self) -> None:
        self.services.drain(DRAIN_SECONDS)

    def _cap_keepalive(self, deadline: float) -> None:
        soon = min(deadline, clock.monotonic() + LAST_CALL_SECONDS)
        super()._cap_keepalive(soon)
        for connection in (*self._idle, *self._partial):
            connection.timeout = min(connection.timeout, soon)

    # -- connections -----------------------------------------------------------------------------

    def accept(self, listener: Any) -> None:
        """Take all connections that wait, then start on their requests.

        Work on the first ones would keep the later ones waiting: threads that are busy take turns.
        """
        jobs = self._held_back = []
        try:
            for _ in range(min(MOST_AT_ONCE, self.worker_connections - self.nr_conns)):
                if not self._accept_one(listener):
                    break
        finally:
            self._held_back = None
            for job in jobs:
                self.tpool.submit(job)

    def _accept_one(self, listener: Any) -> bool:
        """Whether there was one."""
        try:
            accepted, address = listener.accept()
        except OSError as error:
            if error.errno in _TOO_MANY_FILES:
                log.error("no further connection can be accepted: %s", error.strerror)
            elif error.errno not in _NOT_NOW:
                raise
            return False
        with contextlib.suppress(OSError):  # a client that is gone again is noticed when read
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if _NOTSENT_LOWAT is not None:
                accepted.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, UNSENT_BYTES)
        client = ClientSocket.adopt(accepted)
        self.nr_conns += 1
        self.enqueue_req(Connection(self.cfg, client, address, listener.getsockname()))
        return True

    def enqueue_req(self, conn: Connection) -> None:
        """Start on the connection's next request as soon as its head is there."""
        head = conn.read_head()
        if head is Head.NOTHING:
            self._watch(conn, self._idle, HEAD_SECONDS)
        elif head is Head.PARTIAL:
            self._watch(conn, self._partial, HEAD_SECONDS)
        else:
            self._proceed(conn, head)

    def on_client_socket_readable(self, conn: Connection, client: Any) -> None:
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        self.enqueue_req(conn)

    def _proceed(self, conn: Connection, head: Head) -> None:
        if head is not Head.COMPLETE:
            self._drop(conn)
        elif conn.asks_for_health:
            self._express.submit(partial(self._serve, conn, self._answer))
        elif not conn.is_call:
            self._others.submit(partial(self._serve, conn, self._answer))
        elif self._held_back is None:
            self.tpool.submit(partial(self._serve, conn, self.handle))
        else:
            self._held_back.append(partial(self._serve, conn, self.handle))

    def _watch(self, conn: Connection, place: dict[Connection, None], seconds: float) -> None:
        conn.timeout = clock.monotonic() + seconds
        place[conn] = None
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_readable, conn))

    def _on_readable(self, conn: Connection, _sock: Any) -> None:
        head = conn.read_head()
        if head is Head.PARTIAL and conn in self._idle:
            del self._idle[conn]
            conn.timeout = clock.monotonic() + HEAD_SECONDS
            self._partial[conn] = None
        elif head in (Head.COMPLETE, Head.GONE):
            self._unwatch(conn)
            self._proceed(conn, head)

    def _unwatch(self, conn: Connection) -> None:
        self.poller.unregister(conn.sock)
        self._idle.pop(conn, None)
        self._partial.pop(conn, None)

    def _drop(self, conn: Connection) -> None:
        self.nr_conns -= 1
        conn.close()

    def murder_pending(self) -> None:
        """Close what was idle for too long; answer heads that take too long with 408."""
        now = clock.monotonic()
        self._core.look(now)
        for place in (self._idle, self._partial):
            while place and (conn := next(iter(place))).timeout <= now:
                if place is self._partial:
                    refuse_now(conn.sock, head_timeout())
                self._unwatch(conn)
                self._drop(conn)

    # -- requests --------------------------------------------------------------------------------

    def _serve(self, conn: Connection, handle: Callable[[Connection], Any]) -> None:
        """Answer what comes on a connection, in a thread of a pool, then give it back."""
        keep = False
        try:
            keep = handle(conn)
        except Exception:  # around a connection: it ends, and its thread goes on to the next one
            log.exception("a connection failed")
        finally:
            self.method_queue.defer(self.finish_request, conn, _Outcome(keep))

    def handle(self, conn: Connection) -> Any:
        """Answer a call, in a thread of the pool; whether the connection stays open.

        A client that calls again at once is answered by the same thread: going through the main
        thread costs two changes of thread a request.
        """
        keep = self._answer(conn)
        while keep and self.alive and conn.follows(AT_ONCE_SECONDS):
            keep = self._answer(conn)
        return keep

    def _answer(self, conn: Connection) -> Any:
        """Answer one request; the connection is at its end unless it stays open."""
        keep = False
        try:
            conn.begin(KEEPALIVE_SECONDS if self.alive else LAST_CALL_SECONDS)
            keep = super().handle(conn)
        except HeadTooLarge as fault:
            self.handle_error(None, conn.sock, conn.client, fault)
        if not keep:
            conn.end()
        return keep

    def handle_request(self, req: ClientRequest, conn: Connection) -> bool:
        """Have the application answer; whether the connection may stay open."""
        last = not self.alive or len(self.keepalived_conns) >= self.max_keepalived
        return responses.answer(self.wsgi, req, conn, self.cfg, last=last)

    def _keepalive_after(self, conn: Connection, keepalive: bool) -> bool:
        """Nothing of a request is left to be drained: who leaves something is not kept."""
        return keepalive

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        refusal = refusal_of(exc)
        if refusal is None:
            where = f"{req.method} {req.path}" if req is not None else "a request"
            log.error("%s failed", where, exc_info=exc)
            refusal = errors.internal()
        refuse(client, refusal, bodiless=req is not None and req.method == "HEAD")
