"""What would stop a turn: how much of each of its limits is used."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from xgw import clock, spelling
from xgw.web.account import calls_of

Row = Mapping[str, Any]

NO_LIMITS: Mapping[str, Any] = MappingProxyType({})
_WORKS = "running"


@dataclass(frozen=True, slots=True)
class Stop:
    """Something that would end the turn: how much of it is used, where that is known.

    `since` is when it began to be used up, of time that goes on; `adds` is the call under way that
    will add to it.
    """

    name: str
    used: float | None
    of: float | None
    used_words: str
    of_words: str
    since: datetime.datetime | None = None
    adds: str | None = None


def stops_of_waiting(
    waits: Sequence[Row], tool_wait_seconds: float, now: datetime.datetime
) -> Iterator[Stop]:
    """The time that a client has to send the results of tools; `waits` are the steps of these."""
    if waits:
        since = waits[0]["started_at"]
        yield _time("waiting for tools", (now - since).total_seconds(), tool_wait_seconds, since)


def stops_of_context(last: Row | None, window: int | None) -> Iterator[Stop]:
    """How full the context window was at the `last` call of a model.

    Until a provider reports what was sent that is an estimate.
    """
    if last is not None and last["context_tokens"] is not None and window is not None:
        used = last["context_tokens"]
        told = spelling.count(used, last["usage_source"] or "estimated")
        yield Stop("context window", used, window, told, f"{window:,}")


def stops_of_agent(
    tried: Sequence[Row], limits: Mapping[str, Any], now: datetime.datetime
) -> Iterator[Stop]:
    """The limits of an agent's turn; tokens and costs that nobody knows are not counted.

    `tried` are the runs that count there, with their `steps`: the one shown, after those that it
    resumes.
    """
    steps = [step for run in tried for step in run["steps"]]
    summaries = {step["id"] for step in steps if step["step_type"] == "memory_write"}
    calls = [call for run in tried for call in calls_of(run)]
    if most := limits.get("max_iterations"):
        used = sum(1 for call in calls if _is_iteration(call, summaries))
        yield Stop("iterations", used, most, f"{used}", f"{most}")
    if most := limits.get("max_turn_tokens"):
        yield _tokens(calls, most)
    if most := limits.get("max_turn_cost_usd"):
        known = [call["cost_usd"] for call in calls if call["cost_usd"] is not None]
        cost = sum(known) if known or not calls else None
        yield Stop("turn cost", cost, most, spelling.usd(cost), spelling.usd(most))
    if (most := limits.get("max_seconds")) and tried and tried[-1]["started_at"] is not None:
        spent = spent_seconds(tried[-1], now)
        is_working = tried[-1]["status"] == _WORKS
        since = now - datetime.timedelta(seconds=spent) if is_working else None
        yield _time("time", spent, most, since)


def spent_seconds(run: Row, now: datetime.datetime) -> float:
    """The time of an agent's run, and of those that it resumes, that its limit counts: all but the
    waits for a person.

    Its checkpoint tells it of one moment. After that it worked as long as it runs, or, once it has
    ended, at its answer (`busy_ms`) or at a tool that was cancelled with it.
    """
    kept = run["checkpoint"] or {}
    if kept.get("at") is None:
        return float(((run["ended_at"] or now) - run["started_at"]).total_seconds())
    at, counted = clock.parse_time(kept["at"]), (kept.get("elapsed_ms") or 0) / 1000
    if run["status"] == _WORKS:
        return float(counted + max(0.0, (now - at).total_seconds()))
    if run["ended_at"] is None:
        return float(counted)
    at_answer = max(0, (run["busy_ms"] or 0) - (kept.get("busy_ms") or 0)) / 1000
    return float(counted + at_answer + _in_dropped_tools(run, kept, at))


def _in_dropped_tools(run: Row, kept: Mapping[str, Any], at: datetime.datetime) -> float:
    """How long tools that ended without a result ran after a moment; one that handed a task over
    may be open while a person is awaited."""
    if kept.get("next") == "decisions":
        return 0.0
    dropped = (
        (step["ended_at"] - max(step["started_at"], at)).total_seconds()
        for step in run["steps"]
        if step["error_type"] == "no_result" and step["ended_at"] is not None
    )
    return max(dropped, default=0.0)


def _tokens(calls: Sequence[Row], most: int) -> Stop:
    ended = [call for call in calls if call["status"] != _WORKS]
    known = [call for call in ended if call["total_tokens"] is not None]
    used = sum(call["total_tokens"] for call in known) if known or not ended else None
    source = "partial" if len(known) < len(ended) else None
    if any(call["usage_source"] != "provider" for call in known):
        source = "estimated"
    adds = next((call["id"] for call in reversed(calls) if call["status"] == _WORKS), None)
    return Stop("turn tokens", used, most, spelling.count(used, source), f"{most:,}", adds=adds)


def _time(name: str, used: float, most: float, since: datetime.datetime | None) -> Stop:
    return Stop(name, used, most, _seconds(used), _seconds(most), since)


def _is_iteration(call: Row, summaries: Collection[str]) -> bool:
    """Whether a call counts as an answer: not one for a summary, nor one that is made again."""
    is_first = (call["attempt"] or 1) == 1 and call["error_type"] != "interrupted"
    return is_first and call["parent_step_id"] not in summaries


def _seconds(seconds: float) -> str:
    return spelling.duration(seconds * 1000)
