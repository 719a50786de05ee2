"""Retry and fallback: what follows a failed try, and how long to wait for it."""

from __future__ import annotations

import datetime
import email.utils
import random
import re
import socket
import threading

from xgw import clock
from xgw.exchange.headers import find
from xgw.exchange.routing import Way
from xgw.providers.transport import Call
from xgw.providers.transport.watching import READABLE, Watch
from xgw.recording.facts import Retry
from xgw.values import UpstreamFailure

LONGEST_BACKOFF = 30.0
RETRIED_STATUSES = frozenset({408, 409, 429})

_NUMBER = re.compile(r"\s*(\d+(?:\.\d*)?)\s*", re.ASCII)


class UsageRefusals:
    """Providers that refused `stream_options`: they are not asked for usage again."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._lock = threading.Lock()

    def add(self, name: str) -> None:
        """This provider refused."""
        with self._lock:
            self._names.add(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names


def decide(failure: UpstreamFailure, way: Way, target: int, tries: int) -> Retry:
    """What follows: the same target again, the next one, or the end.

    `target` is the index of the one that failed, `tries` how often it was tried by now.
    """
    if _may_retry(failure, way) and tries < way.retry.max_attempts:
        wait = _wait_seconds(failure, way, tries)
        if wait is not None:
            return Retry("retry", round(wait * 1000), way.targets[target].name)
    if target + 1 < len(way.targets) and _cause(failure) in way.fallback_on:
        return Retry("fallback", 0, way.targets[target + 1].name)
    return Retry("give_up")


def pause(call: Call, seconds: float) -> None:
    """Wait before a try while the client is watched. Raises Cancelled and ClientGone."""
    if seconds <= 0:
        return
    ours, theirs = socket.socketpair()
    with ours, theirs:
        call.attach(lambda: _wake(theirs))
        try:
            Watch(ours, call).wait(READABLE, clock.monotonic() + seconds)
        finally:
            call.detach()


def _wake(sock: socket.socket) -> None:
    sock.send(b"x")


def _may_retry(failure: UpstreamFailure, way: Way) -> bool:
    status = _error_status(failure)
    if status is not None:
        return status in RETRIED_STATUSES or status >= 500
    if failure.error_type == "upstream_timeout":
        return way.retry.timeouts
    return failure.error_type in ("upstream_connection", "upstream_truncated")


def _error_status(failure: UpstreamFailure) -> int | None:
    """The status, where that is the failure: a 200 whose body broke off has none."""
    status = failure.http_status
    return status if status is not None and status >= 400 else None


def _cause(failure: UpstreamFailure) -> str | None:
    """The word of `fallback_on` that names this failure."""
    status = _error_status(failure)
    if status == 429:
        return "429"
    if status == 408 or (status is None and failure.error_type == "upstream_timeout"):
        return "timeout"
    if status is not None and 400 <= status < 500:
        return None
    if (status or 0) >= 500 or failure.error_type == "upstream_protocol_error":
        return "5xx"
    if failure.error_type in ("upstream_connection", "upstream_truncated"):
        return "connection"
    return "5xx" if failure.error_type == "upstream_error" else None


def _wait_seconds(failure: UpstreamFailure, way: Way, tries: int) -> float | None:
    """Retry-After where it can be read, else our own back-off; None if it is above the cap."""
    asked = retry_after(failure)
    if asked is not None:
        return asked if asked <= way.retry.max_retry_after_seconds else None
    backoff: float = way.retry.base_delay_ms / 1000 * 2 ** (tries - 1)
    return min(backoff, LONGEST_BACKOFF) * random.uniform(0.75, 1.25)


def retry_after(failure: UpstreamFailure) -> float | None:
    """Seconds to wait as the upstream said; None where it said nothing that makes sense."""
    milliseconds = _number(find(failure.headers, "retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = find(failure.headers, "retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        at = email.utils.parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    return max(0.0, (at - datetime.datetime.now(datetime.UTC)).total_seconds())


def _number(text: str | None) -> float | None:
    """A number as the header may hold it; infinity where it has too many digits."""
    found = _NUMBER.fullmatch(text) if text is not None else None
    return float(found[1]) if found else None
