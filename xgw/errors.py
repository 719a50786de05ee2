"""The errors that xgw raises: a small tree, and the one shape that errors have on the wire.

XgwError
├── UsageError   the command line or the configuration is wrong (exit code 2)
├── WorkError    the work itself failed (exit code 1)
└── ApiError     an HTTP request is answered with an error
"""

from __future__ import annotations

from typing import Any

ERROR_TYPES = (
    "upstream_error",
    "upstream_protocol_error",
    "upstream_truncated",
    "upstream_timeout",
    "upstream_connection",
    "upstream_rate_limit",
    "invalid_request_error",
    "tool_error",
    "limit_iterations",
    "limit_turn_tokens",
    "limit_session_tokens",
    "limit_cost",
    "limit_seconds",
    "limit_context",
    "context_overflow",
    "interrupted",
    "overloaded",
    "internal",
    "no_result",
)
"""Every `error.type` on the wire and `error_type` in the record; `no_result` only in the record."""

ILLEGAL_MOVE = "illegal_move"
"""The code of a change of status that the tables lack."""


class XgwError(Exception):
    """Any error that xgw raises on purpose; its text can be shown to a person."""


class UsageError(XgwError):
    """Bad usage or configuration: `lines` holds one clear sentence for each mistake."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class WorkError(XgwError):
    """What was asked for was understood, and failed."""


class ApiError(XgwError):
    """An HTTP request is answered with `status` and `body()`; `headers` are added to the answer."""

    def __init__(
        self,
        status: int,
        type: str,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        more: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers
        self.more = more or {}

    def body(self) -> dict[str, Any]:
        """The JSON body of the answer; `more` stands in it beside the usual fields."""
        body = error_body(self.message, self.type, self.param, self.code)
        return {"error": {**body["error"], **self.more}} if self.more else body


def error_body(
    message: str, type: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The error shape of every surface: `{"error": {message, type, param, code}}`."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def bad_request(message: str, *, code: str | None = None, param: str | None = None) -> ApiError:
    """400: the request cannot be understood (`code` "bad_request" unless given)."""
    return _refusal(400, message, code or "bad_request", param)


def unauthorized(
    message: str = "a valid token or client key is needed", *, code: str = "invalid_api_key"
) -> ApiError:
    """401: no credential, or one that is not known."""
    return _refusal(401, message, code, headers=(("WWW-Authenticate", "Bearer"),))


def forbidden(message: str, *, code: str = "forbidden") -> ApiError:
    """403: known, but not allowed."""
    return _refusal(403, message, code)


def not_found(message: str, *, code: str = "not_found", param: str | None = None) -> ApiError:
    """404: no such path or id."""
    return _refusal(404, message, code, param)


def conflict(message: str, *, code: str, more: dict[str, Any] | None = None) -> ApiError:
    """409: the state does not allow this move; `more` tells what it does allow."""
    return ApiError(409, "invalid_request_error", message, code=code, more=more)


def too_large(message: str) -> ApiError:
    """413: the body is over the limit."""
    return _refusal(413, message, "request_too_large")


def unprocessable(message: str, *, param: str) -> ApiError:
    """422: understood, but the value of `param` is not allowed."""
    return _refusal(422, message, "invalid_value", param)


def overloaded(message: str, retry_after: int) -> ApiError:
    """503: too much at once; the client may come back after `retry_after` seconds."""
    headers = (("Retry-After", str(retry_after)),)
    return ApiError(503, "overloaded", message, code="overloaded", headers=headers)


def internal(message: str = "an internal error occurred; the server's log has it") -> ApiError:
    """500: a fault of xgw itself."""
    return ApiError(500, "internal", message, code="internal")


def _refusal(
    status: int,
    message: str,
    code: str,
    param: str | None = None,
    headers: tuple[tuple[str, str], ...] = (),
) -> ApiError:
    return ApiError(
        status, "invalid_request_error", message, code=code, param=param, headers=headers
    )
