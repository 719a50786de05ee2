"""The OpenAI-compatible surface: `/v1/…` and `/s/{session_key}/v1/…`.

It stands in front of Flask as a WSGI application of its own: these are the hot paths.
"""

from __future__ import annotations

import http
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import orjson

from xgw.errors import ApiError, not_found
from xgw.exchange.headers import Headers
from xgw.gateway.answering import Reply
from xgw.gateway.forwarding import Ask
from xgw.gateway.refusals import Refused
from xgw.gateway.resending import Taken
from xgw.web.blocks import Streaming, Whole
from xgw.web.bodies import read_body, take_body
from xgw.web.refusals import answer, refusal_of
from xgw.web.security import Caller, is_websocket, no_websocket_here

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from xgw.exchange.order import Endpoint
    from xgw.web.app import Services

ENDPOINTS: dict[str, Endpoint] = {
    "/v1/chat/completions": "chat.completions",
    "/v1/embeddings": "embeddings",
}
READER_SECONDS = 60.0
UNSUPPORTED_MEDIA_TYPE = 415


class OpenAI:
    """WSGI application for `/v1`; every other path goes to `rest`."""

    def __init__(self, rest: WSGIApplication, services: Services) -> None:
        self._rest = rest
        self._services = services

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path, url_key = _route(environ)
        if path is None:
            return self._rest(environ, start_response)
        try:
            return self._serve(environ, start_response, path, url_key)
        except ApiError as error:
            return answer(error, environ, start_response)
        except Exception as error:  # noqa: BLE001 - the HTTP edge: a fault of ours is one plain answer
            refusal = refusal_of(error, f"{environ['REQUEST_METHOD']} {path}")
            return answer(refusal, environ, start_response)

    def _serve(
        self,
        environ: WSGIEnvironment,
        start_response: StartResponse,
        path: str,
        url_key: str | None,
    ) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        if is_websocket(environ):
            raise no_websocket_here()
        endpoint = ENDPOINTS.get(path)
        if endpoint is not None:
            _allow(method, ("POST",), path)
            return self._call(environ, start_response, endpoint, url_key)
        if path == "/v1/models" or path.startswith("/v1/models/"):
            _allow(method, ("GET", "HEAD"), path)
            return _send_json(
                environ, start_response, self._models(path.removeprefix("/v1/models").lstrip("/"))
            )
        raise not_found(f"there is nothing at {path[:256]}", code="unknown_url")

    def _models(self, model_id: str) -> dict[str, Any]:
        models = self._services.router.models()
        if not model_id:
            return {"object": "list", "data": models}
        found = next((model for model in models if model["id"] == model_id), None)
        if found is None:
            raise not_found(
                f"The model `{model_id[:200]}` does not exist here.",
                code="model_not_found",
                param="model",
            )
        return found

    # -- calls ---------------------------------------------------------------------------------

    def _call(
        self,
        environ: WSGIEnvironment,
        start_response: StartResponse,
        endpoint: Endpoint,
        url_key: str | None,
    ) -> Iterable[bytes]:
        calls, tell = self._services.calls, self._services.writer.tell
        calls.enter()
        try:
            reply = self._reply(environ, endpoint, url_key)
        except BaseException:
            calls.leave()
            tell()
            raise
        if reply.stream is None:
            try:
                return Whole(_send(start_response, reply), tell)
            finally:
                calls.leave()
        _patient(environ)
        start_response(_status(reply.status), reply.headers)
        return Streaming(reply.stream, calls.leave, tell)

    def _reply(self, environ: WSGIEnvironment, endpoint: Endpoint, url_key: str | None) -> Reply:
        caller: Caller | None = environ.get("xgw.caller")
        project = caller.project_id if caller else "default"
        client = self._client(environ, caller)
        headers = self._services.keyring.without_own(_headers(environ))
        body: bytes | Taken = b""
        try:
            refusal: ApiError | None = environ.get("xgw.refused")
            body = self._body(environ, endpoint, project, headers)
            if refusal is not None:
                raise refusal
            return self._services.gateway.answer(
                Ask(
                    endpoint=endpoint,
                    body=body,
                    headers=headers,
                    query=environ.get("QUERY_STRING", ""),
                    url_key=url_key,
                    project_id=project,
                    org_id=caller.org_id if caller else None,
                    api_key_id=caller.api_key_id if caller else None,
                    client=client,
                    sock=environ.get("gunicorn.socket") or environ.get("werkzeug.socket"),
                )
            )
        except ApiError as error:
            known = any(name == "X-Turn-Id" for name, _ in error.headers)
            if known or error.status == UNSUPPORTED_MEDIA_TYPE:
                raise
            whole = body if isinstance(body, bytes) else body.body.whole
            sent = Refused(endpoint, whole, _size(environ, whole), headers, project, client)
            named = self._services.refusals.record(sent, error)
            error.headers = (*error.headers, *named)
            raise

    def _body(
        self, environ: WSGIEnvironment, endpoint: Endpoint, project: str, headers: Headers
    ) -> bytes | Taken:
        limit = self._services.config.config.server.max_body_bytes
        if endpoint != "chat.completions":
            return read_body(environ, limit)
        taking = partial(self._services.gateway.taking, project, headers)
        return take_body(environ, limit, taking)

    def _client(self, environ: WSGIEnvironment, caller: Caller | None) -> dict[str, Any]:
        head: dict[str, Any] = environ.get("xgw.head", {})
        if "user_agent" not in head:
            agent = environ.get("HTTP_USER_AGENT")
            head["user_agent"] = agent and self._services.masker.text(agent)
        return {
            "user_agent": head["user_agent"],
            "address": environ.get("REMOTE_ADDR"),
            "key": caller.alias if caller else None,
        }


