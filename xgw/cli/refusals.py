"""Answers of the server itself to what is not a readable HTTP request, in the error shape."""

from __future__ import annotations

import contextlib
import http
import socket
from email.utils import formatdate

import orjson
from gunicorn.http import errors as parsing

from xgw.errors import ApiError, bad_request
from xgw.web.bodies import BrokenBody

MAX_HEAD_BYTES = 65536


class HeadTooLarge(Exception):
    """The head is over the limit."""


def refusal_of(fault: BaseException) -> ApiError | None:
    """The answer to a request that cannot be read; None if the fault is not the client's.

    What the client sent is not repeated: it may hold a secret.
    """
    kind = "invalid_request_error"
    match fault:
        case parsing.InvalidResponseHeader() | parsing.InvalidResponseHeaderName():
            return None
        case HeadTooLarge() | parsing.LimitRequestHeaders():
            message = f"the request's headers are over the limit ({MAX_HEAD_BYTES} bytes in all)"
            return ApiError(431, kind, message, code="headers_too_large")
        case parsing.LimitRequestLine():
            return ApiError(414, kind, "the request's address is too long", code="uri_too_long")
        case parsing.ExpectationFailed():
            message = "the only expectation that can be met is 100-continue"
            return ApiError(417, kind, message, code="expectation_failed")
        case parsing.InvalidHTTPVersion():
            return ApiError(505, kind, "only HTTP/1.0 and HTTP/1.1", code="http_version")
        case parsing.InvalidHeader(hdr="CONTENT-LENGTH" | "TRANSFER-ENCODING"):
            return bad_request("Content-Length and Transfer-Encoding do not name one length")
        case parsing.UnsupportedTransferCoding():
            return bad_request("the only transfer coding that is understood is chunked")
        case parsing.InvalidHeader() | parsing.InvalidHeaderName() | parsing.ObsoleteFolding():
            return bad_request("a header of the request is not valid")
        case BrokenBody():
            return bad_request(str(fault))
        case parsing.ParseException():
            return bad_request("this is not a valid HTTP request")
        case _:
            return None


def head_timeout() -> ApiError:
    """408: the head of a request did not arrive in time."""
    message = "the request's headers did not arrive in time"
    return ApiError(408, "invalid_request_error", message, code="request_timeout")


def refuse(sock: socket.socket, error: ApiError, *, bodiless: bool = False) -> None:
    """Answer with the error, which ends the connection; a client that left is no fault."""
    with contextlib.suppress(OSError):
        sock.sendall(_reply(error, bodiless))


def refuse_now(sock: socket.socket, error: ApiError) -> None:
    """The same without waiting for a client that does not read."""
    with contextlib.suppress(OSError):
        sock.send(_reply(error, False), socket.MSG_DONTWAIT)


def _reply(error: ApiError, bodiless: bool) -> bytes:
    body = orjson.dumps(error.body())
    lines = [
        f"HTTP/1.1 {error.status} {http.HTTPStatus(error.status).phrase}",
        f"Date: {formatdate(usegmt=True)}",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        *(f"{name}: {value}" for name, value in error.headers),
    ]
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head if bodiless else head + body
