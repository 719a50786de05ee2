"""A turn as a page shows it: how it stands in words, what runs now, what would stop it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw import clock, spelling
from xgw.queries import wording
from xgw.queries.overview import state_of_turn
from xgw.web.stops import NO_LIMITS, Stop, stops_of_agent, stops_of_context, stops_of_waiting
from xgw.web.waterfall import Waterfall, waterfall_of

Row = Mapping[str, Any]

OPEN_STATES = frozenset({"queued", "running", "waiting", "paused"})

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


@dataclass(frozen=True, slots=True)
class TurnView:
    """Everything that the panel of a turn shows; `csrf` is for its buttons, "" where it has none.

    `run` is the one shown, of `runs`; `current` the step that began last of those under way,
    `progress` what `step.progress` says of it.
    """

    turn: Row
    runs: Sequence[Row]
    run: Row | None
    steps: Sequence[Row]
    state: str
    is_open: bool
    current: Row | None
    waits_since: datetime.datetime
    waits_for: tuple[str, ...]
    served: str
    served_by_attempt: int | None
    ended_words: str
    beyond: str | None
    waterfall: Waterfall | None
    stops: tuple[Stop, ...]
    fields: tuple[tuple[str, str], ...]
    csrf: str
    progress: Row | None

    @property
    def input_tokens(self) -> tuple[int | None, str | None]:
        """Tokens sent so far and their source: of a turn under way those of its calls."""
        if self.turn["ended_at"] is not None:
            return self.turn["input_tokens"], self.turn["usage_source"]
        known = [s for s in self.steps if s["input_tokens"] is not None]
        is_estimate = any(s["usage_source"] != "provider" for s in known)
        total = sum(step["input_tokens"] for step in known) if known else None
        return total, "estimated" if is_estimate else "provider"

    @property
    def round_trips(self) -> int:
        """Model answers asked for so far."""
        if self.turn["ended_at"] is not None:
            return int(self.turn["llm_calls"] or 0)
        calls = (step for step in self.steps if step["step_type"] == "llm_call")
        return sum(1 for step in calls if (step["attempt"] or 1) == 1)


def view_of(
    turn: Row,
    *,
    tool_wait_seconds: float,
    window: int | None = None,
    run_id: str | None = None,
    csrf: str = "",
    limits: Mapping[str, Any] = NO_LIMITS,
    progress_of: Callable[[str], Row | None] = lambda _: None,
) -> TurnView:
    """The view of a turn with its `runs`; `run_id` chooses one, the newest otherwise.

    `limits` are those that an agent's turn began with, as in its `config_snapshot`.
    """
    runs: Sequence[Row] = turn["runs"]
    run = next((r for r in runs if r["id"] == run_id), runs[-1] if runs else None)
    steps: Sequence[Row] = run["steps"] if run else ()
    newest = runs[-1] if runs else None
    state = state_of_turn(turn["status"], newest["status"] if newest else None)
    running = [step for step in steps if step["status"] == "running"]
    calls = [step for step in steps if step["step_type"] == "llm_call"]
    waits = [step for step in running if step["tool_call_id"]]
    last = calls[-1] if calls else None
    now = clock.now()
    return TurnView(
        turn=turn,
        runs=runs,
        run=run,
        steps=steps,
        state=state,
        is_open=state in OPEN_STATES,
        current=running[-1] if running else None,
        waits_since=waits[0]["started_at"] if waits else turn["started_at"] or turn["created_at"],
        waits_for=tuple(step["name"] or spelling.UNKNOWN for step in waits),
        served=wording.served_words(turn["final_provider_name"], turn["final_model"]),
        served_by_attempt=_late_attempt(last),
        ended_words=_ended_words(turn),
        beyond=_beyond(turn),
        waterfall=waterfall_of(steps, now),
        stops=(
            *stops_of_waiting(waits if state == "waiting" else (), tool_wait_seconds, now),
            *stops_of_agent(turn, steps, limits, now),
            *stops_of_context(last, window),
        ),
        fields=tuple(_fields(turn, calls)),
        csrf=csrf,
        progress=progress_of(running[-1]["id"]) if running else None,
    )


def _late_attempt(call: Row | None) -> int | None:
    """Of an answer that another attempt than the first one brought."""
    if call is None or call["status"] != "success" or (call["attempt"] or 1) < 2:
        return None
    attempt: int = call["attempt"]
    return attempt


def _ended_words(turn: Row) -> str:
    cause = _ENDED_BY.get(turn["ended_by"] or "", turn["ended_by"] or "")
    if turn["status"] == "error" and turn["error_type"]:
        return wording.joined(wording.error_label(turn["error_type"]), cause)
    return cause


def _beyond(turn: Row) -> str | None:
    """Attempts beyond the round-trips: those that served nothing."""
    wasted = (turn["attempts"] or 0) - (turn["llm_calls"] or 0)
    return f"+{wasted} failed" if wasted > 0 and turn["ended_at"] else None


def _fields(turn: Row, calls: Sequence[Row]) -> list[tuple[str, str]]:
    asked = next((call["model_requested"] for call in calls if call["model_requested"]), None)
    client = (turn["metadata"] or {}).get("client")
    named = [
        ("asked for", asked),
        ("answered by", wording.served_words(turn["final_provider_name"], turn["final_model"])),
        ("endpoint", turn["endpoint"]),
        ("agent", turn["agent_name"]),
        ("busy", spelling.duration(turn["busy_ms"])),
        ("tokens", wording.usage_with_total(turn)),
        ("cost", spelling.usd(turn["cost_usd"])),
        ("attempts", spelling.count(turn["attempts"])),
        ("tool calls", spelling.count(turn["tool_calls"])),
        ("ended by", turn["ended_by"]),
        ("turn key", turn["turn_key"]),
        ("task", turn["task_id"]),
        ("parent turn", turn["parent_turn_id"]),
        ("client", wording.client_words(client)),
        ("metadata", _metadata(turn)),
    ]
    return [(name, value) for name, value in named if value]


def _metadata(turn: Row) -> str:
    kept = {k: v for k, v in (turn["metadata"] or {}).items() if k != "client" and v is not None}
    return wording.json_words(kept) if kept else ""
