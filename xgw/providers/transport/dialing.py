"""New connections: addresses, TCP, a proxy's tunnel and TLS.

Each is made on a thread of its own, because name look-ups cannot be interrupted: its caller leaves
at the deadline, when the call is cancelled or when the client has gone, whatever the thread is in.
"""

from __future__ import annotations

import _thread
import contextlib
import http.client
import socket
import ssl
import sys
import threading
from collections.abc import Callable

from xgw import clock
from xgw.providers.transport.calls import Call
from xgw.providers.transport.origins import Origin
from xgw.providers.transport.watching import READABLE, Watch
from xgw.values import UpstreamFailure


def new_tls_context() -> ssl.SSLContext:
    """The system's trust, HTTP/1.1 only."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def dial(
    origin: Origin, seconds: float, call: Call, tls: Callable[[], ssl.SSLContext]
) -> socket.socket:
    """A new non-blocking connection to `origin`, made within `seconds`.

    Raises UpstreamFailure (upstream_connection, upstream_timeout), Cancelled and ClientGone.
    """
    attempt = _Attempt(origin, seconds, tls)
    try:
        call.attach(attempt.wake)
        watch = attempt.watch_for(call)
        # Not threading.Thread: its start waits until the thread has run, behind all that are busy.
        _thread.start_new_thread(attempt.run, ())
        return attempt.wait(watch)
    finally:
        call.detach()
        attempt.leave()


class _Attempt:
    def __init__(self, origin: Origin, seconds: float, tls: Callable[[], ssl.SSLContext]) -> None:
        self._origin = origin
        self._seconds = seconds
        self._deadline = clock.monotonic() + seconds
        self._tls = tls
        self._lock = threading.Lock()
        self._left = False
        self._made: socket.socket | None = None
        self._failure: UpstreamFailure | None = None
        self._wakes, self._waits = socket.socketpair()
        self._wakes.setblocking(False)

    def wake(self) -> None:
        """Have the caller look."""
        with contextlib.suppress(OSError):
            self._wakes.send(b"!")

    def watch_for(self, call: Call) -> Watch:
        """What `wait` waits with. Raises ClientGone."""
        return Watch(self._waits, call)

    def wait(self, watch: Watch) -> socket.socket:
        """The connection, once there is one."""
        watch.wait(READABLE, self._deadline)
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._made is None:
                raise _too_slow(self._origin, self._seconds)
            made, self._made = self._made, None
            return made

    def leave(self) -> None:
        """The caller waits no more: what is made from here on is closed."""
        with self._lock:
            self._left = True
            self._wakes.close()
            self._waits.close()
            if self._made is not None:
                self._made.close()

    def run(self) -> None:
        """Make the connection, on a thread of its own."""
        made, failure = None, None
        try:
            made = self._connect()
        except UpstreamFailure as stated:
            failure = stated
        except (OSError, ValueError, http.client.HTTPException) as fault:
            failure = _failure(self._origin, fault, self._seconds)
        with self._lock:
            self._made, self._failure = made, failure
            if not self._left:
                self.wake()
            elif made is not None:
                made.close()

    def _connect(self) -> socket.socket:
        proxy = self._origin.proxy
        host, port = (proxy.host, proxy.port) if proxy else (self._origin.host, self._origin.port)
        addresses = _look_up(host, port)
        for number, address in enumerate(addresses):
            # A silent address (broken IPv6) must leave time for the next one.
            seconds = (self._deadline - clock.monotonic()) / (len(addresses) - number)
            try:
                return self._connect_to(address, port, max(seconds, 0.001))
            except (OSError, http.client.HTTPException):
                if number == len(addresses) - 1:
                    raise
        raise OSError("the name has no address")

    def _connect_to(self, address: str, port: int, seconds: float) -> socket.socket:
        origin = self._origin
        connection = http.client.HTTPConnection(address, port, timeout=seconds)
        if origin.proxy is not None and origin.scheme == "https":
            authorization = origin.proxy.authorization
            headers = {"Proxy-Authorization": authorization} if authorization else {}
            connection.set_tunnel(origin.host, origin.port, headers)
        with contextlib.ExitStack() as undo:
            undo.callback(connection.close)
            connection.connect()
            sock: socket.socket = connection.sock
            _probe_when_silent(sock)
            if origin.scheme == "https":
                sock.settimeout(max(self._deadline - clock.monotonic(), 0.001))
                sock = self._tls().wrap_socket(sock, server_hostname=origin.host)
            sock.setblocking(False)
            undo.pop_all()
        return sock


def _probe_when_silent(sock: socket.socket) -> None:
    """Keep long silences alive through routers that forget, and find out about lost peers."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 30)


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _too_slow(origin: Origin, seconds: float) -> UpstreamFailure:
    return UpstreamFailure(
        "upstream_timeout", f"connection to {_described(origin)} not made within {seconds:g} s"
    )


def _failure(origin: Origin, fault: Exception, seconds: float) -> UpstreamFailure:
    where = _described(origin)
    if isinstance(fault, TimeoutError):
        return _too_slow(origin, seconds)
    if isinstance(fault, ssl.SSLCertVerificationError):
        text = f"TLS with {origin.name} failed: {fault.verify_message}"
    elif isinstance(fault, ssl.SSLError):
        text = f"TLS with {origin.name} failed: {(fault.reason or 'broken off').lower()}"
    elif isinstance(fault, socket.gaierror | UnicodeError):
        host = origin.proxy.host if origin.proxy else origin.host
        text = f"the address of {host} cannot be found: the name does not resolve"
    elif isinstance(fault, ConnectionRefusedError):
        text = f"connection to {where} refused"
    elif isinstance(fault, ConnectionResetError | http.client.HTTPException):
        text = f"connection to {where} broken off while it was made"
    elif isinstance(fault, OSError):
        cause = " ".join((fault.strerror or str(fault)).split())[:200]
        text = f"connection to {where} failed: {cause}"
    else:
        text = f"connection to {where} failed: the address is not valid"
    return UpstreamFailure("upstream_connection", text)


def _described(origin: Origin) -> str:
    return f"{origin.name} by the proxy {origin.proxy.name}" if origin.proxy else origin.name
