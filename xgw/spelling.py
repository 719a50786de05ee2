"""How figures are spelled for people: counts, tokens, money, durations, moments, sizes.

Unknown is `–`, never 0; an estimate is marked `~`, a sum of which parts are unknown `≥`.
"""

from __future__ import annotations

import datetime

from xgw import clock

UNKNOWN = "–"
MARKS = {"estimated": "~", "partial": "≥"}

AHEAD_SECONDS = 60
"""What is less ahead is now: no two clocks agree."""

_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def count(number: int | None, source: str | None = None) -> str:
    """A whole number with its thousands set apart, marked by the source of the usage."""
    return UNKNOWN if number is None else f"{MARKS.get(source or '', '')}{number:,}"


def usd(cost: float | None) -> str:
    """Dollars with as many digits as tell something; what is not nothing never reads $0."""
    if cost is None:
        return UNKNOWN
    if 0 < cost < 0.000001:
        return "<$0.000001"
    if 0 < cost < 0.0001:
        return f"${cost:.6f}"
    return f"${cost:,.4f}" if cost < 1 else f"${cost:,.2f}"


def duration(ms: float | None) -> str:
    """Milliseconds, seconds, minutes, hours or days: what reads best."""
    if ms is None:
        return UNKNOWN
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 100:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    if minutes < 2880:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60:02d} h"


def size(count: int | None) -> str:
    """Bytes."""
    if count is None:
        return UNKNOWN
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def ago(moment: datetime.datetime | None, now: datetime.datetime) -> str:
    """How long ago, in one unit; a minute or more from now, how long until then.

    Another machine's clock may be ahead, or this one's was.
    """
    if moment is None:
        return UNKNOWN
    seconds = (now - moment).total_seconds()
    for unit, scale in _UNITS:
        if seconds >= scale:
            return f"{int(seconds // scale)} {unit} ago"
        if seconds <= -max(scale, AHEAD_SECONDS):
            return f"in {int(-seconds // scale)} {unit}"
    return "now"


def moment(at: datetime.datetime | None) -> str:
    """Date, time to the millisecond and zone, as this machine's clock shows them."""
    if at is None:
        return UNKNOWN
    local = at.replace(tzinfo=datetime.UTC).astimezone()
    zone = local.strftime("%z")
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d} {zone[:3]}:{zone[3:5]}"


def time_of_day(at: datetime.datetime) -> str:
    """The time to the millisecond, as this machine's clock shows it."""
    local = at.replace(tzinfo=datetime.UTC).astimezone()
    return f"{local:%H:%M:%S}.{local.microsecond // 1000:03d}"


def since(text: str) -> datetime.datetime:
    """The moment that a person names; ValueError if it is none.

    An RFC 3339 time, a date, or how long ago: `90s`, `15m`, `2h`, `7d`, `3w`.
    """
    number, unit = text.strip()[:-1], text.strip()[-1:].lower()
    scales = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    if unit in scales and number.isascii() and number.isdigit() and len(number) < 7:
        try:
            return clock.now() - datetime.timedelta(seconds=int(number) * scales[unit])
        except OverflowError:
            raise ValueError(f"too long ago: {text.strip()}") from None
    try:
        return clock.parse_time(text)
    except ValueError:
        known = "how long ago, such as 2h or 7d, a date, or RFC 3339"
        raise ValueError(f"not a time ({known}): {text[:64]!r}") from None
