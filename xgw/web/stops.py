"""What would stop a turn: how much of each of its limits is used."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from xgw import spelling

Row = Mapping[str, Any]

NO_LIMITS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Stop:
    """Something that would end the turn: how much of it is used, where that is known."""

    name: str
    used: float | None
    of: float | None
    told: str


def stops_of_waiting(
    waits: Sequence[Row], tool_wait_seconds: float, now: datetime.datetime
) -> Iterator[Stop]:
    """The time that a client has to send the results of tools; `waits` are the steps of these."""
    if waits:
        used = (now - waits[0]["started_at"]).total_seconds()
        told = f"{_seconds(used)} of {_seconds(tool_wait_seconds)}"
        yield Stop("waiting for tools", used, tool_wait_seconds, told)


def stops_of_context(last: Row | None, window: int | None) -> Iterator[Stop]:
    """How full the context window was at the `last` call of a model."""
    if last is not None and last["context_tokens"] is not None and window is not None:
        told = f"{spelling.count(last['context_tokens'], last['usage_source'])} of {window:,}"
        yield Stop("context window", last["context_tokens"], window, told)


def stops_of_agent(
    tried: Sequence[Row], limits: Mapping[str, Any], now: datetime.datetime
) -> Iterator[Stop]:
    """The limits of an agent's turn; tokens and costs that nobody knows are not counted.

    `tried` are the runs that count there, with their `steps`: the one shown, after those that it
    resumes.
    """
    steps = [step for run in tried for step in run["steps"]]
    summaries = {step["id"] for step in steps if step["step_type"] == "memory_write"}
    calls = [step for step in steps if step["step_type"] == "llm_call"]
    if most := limits.get("max_iterations"):
        used = sum(1 for call in calls if _is_iteration(call, summaries))
        yield Stop("iterations", used, most, f"{used} of {most}")
    if most := limits.get("max_turn_tokens"):
        used = sum(call["total_tokens"] or 0 for call in calls)
        yield Stop("turn tokens", used, most, f"{used:,} of {most:,}")
    if most := limits.get("max_turn_cost_usd"):
        cost = sum(call["cost_usd"] or 0.0 for call in calls)
        yield Stop("turn cost", cost, most, f"{spelling.usd(cost)} of {spelling.usd(most)}")
    if (most := limits.get("max_seconds")) and tried and tried[-1]["started_at"] is not None:
        took = ((tried[-1]["ended_at"] or now) - tried[-1]["started_at"]).total_seconds()
        yield Stop("time", took, most, f"{_seconds(took)} of {_seconds(most)}")


def _is_iteration(call: Row, summaries: Collection[str]) -> bool:
    """Whether a call counts as an answer: not one for a summary, nor one that is made again."""
    is_first = (call["attempt"] or 1) == 1 and call["error_type"] != "interrupted"
    return is_first and call["parent_step_id"] not in summaries


def _seconds(seconds: float) -> str:
    return spelling.duration(seconds * 1000)
