"""Which headers pass between a client and an upstream, and which do not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import compress

from xgw.config import Provider

Headers = tuple[tuple[str, str], ...]

_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
CREDENTIALS = frozenset({"authorization", "x-api-key", "api-key", "x-xgw-key", "x-goog-api-key"})
OWN = frozenset({"x-session-id", "x-turn-id", "x-parent-turn-id", "x-task-id", "x-end-user-id"})
NOT_FORWARDED = (
    HOP_BY_HOP
    | CREDENTIALS
    | OWN
    | frozenset(
        {"host", "cookie", "forwarded", "x-real-ip", "accept-encoding", "content-length", "expect"}
    )
)
NOT_RETURNED = HOP_BY_HOP | frozenset(
    {
        "set-cookie",
        "server",
        "location",
        "content-encoding",
        "content-length",
        "date",
        # An upstream may be an xgw too: it names its own record, not ours.
        "x-session-id",
        "x-turn-id",
        "x-run-id",
        "x-trace-id",
    }
)
# Which pages may read an answer is for this server to say, once.
NOT_RETURNED_PREFIX = "access-control-"
# What xgw itself says of a stream; the upstream's own would contradict it.
STREAM_HEADERS: Headers = (
    ("Cache-Control", "no-cache, no-transform"),
    ("X-Accel-Buffering", "no"),
)


def to_upstream(client: Iterable[tuple[str, str]], provider: Provider) -> Headers:
    """The client's headers as an upstream gets them, with the provider's credential and its own."""
    client = tuple(client)
    own = provider.headers
    return _joined(_forwarded(client, tuple(own)), (*credential(provider, client), *own.items()))


@lru_cache(maxsize=64)
def _forwarded(client: Headers, own: tuple[str, ...]) -> Headers:
    """Those of a client's headers that go on to a provider with these of its own.

    Most clients send the same ones each time.
    """
    left_out = NOT_FORWARDED | _named_by_connection(client) | {name.lower() for name in own}
    return tuple(
        (name, value)
        for name, value in client
        if name.lower() not in left_out and not name.lower().startswith("x-forwarded-")
    )


@lru_cache(maxsize=64)
def _joined(forwarded: Headers, own: Headers) -> Headers:
    """The client's and the provider's, and what the transport is to be told in any case."""
    has_type = any(name.lower() == "content-type" for name, _ in (*forwarded, *own))
    usual = () if has_type else (("content-type", "application/json"),)
    return (*forwarded, *own, *usual, ("accept-encoding", "identity"))


def credential(provider: Provider, client: Iterable[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """The credential header that this provider wants; the client's own where it passes through."""
    if provider.passthrough:
        return [(n, v) for n, v in client if n.lower() in ("authorization", "x-api-key", "api-key")]
    if not provider.api_key:
        return []
    if provider.kind == "anthropic":
        return [("x-api-key", provider.api_key)]
    return [("authorization", f"Bearer {provider.api_key}")]


def to_client(
    upstream: Iterable[tuple[str, str]], own: frozenset[str] = frozenset()
) -> list[tuple[str, str]]:
    """The upstream's headers as the client gets them; those in `own` xgw says itself."""
    upstream = tuple(upstream)
    pass_on, is_named = _returned(tuple([name for name, _ in upstream]), own)
    passed = [*compress(upstream, pass_on)]
    if is_named:
        named = _named_by_connection(upstream)
        passed = [header for header in passed if header[0].lower() not in named]
    if not "".join([value for _, value in passed]).isprintable():
        passed = [header for header in passed if not _UNSENDABLE.search(header[1])]
    return passed


@lru_cache(maxsize=64)
def _returned(names: tuple[str, ...], own: frozenset[str]) -> tuple[tuple[bool, ...], bool]:
    """Which of an answer's headers go on by their names; whether it says more in `Connection`.

    Most answers have the same ones.
    """
    lower = [name.lower() for name in names]
    left_out = NOT_RETURNED | own
    pass_on = [n not in left_out and not n.startswith(NOT_RETURNED_PREFIX) for n in lower]
    return tuple(pass_on), "connection" in lower


@lru_cache(maxsize=64)
def by_name(headers: Headers) -> Mapping[str, str]:
    """The values of a client's headers by their names."""
    return dict(headers)


def find(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """The first header of this name, which is in lower case."""
    for key, value in headers:
        if key.lower() == name:
            return value
    return None


def _named_by_connection(headers: Iterable[tuple[str, str]]) -> set[str]:
    return {
        token.strip().lower()
        for name, value in headers
        if name.lower() == "connection"
        for token in value.split(",")
    }
