"""What a step used and cost: reported or estimated, and at which price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw.accounting.prices import PriceLine
from xgw.values import Usage

Row = Mapping[str, Any]

_SOURCES = {
    "provider": "As the provider reported it.",
    "estimated": "Estimated here: the provider reported nothing, or not all of it.",
    "partial": "The sum of what is known: a part was not reported.",
}


@dataclass(frozen=True, slots=True)
class Count:
    """A count of tokens; `is_part` where it is a part of the one above."""

    name: str
    tokens: int | None
    is_part: bool = False


@dataclass(frozen=True, slots=True)
class UsageView:
    """The usage of a step; `lines` at today's price, which come to `sum_usd`."""

    counts: tuple[Count, ...]
    source: str
    lines: tuple[PriceLine, ...]
    sum_usd: float | None
    is_same: bool


def view_of(step: Row, lines: Sequence[PriceLine]) -> UsageView:
    """The usage of a step and what it comes to at these prices."""
    used = tuple(line for line in lines if line.tokens)
    total = sum(line.cost_usd for line in used) if used else None
    cost = step["cost_usd"]
    is_same = total is not None and cost is not None and abs(total - cost) <= 1e-9 + cost * 1e-6
    source = _SOURCES.get(step["usage_source"] or "", "Nothing is known of it.")
    return UsageView(_counts(step), source, used, total, is_same)


def usage_of(step: Row) -> Usage:
    """The counts of a step as prices take them."""
    return Usage(
        input_tokens=step["input_tokens"],
        output_tokens=step["output_tokens"],
        cached_tokens=step["cached_tokens"],
        cache_write_tokens=step["cache_write_tokens"],
    )


def _counts(step: Row) -> tuple[Count, ...]:
    sent, cached = step["input_tokens"], step["cached_tokens"]
    missed = sent - cached if sent is not None and cached is not None else None
    return (
        Count("input", sent),
        Count("from the cache (hit)", cached, is_part=True),
        Count("not from the cache (miss)", missed, is_part=True),
        Count("written to the cache", step["cache_write_tokens"], is_part=True),
        Count("output", step["output_tokens"]),
        Count("reasoning", step["reasoning_tokens"], is_part=True),
        Count("in all", step["total_tokens"]),
    )
