"""Who may enter: hosts, origins and keys are looked at in front of everything else."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xgw import errors
from xgw.config import Config, rules
from xgw.errors import ApiError
from xgw.recording.keys import digest
from xgw.web.bodies import check_json_type
from xgw.web.refusals import answer, register_errors

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = [
    "Caller",
    "Guard",
    "Keyring",
    "answer",
    "check_host",
    "check_json_type",
    "check_origin",
    "digest",
    "is_websocket",
    "no_websocket_here",
    "register_errors",
]

EXPOSED_HEADERS = (
    "X-Session-Id",
    "X-Turn-Id",
    "X-Run-Id",
    "X-Trace-Id",
    "x-request-id",
    "retry-after",
)
SECURITY_HEADERS = (("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"))
PREFLIGHT_SECONDS = 600

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES = frozenset({"127.0.0.1", "::1", "localhost"})
_USUAL_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{1,5}))?", re.ASCII | re.I)
_OPENAI_PATH = re.compile(r"(?:/s/.+)?/v1(?:/.*)?", re.DOTALL)
_MODEL_PATH = re.compile(r"(?:/s/.+)?/v1/(?:chat/completions|embeddings)", re.DOTALL)
_DASHBOARD_PATH = re.compile(r"/ui(?:/.*)?", re.DOTALL)


# -- keys ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a request comes from; without `sees_all` only `project_id` exists for them."""

    project_id: str
    org_id: str | None = None
    api_key_id: str | None = None
    alias: str | None = None
    sees_all: bool = False


EVERYONE = Caller("default", sees_all=True)
Known = tuple[str, Caller | None]
Issued = Callable[[], Iterable[Known]]


def _nobody() -> Iterable[Known]:
    return ()


class Keyring:
    """The token, the configured client keys, and those of `issued` (digest and caller each).

    `issued` is asked at each request, so that a revoked key opens nothing from then on; such a one
    may stay there with the caller None, and without any other key nobody gets in then. `own` is
    what commands on this machine show: it opens everything and counts as no key.
    """

    def __init__(self, config: Config, issued: Issued = _nobody, own: str | None = None) -> None:
        self._own: list[Known] = [(digest(own), EVERYONE)] if own else []
        self._is_private = rules.is_loopback(config.server.host)
        self._configured: list[Known] = [
            (digest(client.key), Caller(client.project, client.org)) for client in config.keys
        ]
        if config.server.token:
            self._configured.append((digest(config.server.token), EVERYONE))
        self._issued = issued

    def authenticate(self, environ: WSGIEnvironment) -> Caller:
        """The caller; ApiError 401 without a credential that opens. Without any keys: everyone.

        `environ["xgw.credential"]` then names the header whose credential opened.
        """
        known = [*self._configured, *self._issued()]
        if not known and self._is_private:
            return EVERYONE
        for name, secret in _credentials(environ):
            if (caller := _find([*known, *self._own], digest(secret))) is not None:
                environ["xgw.credential"] = name
                return caller
        raise errors.unauthorized()

    @property
    def wants_key(self) -> bool:
        """Whether requests have to show a key."""
        return not self._is_private or bool([*self._configured, *self._issued()])


def _find(known: list[Known], shown: str) -> Caller | None:
    """Looks at every key, in constant time each: how long it takes tells nothing."""
    found = None
    for digest_of_key, caller in known:
        if hmac.compare_digest(digest_of_key, shown):
            found = caller
    return found


def _credentials(environ: WSGIEnvironment) -> Iterable[tuple[str, str]]:
    if key := environ.get("HTTP_X_XGW_KEY"):
        yield "x-xgw-key", key.strip()
    scheme, _, key = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        yield "authorization", key.strip()
    if key := environ.get("HTTP_X_API_KEY"):
        yield "x-api-key", key.strip()


