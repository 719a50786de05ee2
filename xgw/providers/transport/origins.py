"""Where a URL leads: host and port, and the proxy on the way (the *_PROXY variables, NO_PROXY)."""

from __future__ import annotations

import base64
import functools
import urllib.request
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from xgw.values import UpstreamFailure

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; `authorization` is the value of its Proxy-Authorization header."""

    host: str
    port: int
    authorization: str | None

    @property
    def name(self) -> str:
        """For messages: host and port, no credentials."""
        return join_host(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Origin:
    """A server as a URL names it. Connections are shared by those who share it."""

    scheme: str
    host: str
    port: int
    authorization: str | None
    """From the user name and password in the URL."""
    proxy: Proxy | None

    def __hash__(self) -> int:
        # Each request asks for it three times; servers that agree in these are few.
        return hash((self.host, self.port))

    @property
    def name(self) -> str:
        """For messages: host and port, no credentials."""
        return join_host(self.host, self.port)

    @property
    def authority(self) -> str:
        """The value of the Host header (the port only where it is not the scheme's own)."""
        return join_host(self.host, None if self.port == _PORTS[self.scheme] else self.port)


def join_host(host: str, port: int | None) -> str:
    """ "host:port", with the brackets that an IPv6 address needs."""
    bracketed = f"[{host}]" if ":" in host else host
    return bracketed if port is None else f"{bracketed}:{port}"


@functools.lru_cache(maxsize=256)
def split_url(url: str) -> SplitResult:
    """The parts of an http(s) URL. Raises UpstreamFailure if it is none."""
    try:
        split = urlsplit(url)
        if split.scheme in _PORTS and split.hostname and split.port != 0:
            return split
    except ValueError:
        pass
    raise UpstreamFailure("upstream_connection", "the upstream's address is not an http(s) URL")


def find_origin(url: str, *, direct: bool = False) -> Origin:
    """The origin that `url` names, with the proxy of the environment unless `direct`.

    Raises UpstreamFailure if it is no http(s) URL or its proxy is none that can be used.
    """
    split = split_url(url)
    host, port = _to_ascii(split.hostname or ""), split.port or _PORTS[split.scheme]
    proxy = None if direct else _find_proxy(split.scheme, host, port)
    return Origin(split.scheme, host, port, _basic_authorization(split), proxy)


def find_target(url: str, origin: Origin) -> str:
    """What the request line names: path and query, or the whole URL for a proxy of plain HTTP."""
    split = split_url(url)
    target = split.path or "/"
    if split.query:
        target += f"?{split.query}"
    if origin.proxy is not None and origin.scheme == "http":
        return f"http://{origin.authority}{target}"
    return target


def _to_ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise UpstreamFailure("upstream_connection", "the upstream's host is not valid") from None


def _find_proxy(scheme: str, host: str, port: int) -> Proxy | None:
    proxies = urllib.request.getproxies()
    address = proxies.get(scheme) or proxies.get("all")
    if not address or urllib.request.proxy_bypass(join_host(host, port)):
        return None
    try:
        split = urlsplit(address if "://" in address else f"http://{address}")
        proxy_host, proxy_port = split.hostname, split.port or 80
    except ValueError:
        split, proxy_host, proxy_port = urlsplit(""), None, 0
    if split.scheme != "http" or not proxy_host:
        raise UpstreamFailure(
            "upstream_connection",
            f"the proxy set for {scheme} cannot be used: its address has to begin with http://",
        )
    return Proxy(proxy_host, proxy_port, _basic_authorization(split))


def _basic_authorization(split: SplitResult) -> str | None:
    if split.username is None:
        return None
    pair = f"{unquote(split.username)}:{unquote(split.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode("ascii")
