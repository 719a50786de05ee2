"""Times as older stores spell them, and the order of rows that some of these times tell."""

from __future__ import annotations

import datetime
import email.utils
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from xgw import clock

MILLISECOND = datetime.timedelta(milliseconds=1)
SECOND = len("2026-01-02 03:04:05")
FIRST, BEYOND = "1970", "2201"
"""The years of times that a bug report may have."""

_SPOKEN = re.compile(
    r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d+))?)?"
    r"\s*(?:UTC|GMT|Z|([+-])(\d{2}):?(\d{2})(?:\s+\S+)?)?(?:\s+m=\S+)?"
)
_SHAPE = re.compile(r"....-..-..[ T](?!24)..:..:..")
_ZERO = "+00:00"
_NUMBER = re.compile(r"-?\d{9,20}(?:\.\d+)?")
_PER_SECOND = ((1e11, 1), (1e14, 10**3), (1e17, 10**6), (1e20, 10**9))
"""Numbers up to the first are counted in these parts of a second since 1970."""


def read_time(value: Any) -> str | None:
    """The moment in UTC as the store spells it; None if it is not known or cannot be made out.

    Without a zone it is UTC. Besides ISO 8601 in its many spellings: seconds, or smaller units,
    since 1970, dates of e-mails, and what programs in Go write. What is not of the years that the
    store knows (Go's year 1 for no time, zeros) is no time.
    """
    moment = _read(value)
    return moment if moment is not None and FIRST <= moment < BEYOND else None


def _read(value: Any) -> str | None:
    if type(value) is str:
        if value[4:5] != "-" and _NUMBER.fullmatch(value):
            return _read_number(float(value))
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            return _read_odd(value.strip())
        return _spelled(value, moment)
    if isinstance(value, str):
        return _read(str(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _read_number(value)
    return None


def milliseconds(moment: str) -> int:
    """Milliseconds since 1970, 0 for earlier ones."""
    found = _minutes(moment[:16]) + int(moment[17:19] + moment[20:23])
    return found if found > 0 else 0


@lru_cache(maxsize=1024)
def _minutes(moment: str) -> int:
    """Milliseconds since 1970 at the begin of a minute."""
    return (datetime.datetime.fromisoformat(moment) - clock.EPOCH) // MILLISECOND


def later(moment: str, milliseconds: int) -> str:
    """The moment so much later; itself if that is beyond what can be told."""
    try:
        moved = datetime.datetime.fromisoformat(moment) + milliseconds * MILLISECOND
    except OverflowError:
        return moment
    return moved.isoformat(" ", "microseconds")


def between(first: str, last: str) -> int:
    """Milliseconds from one moment to another."""
    passed = datetime.datetime.fromisoformat(last) - datetime.datetime.fromisoformat(first)
    return passed // MILLISECOND


def in_order(moments: Sequence[str | None], first: str) -> tuple[list[int], list[str]]:
    """The order of rows that were written in this sequence at these moments, and their moments.

    A moment that is only known to the second is as late in it as those written before. One that is
    not known is that of the row before; before all of them that of the first that is known, else
    `first`. Rows of one moment stay in their sequence.
    """
    at = next((moment for moment in moments if moment is not None), first)
    placed, filled = [], []
    for moment in moments:
        if moment is not None and (moment >= at or not _may_be(moment, at)):
            at = moment
        placed.append(at)
        filled.append(at if moment is None else moment)
    order = sorted(range(len(placed)), key=placed.__getitem__)
    return order, filled


def _may_be(moment: str, at: str) -> bool:
    """Whether an earlier moment, known to the second, may be `at`, later in that second."""
    return moment[:SECOND] == at[:SECOND] and moment.endswith(".000000")


def _spelled(text: str, moment: datetime.datetime) -> str | None:
    """The moment that a text spells; most texts need only some characters changed."""
    if _SHAPE.match(text):
        told = text[: -len(_ZERO)] if text.endswith(_ZERO) else text.rstrip("Zz")
        if len(told) == SECOND:
            return f"{told[:10]} {told[11:]}.000000"
        if len(told) == SECOND + 7 and told[SECOND] == ".":
            return told if told[10] == " " else f"{told[:10]} {told[11:]}"
    return _utc(moment)


def _utc(moment: datetime.datetime) -> str | None:
    try:
        offset = moment.utcoffset()
        if offset is not None:
            moment = moment.replace(tzinfo=None) - offset
        return moment.isoformat(" ", "microseconds")
    except (OverflowError, ValueError):
        return None


def _read_number(value: float) -> str | None:
    size = abs(value)
    for limit, parts in _PER_SECOND:
        if size < limit:
            try:
                return clock.to_db(clock.from_microseconds(round(value * (1_000_000 / parts))))
            except (OverflowError, ValueError):
                return None
    return None


def _read_odd(text: str) -> str | None:
    found = _SPOKEN.fullmatch(text)
    if found is None:
        return _read_mail(text)
    *parts, fraction, sign, hours, minutes = found.groups()
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in parts)
        micro = int((fraction or "0")[:6].ljust(6, "0"))
        moment = datetime.datetime(year, month, day, hour, minute, second, micro)
        offset = datetime.timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        return (moment + offset if sign == "-" else moment - offset).isoformat(" ", "microseconds")
    except (OverflowError, ValueError):
        return None


def _read_mail(text: str) -> str | None:
    try:
        return _utc(email.utils.parsedate_to_datetime(text))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
