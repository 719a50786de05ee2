"""Faults on request: which one `demo:NAME` in the last user message asks for (list: package)."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Hashable

from xgw.errors import ApiError

_WORD = re.compile(r"\bdemo:([a-z0-9]+)", re.IGNORECASE)

_FAULTS = frozenset(
    {"flaky", "context", "hang", "stall", "slow", "cut", "error", "garbage"}
    | {"empty", "length", "filter", "refuse", "reason", "long"}
)

_STATUSES: dict[int, tuple[str, str | None, str]] = {
    400: ("invalid_request_error", "bad_request", "This request is refused on purpose"),
    401: ("invalid_request_error", "invalid_api_key", "This key is refused on purpose"),
    403: ("invalid_request_error", "forbidden", "Access is refused on purpose"),
    404: ("invalid_request_error", "model_not_found", "The model is missing on purpose"),
    408: ("server_error", "timeout", "The request timed out on purpose"),
    409: ("invalid_request_error", "conflict", "A conflict on purpose"),
    422: ("invalid_request_error", "invalid_value", "A value is refused on purpose"),
    429: ("rate_limit_error", "rate_limit_exceeded", "The rate limit is reached on purpose"),
    500: ("server_error", None, "The server had an error on purpose"),
    502: ("server_error", "bad_gateway", "A bad gateway on purpose"),
    503: ("server_error", "overloaded", "The server is overloaded on purpose"),
    504: ("server_error", "timeout", "The gateway timed out on purpose"),
    529: ("server_error", "overloaded", "The server is overloaded on purpose"),
}
_RETRY_AFTER = (("Retry-After", "1"),)
_REMEMBERED = 1024


def fault_of(prompt: str) -> str | None:
    """The first known fault, or the first known status, that a prompt asks for."""
    words = (word.lower() for word in _WORD.findall(prompt))
    return next((w for w in words if w in _FAULTS or (w.isdigit() and int(w) in _STATUSES)), None)


def error_of(fault: str | None) -> ApiError | None:
    """The error response that a fault is, if it is one."""
    if fault == "context":
        message = "This model's maximum context length is exceeded on purpose (scripted demo)."
        code = "context_length_exceeded"
        return ApiError(400, "invalid_request_error", message, code=code, param="messages")
    if fault is None or not fault.isdigit():
        return None
    status = int(fault)
    type_, code_, message = _STATUSES[status]
    headers = _RETRY_AFTER if status in (429, 503, 529) else ()
    return ApiError(status, type_, f"{message} (scripted demo).", code=code_, headers=headers)


class Flaky:
    """Remembers which requests have failed once, so that their next try works."""

    def __init__(self) -> None:
        self._failed: OrderedDict[Hashable, None] = OrderedDict()
        self._lock = threading.Lock()

    def fails(self, request: Hashable) -> bool:
        """Whether this try of the request fails: every second one does."""
        with self._lock:
            if request in self._failed:
                del self._failed[request]
                return False
            self._failed[request] = None
            while len(self._failed) > _REMEMBERED:
                self._failed.popitem(last=False)
            return True
