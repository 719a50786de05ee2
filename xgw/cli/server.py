"""The server of a store: the lock that makes it the only one, how it is found, bound and run."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from xgw import clock
from xgw.errors import UsageError

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication
    from werkzeug.serving import BaseWSGIServer

LOCK_SECONDS = 1.0
"""How long the lock is waited for: a killed server's worker may hold it a moment longer."""

DRAIN_SECONDS = 10.0
"""How long calls under way may go on after the server was asked to stop."""

_BACKLOG = 2048
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


# -- the one server of a store ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a running server is: `url` without a path, `started_at` in RFC 3339.

    `key` opens everything there, for those who may read what only the server's own user may.
    """

    url: str
    pid: int
    started_at: str
    version: str
    key: str = field(default="", repr=False)


class ServerLock:
    """The right to serve a store. The operating system takes it back when its holders are gone."""

    def __init__(self, store_path: Path, file: Any) -> None:
        self._file = file
        self._announcement = _announcement_of(store_path)

    @classmethod
    def acquire(cls, store_path: Path) -> ServerLock:
        """UsageError if another server has the store, with its address, or the folder is closed."""
        path = _lock_of(store_path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab", buffering=0)
        except OSError as error:
            words = f"the store {store_path} cannot be used: {error.strerror} ({error.filename})"
            raise UsageError(words) from None
        pause, deadline = threading.Event(), clock.monotonic() + LOCK_SECONDS
        while not _try_lock(file.fileno()):
            if clock.monotonic() > deadline:
                file.close()
                raise UsageError(_taken(store_path))
            pause.wait(0.02)
        lock = cls(store_path, file)
        with contextlib.suppress(OSError):
            lock._announcement.unlink(missing_ok=True)
        return lock

    def fileno(self) -> int:
        """Its file's descriptor: whoever has it open is a holder."""
        descriptor: int = self._file.fileno()
        return descriptor

    def announce(self, address: ServerAddress) -> None:
        """Tell other commands where the server is; UsageError if that cannot be written."""
        draft = self._announcement.with_name(f"{self._announcement.name}.{os.getpid()}")
        try:
            draft.unlink(missing_ok=True)
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(orjson.dumps(asdict(address)))
            draft.replace(self._announcement)
        except OSError as error:
            words = f"{self._announcement} cannot be written: {error.strerror}"
            raise UsageError(words) from None

    def release(self) -> None:
        """Give the store free."""
        with contextlib.suppress(OSError):
            self._announcement.unlink(missing_ok=True)
        self._file.close()


@contextlib.contextmanager
def without_server(store_path: Path) -> Iterator[None]:
    """No server has the store inside of this block; UsageError if one does."""
    lock = ServerLock.acquire(store_path)
    try:
        yield
    finally:
        lock.release()


def find_server(store_path: Path) -> ServerAddress | None:
    """The server that has the store now, if there is one and it has said where it is."""
    try:
        with _lock_of(store_path).open("rb") as file:
            if _try_lock(file.fileno(), shared=True):
                return None
        return ServerAddress(**orjson.loads(_announcement_of(store_path).read_bytes()))
    except (OSError, TypeError, orjson.JSONDecodeError):
        return None


def _lock_of(store_path: Path) -> Path:
    real = store_path.resolve()
    return real.with_name(f"{real.name}.server.lock")


def _announcement_of(store_path: Path) -> Path:
    real = store_path.resolve()
    return real.with_name(f"{real.name}.server.json")


def _taken(store_path: Path) -> str:
    other = find_server(store_path)
    if other is None:
        what = "and is just starting or stopping: try again in a moment"
    else:
        what = (
            f"at {other.url} (process {other.pid}): use that one, end it first, "
            "or name another store with --db PATH"
        )
    return f"a server already runs on the store {store_path} {what}"


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int, *, shared: bool = False) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int, *, shared: bool = False) -> bool:
        """Held by the open file, so a forked worker holds it too."""
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# -- listening -------------------------------------------------------------------------------------


def bind(host: str, port: int) -> socket.socket:
    """A socket that has the port, 0 for any free one; UsageError says what is in the way.

    Who connects is refused until it is told to `listen`.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise UsageError(f"the host {host} is not known: it is nothing to listen at") from None
    family, kind, proto, _, address = found[0]
    listener = socket.socket(family, kind, proto)
    try:
        if sys.platform != "win32":  # where it would let two servers have one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise UsageError(_why_not_bound(error, host, port)) from None
    return listener


def listen(listener: socket.socket) -> None:
    """Have those wait who connect; UsageError if another server has taken the port meanwhile."""
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        host, port = listener.getsockname()[:2]
        listener.close()
        raise UsageError(_why_not_bound(error, host, port)) from None


def _why_not_bound(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use: end what uses it, or choose another with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine"
    return f"cannot listen at port {port} of {host}: {error.strerror}"


def url_of(listener: socket.socket) -> str:
    """The address by which this machine reaches it, without a path."""
    host, port = listener.getsockname()[:2]
    host = _WILDCARDS.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


# -- running ---------------------------------------------------------------------------------------


class Services(Protocol):
    """What lives behind the application, in the serving process alone."""

    def start(self) -> None:
        """Start the threads."""

    def relaying_threads(self) -> list[int]:
        """The native ids of the threads whose work comes with every call."""

    def drain(self, seconds: float) -> None:
        """Let what is under way end, in `seconds` at most, then end it."""

    def stop(self) -> bool:
        """Write what is left and stop the threads; whether all of it was written."""


MakeApp = Callable[[], tuple["WSGIApplication", Any]]
ReadyHook = Callable[[Any, bool], None]


@dataclass(frozen=True)
class Server:
    """A server that is ready to run.

    `make_app` is called in the serving process and returns the application and its `Services`.
    Each of `on_ready` is called there with the services once they have started, and whether it is
    a restart after a crash.
    """

    make_app: MakeApp
    listener: socket.socket
    on_ready: Sequence[ReadyHook] = ()

    def run(self) -> int:
        """Serve until SIGTERM or Ctrl-C; the exit code, 1 if something of the record is lost."""
        if sys.platform == "win32":
            return _run_threaded(self)
        from xgw.cli import arbiter

        return arbiter.serve(self)

    def announce_ready(self, services: Any, *, restarted: bool) -> None:
        """Called by whatever runs the server."""
        for hook in self.on_ready:
            hook(services, restarted)


def make_threaded(wsgi: WSGIApplication, listener: socket.socket) -> BaseWSGIServer:
    """Werkzeug's server on the socket: where there is no gunicorn, and in tests."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log(self, type: str, message: str, *args: object) -> None:
            """Requests are not logged; the store has them."""

    host, port = listener.getsockname()[:2]
    return make_server(
        host, port, wsgi, threaded=True, request_handler=Handler, fd=listener.fileno()
    )


def _run_threaded(server: Server) -> int:
    wsgi, services = server.make_app()
    threaded = make_threaded(wsgi, server.listener)
    services.start()
    server.announce_ready(services, restarted=False)
    with contextlib.suppress(KeyboardInterrupt):
        threaded.serve_forever()
    with contextlib.suppress(KeyboardInterrupt):
        threaded.server_close()
        server.listener.close()
        services.drain(DRAIN_SECONDS)
    return 0 if services.stop() else 1
