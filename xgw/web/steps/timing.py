"""When things happened in a step: the wait before it, the first token, the stream."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from xgw import spelling
from xgw.queries.pages import Row
from xgw.queries.wording import reads_words, speed_words

MOST_POINTS = 400


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the time; `x` and `width` in percent. `kind`: wait, first, stream, open or work."""

    kind: str
    word: str
    ms: float
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Chart:
    """What had arrived over time; points in percent, the first value from the left, both upwards.

    `most` stands at its top, `last_ms` at its right end.
    """

    points: str
    most: str
    last_ms: float
    words: str


@dataclass(frozen=True, slots=True)
class TimingView:
    """The time of a step; `chart` is None where no timing of a stream was kept."""

    segments: tuple[Segment, ...]
    is_open: bool
    rows: tuple[tuple[str, str], ...]
    chart: Chart | None


def view_of(step: Row, log: Row | None, now: datetime.datetime) -> TimingView:
    """The timing of a step and of its exchange, a whole request log."""
    return TimingView(
        segments_of(step, now),
        step["ended_at"] is None,
        tuple(_rows(step, log)),
        _chart(step, log),
    )


def segments_of(step: Row, now: datetime.datetime) -> tuple[Segment, ...]:
    """The parts of a step's time, its wait first; none that took no time."""
    took = step["latency_ms"]
    if took is None:
        took = max(0.0, ((step["ended_at"] or now) - step["started_at"]).total_seconds() * 1000)
    first = step["ttft_ms"]
    if step["step_type"] != "llm_call":
        lengths = [("work", "work", took)]
    elif step["ended_at"] is None:
        lengths = [("open", "under way", took)]
    elif first is None:
        lengths = [("first", "no token", took)]
    else:
        lengths = [
            ("first", "to the first token", min(first, took)),
            ("stream", "stream", max(0, took - first)),
        ]
    parts = [("wait", "wait before it", step["waited_ms"] or 0), *lengths]
    total = sum(ms for _, _, ms in parts) or 1
    starts = itertools.accumulate((ms for _, _, ms in parts), initial=0)
    return tuple(
        Segment(kind, word, ms, round(100 * at / total, 3), round(100 * ms / total, 3))
        for (kind, word, ms), at in zip(parts, starts, strict=False)
        if ms > 0
    )


def _rows(step: Row, log: Row | None) -> list[tuple[str, str]]:
    stream = None
    if step["ttft_ms"] is not None and step["latency_ms"] is not None:
        stream = max(0, step["latency_ms"] - step["ttft_ms"])
    named = [
        ("wait before it", spelling.duration(step["waited_ms"]) if step["waited_ms"] else None),
        ("first byte", _first_byte(log)),
        ("first token", spelling.duration(step["ttft_ms"])),
        ("stream", spelling.duration(stream)),
        ("in all", spelling.duration(step["latency_ms"])),
        ("speed", speed_words(step)),
    ]
    if step["step_type"] != "llm_call":
        named = [("in all", spelling.duration(step["latency_ms"]))]
    return [(name, words) for name, words in named if words is not None]


def _first_byte(log: Row | None) -> str | None:
    if log is None or log["first_byte_at"] is None or log["started_at"] is None:
        return None
    if log["frames"]:
        return spelling.duration(log["frames"][0][1])  # by the clock of the times beside it
    after = (log["first_byte_at"] - log["started_at"]).total_seconds()
    return spelling.duration(max(0.0, after * 1000))


def _chart(step: Row, log: Row | None) -> Chart | None:
    """Tokens over time: how many is estimated from the share of the bytes that had come."""
    words = reads_words(log) if log is not None else None
    if log is None or words is None:
        return None
    reads = [(frame[1], frame[0]) for frame in log["frames"] if len(frame) == 2]
    total = max(log["bytes_received"] or 0, reads[-1][1] + 1)
    # An entry names the byte that a read begins with: what it brought is known by the next one.
    ends = [offset for _, offset in reads[1:]] + [total]
    last = max(1, reads[-1][0])
    known = list(zip((at for at, _ in reads), ends, strict=True))
    kept = [*known[:: len(known) // MOST_POINTS + 1], known[-1]]
    steps = _stairs([(100 * at / last, 100 - 100 * end / total) for at, end in kept])
    tokens = step["output_tokens"]
    most = f"~{tokens:,} tokens" if tokens else spelling.size(total)
    return Chart(steps, most, last, words)


def _stairs(points: Sequence[tuple[float, float]]) -> str:
    """A line that goes on level until the next point, from the bottom on."""
    line, level = [(0.0, 100.0)], 100.0
    for x, y in points:
        line += [(x, level), (x, y)]
        level = y
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in line)
