"""The tool `http_get`: one page from the web, never from this machine or its network.

The name is resolved once, every address that it has is judged, and the very address that was
judged is connected to: a name that answers differently a moment later gains nothing. Redirects are
judged like the first address.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

from xgw import __version__, clock

MAX_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})
BLOCK = 65536
NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Refused(Exception):
    """An address that may not be asked, or an answer that cannot be taken."""


@dataclass(frozen=True, slots=True)
class Fetching:
    """How `http_get` works for one tool: what it may reach, how long, and how much it reads."""

    allow_private: bool
    timeout_seconds: float
    max_bytes: int

    def function(self) -> Callable[[str], str]:
        """The function that a model calls."""

        def http_get(url: str) -> str:
            """Read a web page or a file by HTTP GET.

            Args:
                url: An address that begins with http:// or https://.
            """
            return self.get(url)

        return http_get

    def get(self, url: str) -> str:
        """The text of an answer, its status on the first line. Raises Refused and OSError."""
        deadline = clock.monotonic() + self.timeout_seconds
        for _ in range(MAX_REDIRECTS + 1):
            status, location, text = self._ask(url, deadline)
            if location is None:
                return f"HTTP {status}\n\n{text}"
            url = urljoin(url, location)
        raise Refused(f"it redirects more than {MAX_REDIRECTS} times")

    def _ask(self, url: str, deadline: float) -> tuple[int, str | None, str]:
        split = _split(url)
        port = split.port or (443 if split.scheme == "https" else 80)
        sock = self._connect(split.hostname or "", port, deadline)
        if split.scheme == "https":
            context = ssl.create_default_context()
            sock = context.wrap_socket(sock, server_hostname=split.hostname)
        connection = http.client.HTTPConnection(split.hostname or "", port)
        connection.sock = sock
        try:
            target = (split.path or "/") + (f"?{split.query}" if split.query else "")
            headers = {"User-Agent": f"xgw/{__version__}", "Accept-Encoding": "identity"}
            connection.request("GET", target, headers={**headers, "Connection": "close"})
            response = connection.getresponse()
            location = response.getheader("Location") if response.status in REDIRECTS else None
            return response.status, location, "" if location else self._read(response, deadline)
        except http.client.HTTPException as error:
            raise Refused(f"its answer cannot be read: {type(error).__name__}") from None
        finally:
            connection.close()

    def _read(self, response: http.client.HTTPResponse, deadline: float) -> str:
        parts: list[bytes] = []
        size = 0
        while block := response.read1(BLOCK):
            size += len(block)
            if size > self.max_bytes:
                raise Refused(f"its answer is larger than {self.max_bytes} bytes")
            if clock.monotonic() > deadline:
                raise TimeoutError(f"it took longer than {self.timeout_seconds:g} s")
            parts.append(block)
        charset = response.headers.get_content_charset() or "utf-8"
        try:
            return b"".join(parts).decode(charset, "replace")
        except LookupError:
            return b"".join(parts).decode("utf-8", "replace")

    def _connect(self, host: str, port: int, deadline: float) -> socket.socket:
        """A connection to an address that was judged; every address of the name must pass."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError):
            raise Refused(f"there is no host {host}") from None
        for *_, address in found:
            self._judge(host, str(address[0]))
        family, kind, proto, _, address = found[0]
        sock = socket.socket(family, kind, proto)
        try:
            sock.settimeout(max(0.1, deadline - clock.monotonic()))
            sock.connect(address)
        except OSError:
            sock.close()
            raise
        return sock

    def _judge(self, host: str, address: str) -> None:
        if self.allow_private:
            return
        ip = ipaddress.ip_address(address.partition("%")[0])
        inside = _inside(ip)
        if not (ip.is_global and inside.is_global) or ip.is_multicast or inside.is_multicast:
            raise Refused(f"{host} is at {address}, which is no public address")


def _inside(ip: Address) -> Address:
    """The IPv4 address that an IPv6 one leads to, where it does; else itself."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    if ip in NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip


def _split(url: str) -> SplitResult:
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        raise Refused(f"not an address: {url[:200]}") from None
    if split.scheme not in ("http", "https") or not split.hostname:
        raise Refused("only http:// and https:// addresses can be read")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise Refused("the address has characters that must be encoded")
    return split
