"""The parent process of a server: it watches over one worker and tells it when to stop."""

from __future__ import annotations

import contextlib
import gc
import logging
import mmap
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gunicorn import glogging
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.sock import TCP6Socket, TCPSocket

from xgw import errors
from xgw.cli.server import DRAIN_SECONDS
from xgw.cli.worker import KEEPALIVE_SECONDS, WORKER_STOP_SECONDS, Worker, leave

if TYPE_CHECKING:
    from xgw.cli.server import Server

log = logging.getLogger("xgw.server")

THREADS = 1024
CONNECTIONS = 4096
STOP_SECONDS = WORKER_STOP_SECONDS + 8
"""When the parent ends a worker that does not stop by itself: it may wait 5 s for the store."""

HUNG_SECONDS = 120
"""A worker whose main thread did not move for so long is replaced."""


def serve(server: Server) -> int:
    """Serve until told to stop; the exit code."""
    connections = _raise_file_limit()
    # What is there is shared with the worker, as far as its collections leave it alone.
    gc.collect()
    gc.freeze()
    application = _Application(server, min(THREADS, connections // 2), connections)
    parent = os.getpid()
    try:
        _Arbiter(application).run()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
        if os.getpid() != parent:
            # A worker that could not start: what follows here is the parent's to do.
            leave(code)
        return 0 if code == 0 and not application.unwritten else 1
    return 0


def _raise_file_limit() -> int:
    """Allow as many open files as may be; how many client connections that is enough for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * CONNECTIONS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # the kernel's own limit is below the one it names
            wanted = soft
    # Each call has a client's connection and an upstream's.
    return max(64, min(CONNECTIONS, wanted // 2 - 64))


class _Application(BaseApplication):  # type: ignore[misc]
    """The settings; nothing of gunicorn's own environment variables and files applies."""

    def __init__(self, server: Server, threads: int, connections: int) -> None:
        self.server = server
        self._limits = {"threads": threads, "worker_connections": connections}
        self.lifeline = os.pipe()
        self._shared = mmap.mmap(-1, 1)
        super().__init__()

    @property
    def unwritten(self) -> bool:
        """Whether a worker ended before all was written; shared by the worker and its parent."""
        return self._shared[0] == 1

    @unwritten.setter
    def unwritten(self, value: bool) -> None:
        self._shared[0] = int(value)

    def load_config(self) -> None:
        settings: dict[str, Any] = {
            **self._limits,
            "workers": 1,
            "worker_class": Worker,
            "logger_class": _Log,
            "timeout": HUNG_SECONDS,
            "graceful_timeout": STOP_SECONDS,
            "keepalive": KEEPALIVE_SECONDS,
            "control_socket_disable": True,
            "http_protocols": "h1",
            "http2_cleartext": "off",
            "http_parser": "python",
            "limit_request_line": 8190,
            "limit_request_fields": 256,
            "limit_request_field_size": 65536,
            "header_map": "drop",
            "forwarder_headers": "",
            "forwarded_allow_ips": "",
            "secure_scheme_headers": {},
            "post_fork": self._after_fork,
            "post_worker_init": self._start_services,
            "worker_tmp_dir": "/dev/shm" if os.access("/dev/shm", os.W_OK) else None,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def _after_fork(self, _arbiter: Any, worker: Worker) -> None:
        """The writing end stays with the parent alone: its end is the parent's end."""
        os.close(self.lifeline[1])
        worker.lifeline = self.lifeline[0]
        self.cfg.set("graceful_timeout", WORKER_STOP_SECONDS)

    def load(self) -> Any:
        """Called in the worker: threads and connections do not survive a fork."""
        with _failing_boot():
            wsgi, self.services = self.server.make_app()
        return wsgi

    def _start_services(self, worker: Worker) -> None:
        with _failing_boot():
            self.services.start()

    def announce_ready(self, worker: Worker) -> None:
        """Called in the worker once nothing but requests is waited for."""
        with _failing_boot():
            self.server.announce_ready(self.services, restarted=worker.age > 1)


@contextlib.contextmanager
def _failing_boot() -> Iterator[None]:
    """A worker that cannot start says why, and the parent does not try again."""
    try:
        yield
    except errors.XgwError as error:
        log.error("%s", error)
        sys.exit(Arbiter.WORKER_BOOT_ERROR)


class _Arbiter(Arbiter):  # type: ignore[misc]
    """The parent: it restarts a worker that died, and passes on that it is time to stop."""

    def __init__(self, app: _Application) -> None:
        super().__init__(app)
        self._keeps_on_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        listener = app.server.listener
        kind = TCP6Socket if listener.family == socket.AF_INET6 else TCPSocket
        # Its own attribute: gunicorn would take sockets from the environment otherwise.
        self.LISTENERS = [kind(listener.getsockname(), self.cfg, self.log, listener.detach())]

    def handle_int(self) -> None:
        log.warning(
            "stopping: calls under way may end (%.0f s); Ctrl-C again: at once", DRAIN_SECONDS
        )
        raise StopIteration

    def handle_hup(self) -> None:
        if not self._keeps_on_hangup:
            raise StopIteration

    def handle_ttin(self) -> None:
        """One worker: the store has one writer."""

    handle_ttou = handle_usr2 = handle_winch = handle_ttin


class _Log(glogging.Logger):  # type: ignore[misc]
    """gunicorn's messages go where xgw's go; requests are not logged, the store has them."""

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self.error_log = log

    def access(self, resp: Any, req: Any, environ: Any, request_time: Any) -> None:
        pass
