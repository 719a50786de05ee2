"""The headers that tell browsers what they may do with an answer."""

from __future__ import annotations

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
