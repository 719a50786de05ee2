"""Answering with an error: the one shape that every surface has for it (RFC 9110 statuses)."""

from __future__ import annotations

import http
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

import orjson
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from xgw import errors
from xgw.errors import ApiError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

log = logging.getLogger("xgw")


def answer(
    error: ApiError, environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    """The error as a WSGI answer."""
    body = orjson.dumps(error.body())
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        *error.headers,
    ]
    start_response(f"{error.status} {http.HTTPStatus(error.status).phrase}", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def register_errors(app: Flask) -> None:
    """Answer whatever goes wrong in a view, or finds no view, in the error shape."""
    # A redirect to the same path with another slash would be a page of HTML.
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    app.register_error_handler(ApiError, _render)
    app.register_error_handler(HTTPException, _render_http)
    app.register_error_handler(Exception, _render_unexpected)


def _render(error: ApiError) -> Response:
    response = Response(orjson.dumps(error.body()), error.status, mimetype="application/json")
    response.headers.extend(error.headers)
    return response


def _render_http(error: HTTPException) -> Response:
    status = error.code or 500
    if status >= 500:
        return _render(errors.internal())
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
    log.error("%s %s failed", request.method, request.path, exc_info=error)
    return _render(errors.internal())
