"""A run's steps as a timeline of bars in text: when each began, how long it took, the waits."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from xgw import spelling
from xgw.cli import texts
from xgw.cli.terminal import Role, Screen
from xgw.queries.nesting import depths_of
from xgw.queries.pages import Row
from xgw.queries.wording import served_words

NAME_CELLS = 24
LEAST_NAME = 8
OTHER_CELLS = 22
"""Number, outcome and time stand beside the name, before the bars."""
LEAST_BAR = 8
DEEPEST = 4
WAIT, BEFORE_FIRST_TOKEN, WORK, INSTANT = "┈", "░", "█", "▏"

_STEP_ROLES: dict[str, Role] = {"running": "busy", "error": "bad", "cancelled": "faint"}


@dataclass(frozen=True, slots=True)
class Span:
    """The time that a timeline shows, and the cells that it has for names and for bars."""

    start: datetime.datetime
    seconds: float
    names: int
    cells: int

    @property
    def margin(self) -> int:
        """The cells before the bars."""
        return self.names + OTHER_CELLS

    def at(self, moment: datetime.datetime) -> int:
        """The cell at which a moment lies."""
        share = (moment - self.start).total_seconds() / self.seconds if self.seconds > 0 else 0
        return min(self.cells - 1, max(0, int(share * self.cells)))

    def bar(self, begun: datetime.datetime, parts: Sequence[tuple[str, float]]) -> str:
        """A bar from `begun` on; `parts` are marks and the seconds that each of them stands for."""
        first, bar, moment = self.at(begun), "", begun
        for mark, seconds in parts:
            moment += datetime.timedelta(seconds=seconds)
            share = (moment - self.start).total_seconds() / self.seconds if self.seconds > 0 else 0
            ends = min(self.cells, round(share * self.cells))
            bar += mark * max(0, ends - first - len(bar))
        return " " * first + (bar or INSTANT)


def render(screen: Screen, steps: Sequence[Row], now: datetime.datetime) -> list[str]:
    """A line for each step, and one for each wait before a further attempt."""
    if not steps:
        return []
    start = min(step["started_at"] for step in steps)
    seconds = (max(step["ended_at"] or now for step in steps) - start).total_seconds()
    room = screen.page_width - OTHER_CELLS
    names = max(LEAST_NAME, min(NAME_CELLS, room - LEAST_BAR))
    span = Span(start, seconds, names, max(LEAST_BAR, room - names))
    lines, depths = [_scale(screen, span)], depths_of(steps)
    for number, step in enumerate(steps, 1):
        if step["waited_ms"]:
            lines.append(_wait_line(screen, span, step))
        lines.append(_step_line(screen, span, number, step, now, depths[step["id"]]))
    return lines


def name_of(step: Row) -> str:
    """What a step is, in a few words: `demo/gpt-4o`, or the name of a tool."""
    if step["step_type"] == "llm_call":
        served = served_words(step["provider_name"], step["model"] or step["name"])
        if purpose := (step.get("metadata") or {}).get("purpose"):
            served += f" for {purpose}"
        return f"{served} #{step['attempt']}" if (step["attempt"] or 1) > 1 else served
    kind = "" if step["step_type"] == "tool_call" else f"{step['step_type']} "
    return f"{kind}{step['name'] or spelling.UNKNOWN}"


def outcome_of(step: Row) -> str:
    """How a step ended, in one word or number."""
    if step["status"] == "success":
        return "ok"
    if step["status"] == "error" and (step["http_status"] or 0) >= 400:
        return str(step["http_status"])
    return str(step["status"])


def role_of(step: Row) -> Role:
    """The colour of a step."""
    return _STEP_ROLES.get(step["status"], "plain")


def elapsed_ms(step: Row, now: datetime.datetime) -> float:
    """How long a step took, or has taken so far."""
    if step["latency_ms"] is not None:
        return float(step["latency_ms"])
    return max(0.0, float(((step["ended_at"] or now) - step["started_at"]).total_seconds()) * 1000)


def _scale(screen: Screen, span: Span) -> str:
    end = spelling.duration(span.seconds * 1000)
    return screen.paint(f"{'':{span.margin}}0{end:>{span.cells - 1}}", "faint")


def _step_line(
    screen: Screen, span: Span, number: int, step: Row, now: datetime.datetime, depth: int
) -> str:
    # What the turn itself asked for stands in its order; only what is under that is set in.
    shown = f"{'· ' * min(DEEPEST, max(0, depth - 1))}{name_of(step)}"
    name = texts.pad(texts.one_line(shown, span.names), span.names)
    ended = f"{outcome_of(step):>7} {spelling.duration(elapsed_ms(step, now)):>8}  "
    role = role_of(step)
    bar = screen.paint(_bar(span, step, now), role)
    return f"{number:>2} {name} {screen.paint(ended, role)}{bar}".rstrip()


def _bar(span: Span, step: Row, now: datetime.datetime) -> str:
    took = elapsed_ms(step, now) / 1000
    first = min(took, (step["ttft_ms"] or 0) / 1000)
    return span.bar(step["started_at"], [(BEFORE_FIRST_TOKEN, first), (WORK, took - first)])


def _wait_line(screen: Screen, span: Span, step: Row) -> str:
    seconds = step["waited_ms"] / 1000
    begun = step["started_at"] - datetime.timedelta(seconds=seconds)
    words = f"   waited {spelling.duration(step['waited_ms'])}, then {step['attempt_reason']}"
    named = texts.pad(texts.cut(words, span.margin), span.margin)
    told = f"{named}{span.bar(begun, [(WAIT, seconds)])}"
    return screen.paint(told.rstrip(), "faint")