def _route(environ: WSGIEnvironment) -> tuple[str | None, str | None]:
    """(path under /v1, session key of the base URL); (None, None) for other surfaces.

    The key is taken from the path as it was sent, so that it may hold an encoded slash.
    """
    path: str = environ.get("PATH_INFO", "")
    if path.startswith("/v1/") or path == "/v1":
        return path.encode("latin-1", "replace").decode("utf-8", "replace"), None
    if not path.startswith("/s/"):
        return None, None
    raw = environ.get("RAW_URI") or environ.get("REQUEST_URI") or path
    raw = raw.partition("?")[0]
    if "://" in raw:
        raw = "/" + raw.partition("://")[2].partition("/")[2]
    key, _, rest = raw.removeprefix("/s/").partition("/")
    if not key or not (rest == "v1" or rest.startswith("v1/")):
        return None, None
    # A key that is no UTF-8 is kept recognisable as such: it names nothing and is refused.
    return f"/{_decoded(rest, 'replace')}", _decoded(key, "surrogateescape")


def _decoded(text: str, faults: str) -> str:
    return unquote_to_bytes(text.encode("latin-1", "replace")).decode("utf-8", faults)


def _allow(method: str, allowed: tuple[str, ...], path: str) -> None:
    if method not in allowed:
        raise ApiError(
            405,
            "invalid_request_error",
            f"{method} is not possible at {path[:256]}",
            code="method_not_allowed",
            headers=(("Allow", ", ".join(allowed)),),
        )


def _headers(environ: WSGIEnvironment) -> Headers:
    """The request's headers, names in lower case; the same ones for a head that comes again."""
    head: dict[str, Any] = environ.get("xgw.head", {})
    headers: Headers | None = head.get("headers")
    if headers is None:
        headers = head["headers"] = _read_headers(environ)
    return headers


def _read_headers(environ: WSGIEnvironment) -> Headers:
    found = [
        (name[5:].replace("_", "-").lower(), value)
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    if environ.get("CONTENT_TYPE"):
        found.append(("content-type", environ["CONTENT_TYPE"]))
    return tuple(found)


def _size(environ: WSGIEnvironment, body: bytes) -> int:
    """How many bytes were sent, or announced where they were too many to read."""
    announced = environ.get("CONTENT_LENGTH") or ""
    return max(len(body), int(announced) if announced.isdecimal() and len(announced) < 19 else 0)


def _patient(environ: WSGIEnvironment) -> None:
    """A client that takes nothing for 60 s is cut; until then it slows the upstream."""
    sock = environ.get("gunicorn.socket") or environ.get("werkzeug.socket")
    if sock is not None:
        sock.settimeout(READER_SECONDS)


@lru_cache(maxsize=64)
def _status(code: int) -> str:
    try:
        return f"{code} {http.HTTPStatus(code).phrase}"
    except ValueError:
        return f"{code} Status"


def _send(start_response: StartResponse, reply: Reply) -> list[bytes]:
    headers = [*reply.headers, ("Content-Length", str(len(reply.body)))]
    start_response(_status(reply.status), headers)
    reply.wait()
    return [reply.body]


def _send_json(
    environ: WSGIEnvironment, start_response: StartResponse, value: dict[str, Any]
) -> Iterable[bytes]:
    body = orjson.dumps(value)
    start_response(
        "200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    )
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]
