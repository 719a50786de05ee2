"""Words and blocks that several parts of a report share."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from xgw import clock, spelling
from xgw.portable.formats.blocks import Block, Left, Said
from xgw.portable.formats.harmless import one_line
from xgw.portable.formats.said import left_out, pretty
from xgw.portable.formats.shelf import Row
from xgw.queries.wording import error_words, joined


def spoken(who: str, text: Any, kind: str, aside: str = "") -> Iterator[Block]:
    """What was said; where it was left out, how long it was."""
    if text is None or text == "":
        return
    if why := left_out(text):
        yield Left(who, why)
    else:
        yield Said(who, pretty(text), kind, aside)


def failure(row: Row) -> Iterator[Block]:
    """Why something failed."""
    if row["error_type"] or row["error_message"]:
        yield Said("error", error_words(row), "error")


def took(row: Row) -> str | None:
    """How long it took, and how much of that was work."""
    if row["latency_ms"] is None:
        return None
    busy = row.get("busy_ms")
    waited = busy is not None and row["latency_ms"] - busy >= 1
    return joined(
        spelling.duration(row["latency_ms"]),
        f"{spelling.duration(busy)} of it without waits" if waited else None,
    )


def moment(at: str | None) -> str | None:
    """A time of the document, in UTC, to the millisecond."""
    if at is None:
        return None
    try:
        return f"{clock.parse_time(at).astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
    except ValueError:
        return at


def known(*pairs: tuple[str, Any]) -> tuple[tuple[str, str], ...]:
    """The pairs of which something is known."""
    return tuple(
        (name, one_line(str(value), 400))
        for name, value in pairs
        if value not in (None, "", spelling.UNKNOWN)
    )
