"""Who may enter: hosts, origins and keys are looked at in front of everything else."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from xgw import errors
from xgw.config import Config, rules
from xgw.errors import ApiError
from xgw.exchange.headers import CREDENTIALS, Headers
from xgw.recording.keys import digest
from xgw.web.bodies import check_json_type, has_body
from xgw.web.headers import EXPOSED_HEADERS, PAGE_HEADERS, security_headers_beside
from xgw.web.logins import Logins, login_url
from xgw.web.origins import (
    check_host,
    check_origin,
    foreign,
    is_websocket,
    no_websocket_here,
    opened_to,
)
from xgw.web.refusals import answer, register_errors
from xgw.web.surfaces import calls_model, is_dashboard, is_open, takes_files

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

PREFLIGHT_SECONDS = 600


# -- keys ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a request comes from; without `sees_all` only `project_id` exists for them."""

    project_id: str
    org_id: str | None = None
    api_key_id: str | None = None
    alias: str | None = None
    sees_all: bool = False


COOKIE = "cookie"
"""`environ["xgw.credential"]` of who came by a login."""

EVERYONE = Caller("default", sees_all=True)
Known = tuple[str, Caller | None]
_NAME = itemgetter(0)
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
        self._passes_through = any(provider.passthrough for provider in config.providers)
        self._is_private = rules.is_loopback(config.server.host)
        self._configured: list[Known] = [
            (digest(client.key), Caller(client.project, client.org)) for client in config.keys
        ]
        self.logins = Logins(config.server.token) if config.server.token else None
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

    def without_own(self, headers: Headers) -> Headers:
        """These headers without the credentials that open something here, or did.

        They are nobody else's business: a provider that gets its clients' credentials would have
        them too.
        """
        if not self._passes_through:
            return headers
        known = [*self._configured, *self._issued(), *self._own]
        return tuple(
            (name, value)
            for name, value in headers
            if name.lower() not in CREDENTIALS
            or not any(_is_among(known, part.strip()) for part in (value, value.partition(" ")[2]))
        )

    def admit(self, environ: WSGIEnvironment) -> Caller:
        """The caller, for the dashboard: by login too, and never by a key that bounds them.

        ApiError 401 without any of that, 403 with a client key.
        """
        if self.logins is not None and self.logins.admits(environ):
            environ["xgw.credential"] = COOKIE
            return EVERYONE
        caller = self.authenticate(environ)
        if not caller.sees_all:
            message = "a client key opens the API, not the dashboard: log in with the token instead"
            raise errors.forbidden(message, code="token_needed")
        return caller

    def log_in(self, secret: str) -> str | None:
        """The value of a login's cookie for whoever has the token; None for anyone else."""
        known = [entry for entry in self._configured if entry[1] is EVERYONE]
        if self.logins is None or _find(known, digest(secret)) is None:
            return None
        return self.logins.issue()

    @property
    def wants_key(self) -> bool:
        """Whether requests have to show a key."""
        return not self._is_private or bool([*self._configured, *self._issued()])


def _is_among(known: list[Known], secret: str) -> bool:
    shown = digest(secret)
    return any(hmac.compare_digest(digest_of_key, shown) for digest_of_key, _ in known)


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


# -- the gate --------------------------------------------------------------------------------------

_CHECKED = "checked"
"""In `environ["xgw.head"]`, where the server remembers heads: nothing in this one is refused."""


class Guard:
    """WSGI middleware in front of everything: host, origin, key, media type, security headers.

    The inner application finds the caller in `environ["xgw.caller"]`. Three kinds of requests get
    there without one: `GET /health`, what the dashboard shows to everyone (its files, the login),
    and calls of a model, where `environ["xgw.refused"]` holds the ApiError to answer with, so that
    the refused call is recorded. A login opens the dashboard and nothing else: what a browser sends
    by itself must not open what any page can ask for.
    """

    def __init__(self, app: WSGIApplication, config: Config, keyring: Keyring) -> None:
        self._app = app
        self._config = config
        self._keyring = keyring

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        head: dict[str, object] | None = environ.get("xgw.head")
        if head is not None and _CHECKED in head:
            return self._enter(environ, start_response)
        start = _with_headers(start_response, opened_to(environ, self._config))
        try:
            check_host(environ, self._config)
            check_origin(environ, self._config)
            if _is_preflight(environ):
                return self._preflight(environ, start)
            path = environ.get("PATH_INFO", "")
            if is_dashboard(path):
                if not is_open(path) and not self._admit(environ):
                    return _to_login(environ, start)
            else:
                self._identify(environ)
                if not takes_files(path):
                    check_json_type(environ)
                    if head is not None and "HTTP_ORIGIN" not in environ and has_body(environ):
                        head[_CHECKED] = True
        except ApiError as error:
            return answer(error, environ, start)
        return self._app(environ, start)

    def _enter(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Another request with a head that was found in order, no page's and none for one.

        Whom it comes from is asked each time: keys come and go.
        """
        start = _with_headers(start_response, None)
        try:
            self._identify(environ)
        except ApiError as error:
            return answer(error, environ, start)
        return self._app(environ, start)

    def _admit(self, environ: WSGIEnvironment) -> bool:
        """Let the caller into the dashboard; False for one who has to log in first."""
        try:
            environ["xgw.caller"] = self._keyring.admit(environ)
        except ApiError as refusal:
            if refusal.status != 401:
                raise
            if "HTTP_HX_REQUEST" in environ:
                # A part of a page that is no longer logged in: all of it is to be loaded anew.
                refusal.headers = (*refusal.headers, ("HX-Refresh", "true"))
            if not _is_navigation(environ):
                raise
            return False
        return True

    def _identify(self, environ: WSGIEnvironment) -> None:
        try:
            environ["xgw.caller"] = self._keyring.authenticate(environ)
        except ApiError as refusal:
            path, method = environ.get("PATH_INFO", ""), environ["REQUEST_METHOD"]
            if method == "POST" and calls_model(path):
                environ["xgw.refused"] = refusal
            elif path != "/health" or method not in ("GET", "HEAD"):
                raise

    def _preflight(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if opened_to(environ, self._config) is None:
            raise foreign()
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


def _is_navigation(environ: WSGIEnvironment) -> bool:
    """Whether a browser wants to show the answer as a page, as far as it tells."""
    return (
        environ["REQUEST_METHOD"] in ("GET", "HEAD")
        and not is_websocket(environ)
        and "HTTP_HX_REQUEST" not in environ
        and environ.get("HTTP_SEC_FETCH_DEST", "document") == "document"
    )


def _to_login(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
    headers = [("Location", login_url(environ)), ("Content-Length", "0"), *PAGE_HEADERS.items()]
    start("303 See Other", headers)
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
        added = security_headers_beside(tuple(map(_NAME, headers)))
        if origin is not None:
            added += (
                ("Access-Control-Allow-Origin", origin),
                ("Access-Control-Expose-Headers", ", ".join(EXPOSED_HEADERS)),
                ("Vary", "Origin"),
            )
        return start_response(status, [*headers, *added], *exc_info)  # type: ignore[arg-type]

    return start
