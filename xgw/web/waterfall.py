"""The steps of a run over time: a bar each, the waits between attempts, a scale above."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from xgw import spelling
from xgw.queries import wording
from xgw.queries.nesting import depths_of, in_tree_order
from xgw.web.conversation import partner_of

Row = Mapping[str, Any]

TICKS = 4
MOST_BARS = 400
DEEPEST = 3
"""What is deeper is shown as deep as this."""
NO_SERVERS: Mapping[str, str] = MappingProxyType({})
_ROUND = (1, 2, 5)
_HOUR = 3600
_CLOCK_STEPS = (
    *(factor * 10.0**power for power in range(-3, 1) for factor in _ROUND),
    *(10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0),
    *(_HOUR * hours for hours in (1.0, 2.0, 6.0, 12.0, 24.0)),
)
"""Steps between the moments of an axis, in seconds: round on a clock from 15 on, not by tens."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One step; `x`, `first` and `width` are percent of the whole time.

    `first` is the share before the first token, `wait` the pause before an attempt, left of `x`.
    `is_open`: under way, so that it goes on to the right edge. `told` stands at the right.
    """

    step: Row
    name: str
    x: float
    width: float
    first: float
    wait: float
    is_open: bool
    told: str
    depth: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment of the scale, in percent, and how long after the beginning it is."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The time from `start` to `until`; while a step is under way `until` moves on."""

    start: datetime.datetime
    until: datetime.datetime
    is_open: bool
    ticks: tuple[Tick, ...]
    bars: tuple[Bar, ...]
    left_out: int


def waterfall_of(
    steps: Sequence[Row], now: datetime.datetime, servers: Mapping[str, str] = NO_SERVERS
) -> Waterfall | None:
    """The steps of one run in the order of their starting; None without any.

    `servers` names the MCP servers that tools are of, by the tool's name.

    Of more than MOST_BARS the first ones are left out, and counted.
    """
    if not steps:
        return None
    shown = steps[-MOST_BARS:]
    start = min(_begun(step) for step in shown)
    until = max(
        max(_ended(step, now) for step in shown), start + datetime.timedelta(milliseconds=1)
    )
    seconds = (until - start).total_seconds()
    is_open = any(step["status"] == "running" for step in shown)
    depths = depths_of(steps)
    bars = tuple(
        _bar(step, start, seconds, now, depths[step["id"]], servers)
        for step in in_tree_order(shown)
    )
    return Waterfall(start, until, is_open, _ticks(seconds), bars, len(steps) - len(shown))


def _begun(step: Row) -> datetime.datetime:
    """With the wait before it."""
    begun: datetime.datetime = step["started_at"]
    return begun - datetime.timedelta(milliseconds=step["waited_ms"] or 0)


def _ended(step: Row, now: datetime.datetime) -> datetime.datetime:
    if step["latency_ms"] is not None:
        begun: datetime.datetime = step["started_at"]
        return begun + datetime.timedelta(milliseconds=step["latency_ms"])
    started: datetime.datetime = step["started_at"]
    return max(step["ended_at"] or now, started)


def _bar(
    step: Row,
    start: datetime.datetime,
    seconds: float,
    now: datetime.datetime,
    depth: int,
    servers: Mapping[str, str],
) -> Bar:
    def share(length: float) -> float:
        return round(100 * length / seconds, 3)

    took = (_ended(step, now) - step["started_at"]).total_seconds()
    first = min(took, (step["ttft_ms"] or 0) / 1000)
    return Bar(
        step,
        _name(step, servers),
        share((step["started_at"] - start).total_seconds()),
        share(took),
        share(first),
        share((step["waited_ms"] or 0) / 1000),
        step["status"] == "running",
        _told(step, took),
        min(depth, DEEPEST),
    )


def _name(step: Row, servers: Mapping[str, str]) -> str:
    if step["step_type"] != "llm_call":
        name = partner_of(step) or step["name"] or spelling.UNKNOWN
        return f"{servers[name]} › {name}" if name in servers else name
    model = step["model"] or step["name"] or spelling.UNKNOWN
    if step["attempt_reason"] == "fallback":
        return f"fallback {model}"
    if (step["attempt"] or 1) > 1:
        return f"{wording.nth(step['attempt'])} attempt"
    return str(model)


def _told(step: Row, took: float) -> str:
    if step["status"] == "error":
        if (step["http_status"] or 0) >= 400:
            return str(step["http_status"])
        return wording.error_label(step["error_type"]).removeprefix("upstream ")
    if step["status"] == "cancelled":
        return "cancelled"
    return spelling.duration(took * 1000)


def _ticks(seconds: float) -> tuple[Tick, ...]:
    """Round moments, at most about TICKS of them."""
    step = _round_up(seconds / TICKS)
    count = int(seconds / step)
    return tuple(
        Tick(
            round(100 * number * step / seconds, 3), "0" if number == 0 else _moment(number * step)
        )
        for number in range(count + 1)
        if number * step / seconds < 0.96
    )


def _round_up(seconds: float) -> float:
    for step in _CLOCK_STEPS:
        if step >= seconds:
            return step
    scale = _CLOCK_STEPS[-1]
    while True:
        for factor in _ROUND:
            if factor * scale >= seconds:
                return factor * scale
        scale *= 10


def _moment(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:g} s"
    return f"{seconds / 60:g} min" if seconds < 7200 else f"{seconds / 3600:g} h"
