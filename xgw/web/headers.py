"""The headers that tell browsers what they may do with an answer."""

from __future__ import annotations

from functools import lru_cache

from flask import Response, request

EXPOSED_HEADERS = (
    "X-Session-Id",
    "X-Turn-Id",
    "X-Run-Id",
    "X-Trace-Id",
    "x-request-id",
    "retry-after",
)
"""What pages of an allowed origin may read."""

SECURITY_HEADERS = (("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"))
"""On every answer that does not say otherwise."""

_BY_LOWER_NAME = tuple((pair[0].lower(), pair) for pair in SECURITY_HEADERS)

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    # With no-referrer browsers send a page's own forms as from `Origin: null`: as foreign ones.
    "Referrer-Policy": "same-origin",
}
"""On every page of the dashboard and every part of one."""

RAW_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""On a body as it was, which may be anything: it is text, and nothing in it is run."""


def describe_nothing(answer: Response) -> Response:
    """An answer without a body has no type, but one that a HEAD asks for: it is the GET's."""
    if (
        request.method != "HEAD"
        and not answer.is_streamed
        and not answer.calculate_content_length()
    ):
        answer.headers.pop("Content-Type", None)
        answer.headers.setdefault("Cache-Control", "no-store")
    return answer


@lru_cache(maxsize=128)
def security_headers_beside(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Those that an answer still lacks whose headers have these names: most have the same ones."""
    present = {name.lower() for name in names}
    return tuple([pair for lower, pair in _BY_LOWER_NAME if lower not in present])
