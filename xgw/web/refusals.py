"""Answering with an error: JSON in the one shape that it has, a page on the dashboard."""

from __future__ import annotations

import http
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

import orjson
from flask import Flask, Response, current_app, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import WebsocketMismatch

from xgw import errors
from xgw.errors import ApiError
from xgw.store.units import is_store_trouble
from xgw.web.condition import troubles
from xgw.web.error_pages import render_error
from xgw.web.headers import PAGE_HEADERS
from xgw.web.origins import is_websocket, needs_websocket, no_websocket_here
from xgw.web.surfaces import is_dashboard

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

log = logging.getLogger("xgw")


def answer(
    error: ApiError, environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    """The error as a WSGI answer."""
    body, headers = _build(error, environ.get("PATH_INFO", ""))
    start_response(f"{error.status} {http.HTTPStatus(error.status).phrase}", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def _build(
    error: ApiError, path: str, notices: Iterable[str] = ()
) -> tuple[bytes, list[tuple[str, str]]]:
    """Body and headers; a page also says what else is wrong, the `notices`."""
    if is_dashboard(path):
        body = render_error(error, path, notices).encode()
        headers = [("Content-Type", "text/html; charset=utf-8"), *PAGE_HEADERS.items()]
    else:
        body = orjson.dumps(error.body())
        headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
    return body, [*headers, ("Content-Length", str(len(body))), *error.headers]


def register_errors(app: Flask) -> None:
    """Answer whatever goes wrong in a view, or finds no view, in the error shape."""
    # A redirect to the same path with another slash would be a page of HTML.
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    app.register_error_handler(ApiError, _render)
    app.register_error_handler(HTTPException, _render_http)
    app.register_error_handler(Exception, _render_unexpected)


def _render(error: ApiError) -> Response:
    body, headers = _build(error, request.path, _troubles())
    return Response(body, error.status, headers)


def _troubles() -> Iterable[str]:
    """What is wrong with the server, for those who may know."""
    caller, running = request.environ.get("xgw.caller"), current_app.extensions.get("xgw")
    if not is_dashboard(request.path) or caller is None or running is None:
        return ()
    return troubles(running)


def _render_http(error: HTTPException) -> Response:
    status = error.code or 500
    if status >= 500:
        return _render(errors.internal())
    is_mismatch = isinstance(error, WebsocketMismatch)
    if is_websocket(request.environ) and (is_mismatch or status == 405):
        return _render(no_websocket_here())
    if is_mismatch:
        return _render(needs_websocket())
    kept = [
        (name, value)
        for name, value in error.get_headers()
        if name.lower() not in ("content-type", "content-length")
    ]
    code = http.HTTPStatus(status).phrase.lower().replace(" ", "_").replace("-", "_")
    message = {
        404: f"there is nothing at {request.path[:256]}",
        405: f"{request.method} is not possible at {request.path[:256]}",
    }.get(status, error.description or code)
    kind = "invalid_request_error"
    return _render(ApiError(status, kind, message, code=code, headers=tuple(kept)))


def _render_unexpected(error: Exception) -> Response:
    return _render(refusal_of(error, f"{request.method} {request.path}"))


def refusal_of(fault: Exception, what: str) -> ApiError:
    """What is answered where `what` failed and nothing caught it; the log is told.

    A store that cannot be read is no fault of ours: 503, and one line in the log.
    """
    cause = getattr(fault, "orig", fault)  # peewee's own errors have SQLite's in there
    if is_store_trouble(cause):
        log.warning("%s failed: the store cannot be read: %s", what, cause)
        return errors.overloaded(f"the store cannot be read: {cause}", retry_after=1)
    log.error("%s failed", what, exc_info=fault)
    return errors.internal()
