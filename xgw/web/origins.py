"""Hosts and origins: by what name this server was called, and which page's script is asking."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xgw import errors
from xgw.config import Config
from xgw.errors import ApiError
from xgw.web.surfaces import is_openai

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES = frozenset({"127.0.0.1", "::1", "localhost"})
_USUAL_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{1,5}))?", re.ASCII | re.I)


def check_host(environ: WSGIEnvironment, config: Config) -> None:
    """ApiError 421 for a name that is not ours: a foreign page may have had it point here."""
    host = environ.get("HTTP_HOST")
    if not host:
        raise errors.bad_request("the request has no Host header")
    named = [host]
    # A proxy's spelling, "GET http://name/path", names the server a second time.
    target = environ.get("RAW_URI", "/")
    if not target.startswith("/") and "://" in target:
        named.append(target.partition("://")[2].partition("/")[0])
    for name in named:
        if not _is_ours(name, config):
            message = f"this server is not called {name[:256]!r} (see allowed_hosts)"
            raise ApiError(421, "invalid_request_error", message, code="misdirected_request")


def check_origin(environ: WSGIEnvironment, config: Config) -> None:
    """ApiError 403 for a foreign page that would change something or open a websocket."""
    if environ["REQUEST_METHOD"] in _SAFE_METHODS and not is_websocket(environ):
        return
    origin = environ.get("HTTP_ORIGIN")
    crosses = environ.get("HTTP_SEC_FETCH_SITE", "").strip().lower() == "cross-site"
    if origin is None and not crosses:
        return
    if opened_to(environ, config) or (not crosses and _is_own(origin or "", environ)):
        return
    raise foreign()


def is_websocket(environ: WSGIEnvironment) -> bool:
    """Whether the request wants to become a websocket."""
    wanted: str = environ.get("HTTP_UPGRADE", "")
    return wanted.strip().lower() == "websocket"


def came_by_https(environ: WSGIEnvironment) -> bool:
    """Whether the browser speaks TLS, also to a proxy in front: it says so of its own page.

    What a proxy says is not believed (anyone could say it), and a GET may tell nothing.
    """
    origin: str = environ.get("HTTP_ORIGIN", "")
    return environ["wsgi.url_scheme"] == "https" or origin.lower().startswith("https://")


def no_websocket_here() -> ApiError:
    """426: for a websocket handshake at a path that speaks plain HTTP alone."""
    message = "there is no websocket here: send a plain HTTP request"
    return ApiError(426, "invalid_request_error", message, code="websocket_not_supported")


def needs_websocket() -> ApiError:
    """400: for a plain HTTP request at a path that is a websocket alone."""
    message = "this is the address of a websocket, to be opened with ws:// or wss://"
    return errors.bad_request(message, code="websocket_needed")


def foreign() -> ApiError:
    """403: a page that is not ours, and not one of `allowed_origins` at a path open to those."""
    return errors.forbidden("requests from this origin are not allowed", code="foreign_origin")


def _is_ours(host: str, config: Config) -> bool:
    parsed = _parse_host(host)
    if parsed is None:
        return False
    return parsed[0] in _LOOPBACK_NAMES or parsed[0] in config.server.allowed_hosts


def _parse_host(host: str) -> tuple[str, int | None] | None:
    """Name (lower case, without brackets and final dot) and port; None if it is no host."""
    match = _HOST.fullmatch(host)
    if match is None:
        return None
    name = (match[1] or match[2]).lower().rstrip(".")
    return name, int(match[3]) if match[3] else None


def _is_own(origin: str, environ: WSGIEnvironment) -> bool:
    """Whether `origin` is where this very request went: scheme, host and port."""
    scheme, _, rest = origin.partition("://")
    page, server = _parse_host(rest), _parse_host(environ["HTTP_HOST"])
    usual = _USUAL_PORTS.get(scheme.lower())
    if usual is None or page is None or server is None:
        return False
    # In front of a public name there may be a proxy that speaks TLS and passes plain HTTP on.
    if server[0] in _LOOPBACK_NAMES and scheme.lower() != environ["wsgi.url_scheme"]:
        return False
    return page[0] == server[0] and (page[1] or usual) == (server[1] or usual)


def opened_to(environ: WSGIEnvironment, config: Config) -> str | None:
    """The request's origin if it is an allowed one and the path is one that it may call."""
    origin: str | None = environ.get("HTTP_ORIGIN")
    if origin is None or not is_openai(environ.get("PATH_INFO", "")):
        return None
    return origin if origin in config.server.allowed_origins else None