# -- hosts and origins -----------------------------------------------------------------------------


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
    if _opened_to(environ, config) or (not crosses and _is_own(origin or "", environ)):
        return
    raise _foreign()


def is_websocket(environ: WSGIEnvironment) -> bool:
    """Whether the request wants to become a websocket."""
    wanted: str = environ.get("HTTP_UPGRADE", "")
    return wanted.strip().lower() == "websocket"


def no_websocket_here() -> ApiError:
    """426: for a websocket handshake at a path that speaks plain HTTP alone."""
    message = "there is no websocket here: send a plain HTTP request"
    return ApiError(426, "invalid_request_error", message, code="websocket_not_supported")


def _foreign() -> ApiError:
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


def _opened_to(environ: WSGIEnvironment, config: Config) -> str | None:
    """The request's origin if it is an allowed one and the path is one that it may call."""
    origin: str | None = environ.get("HTTP_ORIGIN")
    if origin is None or not _OPENAI_PATH.fullmatch(environ.get("PATH_INFO", "")):
        return None
    return origin if origin in config.server.allowed_origins else None


# -- the gate --------------------------------------------------------------------------------------


class Guard:
    """WSGI middleware in front of everything: host, origin, key, media type, security headers.

    The inner application finds the caller in `environ["xgw.caller"]`. Two kinds of requests get
    there without one: `GET /health`, and calls of a model, where `environ["xgw.refused"]` holds
    the ApiError to answer with, so that the refused call is recorded.
    """

    def __init__(self, app: WSGIApplication, config: Config, keyring: Keyring) -> None:
        self._app = app
        self._config = config
        self._keyring = keyring

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start = _with_headers(start_response, _opened_to(environ, self._config))
        try:
            check_host(environ, self._config)
            check_origin(environ, self._config)
            if _is_preflight(environ):
                return self._preflight(environ, start)
            self._identify(environ)
            if not _DASHBOARD_PATH.fullmatch(environ.get("PATH_INFO", "")):
                check_json_type(environ)
        except ApiError as error:
            return answer(error, environ, start)
        return self._app(environ, start)

    def _identify(self, environ: WSGIEnvironment) -> None:
        try:
            environ["xgw.caller"] = self._keyring.authenticate(environ)
        except ApiError as refusal:
            path, method = environ.get("PATH_INFO", ""), environ["REQUEST_METHOD"]
            if method == "POST" and _MODEL_PATH.fullmatch(path):
                environ["xgw.refused"] = refusal
            elif path != "/health" or method not in ("GET", "HEAD"):
                raise

    def _preflight(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if _opened_to(environ, self._config) is None:
            raise _foreign()
        headers = [
            ("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"),
            ("Access-Control-Max-Age", str(PREFLIGHT_SECONDS)),
        ]
        if wanted := environ.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS"):
            headers.append(("Access-Control-Allow-Headers", wanted))
        if environ.get("HTTP_ACCESS_CONTROL_REQUEST_PRIVATE_NETWORK") == "true":
            headers.append(("Access-Control-Allow-Private-Network", "true"))
        start("204 No Content", headers)
        return []


def _is_preflight(environ: WSGIEnvironment) -> bool:
    return (
        environ["REQUEST_METHOD"] == "OPTIONS"
        and "HTTP_ORIGIN" in environ
        and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ
    )


def _with_headers(start_response: StartResponse, origin: str | None) -> StartResponse:
    def start(
        status: str, headers: list[tuple[str, str]], *exc_info: object
    ) -> Callable[[bytes], object]:
        present = {name.lower() for name, _ in headers}
        added = [pair for pair in SECURITY_HEADERS if pair[0].lower() not in present]
        if origin is not None:
            added += [
                ("Access-Control-Allow-Origin", origin),
                ("Access-Control-Expose-Headers", ", ".join(EXPOSED_HEADERS)),
                ("Vary", "Origin"),
            ]
        return start_response(status, [*headers, *added], *exc_info)  # type: ignore[arg-type]

    return start
