"""Figures: what was measured, what it is held against, and the table that shows both."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Limit:
    """What a figure is held to now, and where it shall go; `at_least` turns both round."""

    first: float
    goal: float | None = None
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        """Whether a value keeps the first step."""
        return value >= self.first if self.at_least else value <= self.first


@dataclass(frozen=True)
class Figure:
    """One line of the table. `values` holds one number a round; their median counts.

    `beside` and `through` say in words what was compared: the direct call, and the one through xgw.
    """

    name: str
    values: Sequence[float]
    unit: str
    limit: Limit | None = None
    beside: str = ""
    through: str = ""

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the first step is met; None where there is none."""
        return None if self.limit is None else self.limit.is_met(self.value)

    def to_json(self) -> dict[str, Any]:
        """The figure with all of its rounds."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "rounds": list(self.values),
            "direct": self.beside or None,
            "through": self.through or None,
            "first_step": self.limit and self.limit.first,
            "goal": self.limit and self.limit.goal,
            "at_least": bool(self.limit and self.limit.at_least),
            "met": self.met,
        }


@dataclass
class Rounds:
    """The same two measurements, side by side, once a round."""

    direct: list[float] = field(default_factory=list)
    through: list[float] = field(default_factory=list)

    def add(self, direct: float, through: float) -> None:
        """One more round."""
        self.direct.append(direct)
        self.through.append(through)

    def differences(self) -> list[float]:
        """What xgw adds, by round."""
        return [b - a for a, b in zip(self.direct, self.through, strict=True)]

    def shares(self) -> list[float]:
        """What is left through xgw of what there is without it, in percent, by round."""
        return [100 * b / a for a, b in zip(self.direct, self.through, strict=True)]

    def words(self, unit: str) -> tuple[str, str]:
        """The medians of both, as the table shows them."""
        return (
            f"{number(statistics.median(self.direct))} {unit}",
            f"{number(statistics.median(self.through))} {unit}",
        )


def percentile(values: Iterable[float], share: float) -> float:
    """The nearest-rank percentile; ValueError for no values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("nothing was measured")
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def number(value: float) -> str:
    """Three digits that matter; whole numbers from a hundred on."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


HEADINGS = ("", "direct", "through xgw", "measured", "first step", "met", "goal")


def render_table(figures: Sequence[Figure]) -> str:
    """The table, one line a figure."""
    rows = [HEADINGS, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return "\n".join(_line(row, widths) for row in rows)


def _row(figure: Figure) -> tuple[str, ...]:
    limit, met = figure.limit, {True: "yes", False: "NO", None: ""}[figure.met]
    measured = f"{number(figure.value)} {figure.unit}"
    if limit is None:
        return figure.name, figure.beside, figure.through, measured, "", met, ""
    sign = "≥" if limit.at_least else "≤"
    first, goal = (
        "" if bound is None else f"{sign} {number(bound)} {figure.unit}"
        for bound in (limit.first, limit.goal)
    )
    return figure.name, figure.beside, figure.through, measured, first, met, goal


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [row[0].ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return "  ".join(cells).rstrip()
