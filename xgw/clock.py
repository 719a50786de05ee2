"""Time: the two clocks, and the spellings of a moment in the store, in JSON and in filters.

Inside xgw a moment is a naive `datetime` in UTC with microseconds.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache

EPOCH = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)
INSTANT_SECONDS = 0.0002
READINGS = 20

_TIME = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})"
    r"(?:[Tt ](?P<minutes>\d{2}:\d{2})(?P<seconds>:\d{2})?(?:\.(?P<fraction>\d+))?"
    r"(?P<zone>[Zz]|[+-]\d{2}:\d{2})?)?",
    re.ASCII,
)


def now() -> datetime:
    """The present moment, naive UTC with microseconds."""
    # datetime.now(UTC) without its zone is the same and takes twice as long; each call asks often.
    return EPOCH + timedelta(0, time.time())


def seconds() -> int:
    """The whole seconds since 1970."""
    return int(time.time())


monotonic = time.monotonic
"""Seconds of a clock that never goes back: for durations and deadlines."""


def together() -> tuple[datetime, float]:
    """Both clocks at one instant: the present moment, and `monotonic` then.

    Other threads may have their turn between two readings, for milliseconds: then they are read
    again, unless that goes on and on.
    """
    for _ in range(READINGS):
        before = monotonic()
        moment = now()
        after = monotonic()
        if after - before <= INSTANT_SECONDS:
            break
    return moment, after


def worked() -> float:
    """Seconds that this thread has computed: for bounds that waiting does not count against."""
    return time.thread_time()


@lru_cache(maxsize=64)
def to_db(moment: datetime) -> str:
    """As the store spells it: "YYYY-MM-DD HH:MM:SS.ffffff", so that text order is time order."""
    return _naive(moment).isoformat(" ", "microseconds")


def from_db(text: str) -> datetime:
    """The moment that `to_db` spelled; ValueError for anything that is not one."""
    return datetime.fromisoformat(text)


@lru_cache(maxsize=64)
def to_microseconds(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (_naive(moment) - EPOCH) // MICROSECOND


def from_microseconds(passed: int) -> datetime:
    """The moment that `to_microseconds` counted; OverflowError if there is none."""
    return EPOCH + passed * MICROSECOND


@lru_cache(maxsize=64)
def to_rfc3339(moment: datetime) -> str:
    """As JSON spells it (RFC 3339): "YYYY-MM-DDTHH:MM:SS.ffffffZ"."""
    return _naive(moment).isoformat("T", "microseconds") + "Z"


def parse_time(text: str) -> datetime:
    """The moment that a person or a client spelled: RFC 3339, or a date alone (its midnight).

    Without a zone it is UTC; digits beyond the microsecond are dropped. ValueError otherwise.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None or (match["fraction"] and not match["seconds"]):
        raise ValueError(_not_a_time(text))
    clock_face = (match["minutes"] or "00:00") + (match["seconds"] or ":00")
    fraction = (match["fraction"] or "")[:6].ljust(6, "0")
    zone = (match["zone"] or "Z").upper().replace("Z", "+00:00")
    try:
        return _naive(datetime.fromisoformat(f"{match['date']}T{clock_face}.{fraction}{zone}"))
    except (ValueError, OverflowError):
        raise ValueError(_not_a_time(text)) from None


def _naive(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        return moment
    return moment.astimezone(UTC).replace(tzinfo=None)


def _not_a_time(text: str) -> str:
    return f"not a time (RFC 3339, such as 2026-01-31T12:00:00Z, or a date): {text[:64]!r}"
