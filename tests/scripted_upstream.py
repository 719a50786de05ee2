"""An upstream on a real socket whose connections follow scripts, and the asking of it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from xgw.providers.transport import Call, Timeouts, Transport, UpstreamRequest, UpstreamResponse

DEADLINE = 60.0
LONG = Timeouts(connect=DEADLINE, first_byte=DEADLINE, idle=DEADLINE)

# For 127.0.0.1 and upstream.test; nobody but these tests trusts it.
CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgni90k1Vi916F8Lc2
husFu9t84A1zrVeVGT7Wp1zj4LWhRANCAASIV0fQTprusyxntpNlC2An02I2+xdu
7aN+xmw9VydJqTE8DdsvRO6/cP/DQr6BfIMvZxHv40y0efnRc3+7+Ryn
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBfDCCASGgAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAl4Z3cgdGVz
dHMwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMM
CXhndyB0ZXN0czBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIhXR9BOmu6zLGe2
k2ULYCfTYjb7F27to37GbD1XJ0mpMTwN2y9E7r9w/8NCvoF8gy9nEe/jTLR5+dFz
f7v5HKejYjBgMA8GA1UdEwEB/wQFMAMBAf8wDgYDVR0PAQH/BAQDAgKEMB0GA1Ud
DgQWBBT4prXDhmcxqP7JeDlPA2Tkmqq5cjAeBgNVHREEFzAVhwR/AAABgg11cHN0
cmVhbS50ZXN0MAoGCCqGSM49BAMCA0kAMEYCIQDVvAwBV0+2XOGJ6nzxHLCjE4eh
9lLLvQyrycHpbRweXAIhALXrv8e4IeWywsfCgwqFy9f0e3bQM6/7gVTsUNYuBxPd
-----END CERTIFICATE-----
"""


class Peer:
    """The upstream's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(DEADLINE)
        self.sock = sock
        self._unread = b""

    def head(self) -> bytes:
        """The head of the next request, without the empty line."""
        while b"\r\n\r\n" not in self._unread:
            block = self.sock.recv(65536)
            assert block, "the client hung up before its request was complete"
            self._unread += block
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        return head

    def body(self, length: int) -> bytes:
        """The next bytes after a head."""
        pieces = [self._unread]
        got = len(self._unread)
        while got < length:
            pieces.append(self.sock.recv(1 << 20))
            assert pieces[-1], "the client hung up before its body was complete"
            got += len(pieces[-1])
        whole = b"".join(pieces)
        self._unread = whole[length:]
        return whole[:length]

    def request(self) -> tuple[bytes, bytes]:
        """The next request: head and body."""
        head = self.head()
        lengths = [
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        return head, self.body(lengths[0] if lengths else 0)

    def answer(self, body: bytes = b"ok", *, headers: str = "", status: str = "200 OK") -> None:
        """A whole answer with a length."""
        head = f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        self.send(head.encode() + body)

    def send(self, block: bytes) -> None:
        """Exactly these bytes."""
        self.sock.sendall(block)

    def wait_for_end(self) -> None:
        """Until the client has closed or reset the connection."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while self.sock.recv(65536):
                pass

    def reset(self) -> None:
        """Close with a TCP reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def start_tls(self, certificate: Path) -> None:
        """Answer the client's TLS handshake."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.sock = context.wrap_socket(self.sock, server_side=True)


Script = Callable[[Peer], None]


class Upstream:
    """Listens on 127.0.0.1; the connections it gets follow `scripts`, in order."""

    def __init__(self, *scripts: Script) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._scripts = iter(scripts)
        self._threads: list[threading.Thread] = []
        self._faults: list[BaseException] = []
        self.connections = 0
        self.port: int = self._listener.getsockname()[1]
        self.name = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.name}"
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """Wait for the scripts under way; a fault in one of them is the test's."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join(DEADLINE)
        for thread in self._threads:
            thread.join(DEADLINE)
            assert not thread.is_alive(), "a script has not come to its end"
        for fault in self._faults:
            raise fault

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections += 1
                thread = threading.Thread(target=self._follow, args=(sock,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _follow(self, sock: socket.socket) -> None:
        peer = Peer(sock)
        try:
            script = next(self._scripts, None)
            assert script is not None, "a connection that no script is for"
            script(peer)
        except BaseException as fault:  # noqa: BLE001 it belongs to the test, which raises it
            self._faults.append(fault)
        finally:
            peer.sock.close()


@contextlib.contextmanager
def upstream(*scripts: Script) -> Iterator[Upstream]:
    """An Upstream for the block; its faults are raised at the end."""
    server = Upstream(*scripts)
    try:
        yield server
    finally:
        server.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection: a client as a server sees it, and the client itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname(), timeout=DEADLINE)
        served, _ = listener.accept()
    return served, client


def answering(raw: bytes) -> Script:
    """Read one request, send `raw`, hang up."""

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(raw)

    return script


def read_all(response: UpstreamResponse) -> bytes:
    """The whole body; closes the response."""
    pieces = []
    while piece := response.read():
        assert len(piece) <= 65536
        pieces.append(piece)
    response.close()
    return b"".join(pieces)


def ask(transport: Transport, url: str, body: bytes = b"{}", *, method: str = "POST") -> bytes:
    """The body of the answer to a request."""
    return read_all(transport.send(UpstreamRequest(method, url, (), body), LONG, Call()))
