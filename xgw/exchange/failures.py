"""What an upstream's refusal is, and what a client is told when no try is left."""

from __future__ import annotations

import re
from typing import Any

import orjson

from xgw.exchange.relay import Capture
from xgw.providers.errors import Masks, error_answer, type_of
from xgw.providers.transport import UpstreamResponse
from xgw.values import UpstreamFailure

ERROR_BODY_BYTES = 1 << 20

_USAGE_OPTION = re.compile(rb"""(?:stream_options|include_usage)(?!\\*["']\s*:)""")
"""The option as what is complained of; before a colon it may be the request itself, told back."""


def read_bounded(response: UpstreamResponse, capture: Capture) -> bytes:
    """An error's body, its beginning if it is long; a fault on the way cuts it short."""
    parts: list[bytes] = []
    size = 0
    try:
        while size < ERROR_BODY_BYTES and (block := response.read(None)):
            capture.add(block)
            parts.append(block)
            size += len(block)
    except UpstreamFailure:
        return b"".join(parts)
    return b"".join(parts)


def failure_of(response: UpstreamResponse, body: bytes) -> UpstreamFailure:
    """What a refusal with this body is."""
    return UpstreamFailure(
        type_of(response.status, body),
        "",
        http_status=response.status,
        body=body,
        headers=response.headers,
    )


def names_usage_option(status: int, body: bytes) -> bool:
    """Whether a refusal with this body is one of `stream_options`, or of what stands in it."""
    found = _USAGE_OPTION.search(body) is not None
    return found or (status == 400 and b"stream_options" in body)


def client_error(
    failure: UpstreamFailure, provider_name: str, masker: Masks
) -> tuple[int, dict[str, Any]]:
    """Status and body for a client whose last try failed like this."""
    if failure.http_status is not None and failure.http_status >= 300:
        body = failure.body or b""
        if not body and failure.message:
            told = {"message": failure.message, "type": failure.error_type}
            body = orjson.dumps({"error": told})
        return error_answer(
            failure.http_status,
            failure.headers,
            body,
            provider_name=provider_name,
            masker=masker,
        )
    return _own_status(failure), {
        "error": {
            "message": message_of(failure, provider_name, masker),
            "type": failure.error_type,
            "param": None,
            "code": None,
        }
    }


def message_of(failure: UpstreamFailure, provider_name: str, masker: Masks) -> str:
    """What went wrong: in the upstream's own words, where its answer has any."""
    status, body = failure.http_status, failure.body
    if status is None or body is None:
        return masker.text(failure.message)
    headers = failure.headers
    _, shown = error_answer(status, headers, body, provider_name=provider_name, masker=masker)
    message: str = shown["error"]["message"]
    if failure.error_type == "upstream_protocol_error":
        message = f"{failure.message}: {message}"
    return masker.text(message)


def _own_status(failure: UpstreamFailure) -> int:
    return 504 if failure.error_type == "upstream_timeout" else 502
