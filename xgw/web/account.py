"""What is told of a turn: how it stands, what it took and used.

Of a turn with several runs all of this is of the one run that is shown: their sums, and the time
from the first one's start to the last one's end, are of nothing that anybody waited for.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw import spelling
from xgw.queries import wording
from xgw.queries.overview import state_of_turn

Row = Mapping[str, Any]

_ENDED_BY = {
    "provider": "the provider failed",
    "client_disconnect": "the client went away",
    "user_cancel": "cancelled by a person",
    "limit": "a limit was reached",
    "superseded": "a later message took its place",
    "gateway": "refused by the gateway",
    "shutdown": "the server shut down",
    "crash": "the server stopped without warning",
    "resumed": "it was resumed",
}
_SUMS = ("input_tokens", "output_tokens", "cached_tokens", "total_tokens")


@dataclass(frozen=True, slots=True)
class Account:
    """`state` is in one word, `ended_words` why it ended in it. `served_by_attempt` is that of an
    answer which another attempt than the first brought, `beyond` tells of those that brought none.

    `missing` are the tools of a client whose results never came, of a turn that ended without them.
    `pace` tells how fast the answer came, the last one that was asked for.

    Tokens are None where nobody knows them; `usage_source` marks input and output.
    """

    state: str
    started_at: datetime.datetime | None
    latency_ms: int | None
    provider_name: str | None
    model: str | None
    finish_reason: str | None
    error_type: str | None
    error_message: str | None
    ended_words: str
    served_by_attempt: int | None
    pace: str
    missing: tuple[str, ...]
    round_trips: int
    beyond: str | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    input_source: str | None
    usage_source: str | None


def account_of(turn: Row, runs: Sequence[Row], run: Row | None) -> Account:
    """The account of a turn whose `run`, of `runs` with their `steps`, is shown.

    Only an agent's turn has several that count; of others they are light.
    """
    if run is None or len(runs) < 2 or "latency_ms" not in run:
        return _of_turn(turn, run)
    return _of_run(turn, run, is_newest=run["id"] == runs[-1]["id"])


def calls_of(run: Row | None) -> list[Row]:
    """The model calls of a run, every attempt."""
    return [step for step in run["steps"] if step["step_type"] == "llm_call"] if run else []


def answer_of(calls: Sequence[Row]) -> Row | None:
    """The call that answered last; those of other agents and for summaries answer nobody here."""
    own = [call for call in calls if call["parent_step_id"] is None] or calls
    return own[-1] if own else None


def _of_turn(turn: Row, run: Row | None) -> Account:
    calls = calls_of(run)
    is_over = turn["ended_at"] is not None
    sent = turn if is_over else summed(calls)
    round_trips = int(turn["llm_calls"] or 0) if is_over else _round_trips(calls)
    return Account(
        state_of_turn(turn["status"], run["status"] if run else None),
        turn["started_at"],
        turn["latency_ms"],
        turn["final_provider_name"],
        turn["final_model"],
        turn["finish_reason"],
        turn["error_type"],
        turn["error_message"],
        _ended_words(turn),
        _late_attempt(calls[-1] if calls else None),
        wording.pace_words(answer) if (answer := answer_of(calls)) else "",
        _missing(turn, run),
        round_trips,
        _beyond((turn["attempts"] or 0) - round_trips) if is_over else None,
        sent["input_tokens"],
        turn["output_tokens"],
        turn["cached_tokens"],
        sent["usage_source"],
        turn["usage_source"],
    )


def _of_run(turn: Row, run: Row, *, is_newest: bool) -> Account:
    calls = calls_of(run)
    sums, answer, round_trips = summed(calls), answer_of(calls), _round_trips(calls)
    known: Row = answer or {}
    return Account(
        state_of_turn(turn["status"] if is_newest else run["status"], run["status"]),
        run["started_at"],
        run["latency_ms"],
        known.get("provider_name"),
        known.get("model"),
        known.get("finish_reason"),
        run["error_type"],
        run["error_message"],
        _ended_words(run),
        _late_attempt(answer),
        wording.pace_words(answer) if answer else "",
        (),
        round_trips,
        _beyond(len(calls) - round_trips) if run["ended_at"] is not None else None,
        sums["input_tokens"],
        sums["output_tokens"],
        sums["cached_tokens"],
        sums["usage_source"],
        sums["usage_source"],
    )


def _missing(turn: Row, run: Row | None) -> tuple[str, ...]:
    if run is None or turn["endpoint"] is None or turn["finish_reason"] != "tool_calls":
        return ()
    dropped = (step for step in run["steps"] if step["error_type"] == "no_result")
    return tuple(dict.fromkeys(step["name"] or spelling.UNKNOWN for step in dropped))


def summed(calls: Iterable[Row]) -> Row:
    """What calls used in all, None where nobody knows, with the `usage_source` of the sums.

    What a call under way has sent is known as an estimate.
    """
    sums: dict[str, Any] = {name: _sum(call[name] for call in calls) for name in _SUMS}
    known = [call for call in calls if call["input_tokens"] is not None]
    is_estimate = any(call["usage_source"] != "provider" for call in known)
    return {**sums, "usage_source": "estimated" if is_estimate else "provider"}


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _round_trips(calls: Iterable[Row]) -> int:
    """Model answers asked for."""
    return sum(1 for call in calls if (call["attempt"] or 1) == 1)


def _late_attempt(call: Row | None) -> int | None:
    if call is None or call["status"] != "success" or (call["attempt"] or 1) < 2:
        return None
    attempt: int = call["attempt"]
    return attempt


def _ended_words(row: Row) -> str:
    cause = _ENDED_BY.get(row["ended_by"] or "", row["ended_by"] or "")
    if row["status"] == "error" and row["error_type"]:
        return wording.joined(wording.error_label(row["error_type"]), cause)
    return cause


def _beyond(wasted: int) -> str | None:
    """Attempts beyond the round-trips: those that served nothing."""
    return f"+{wasted} failed" if wasted > 0 else None
