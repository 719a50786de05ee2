"""A turn as a page shows it: how it stands in words, what runs now, what would stop it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw import clock, spelling
from xgw.agents import lineage
from xgw.events import Envelope
from xgw.queries import wording
from xgw.queries.overview import state_of_turn
from xgw.web.account import Account, account_of, answer_of, calls_of
from xgw.web.decisions import AskedCall, Refused, asked_calls
from xgw.web.imported import until
from xgw.web.rerunview import RerunForm, rerun_of
from xgw.web.runview import KINDS, changed_words, counting, seen_of
from xgw.web.stops import NO_LIMITS, Stop, stops_of_agent, stops_of_context, stops_of_waiting
from xgw.web.waterfall import Waterfall, waterfall_of

Row = Mapping[str, Any]

OPEN_STATES = frozenset({"queued", "running", "waiting", "paused"})


@dataclass(frozen=True, slots=True)
class TurnView:
    """Everything that the panel of a turn shows; `csrf` is for its buttons, "" where it has none.

    `run` is the one shown, of `runs`, `is_chosen` if it was asked for: `account` tells of it, and
    `state` of the turn. `counts` is the run whose answer the turn shows. `current` is the step that
    began last of those under way, `progress` what `step.progress` says of it; `next_try` what is
    waited for between two attempts. `asked` are the calls
    that wait for a person, `refused` a form that was not taken, `rerun` the one to run it again.
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
    account: Account
    waterfall: Waterfall | None
    stops: tuple[Stop, ...]
    fields: tuple[tuple[str, str], ...]
    csrf: str
    progress: Row | None
    next_try: str
    counts: Row | None
    is_chosen: bool
    asked: tuple[AskedCall, ...]
    refused: Refused | None
    rerun: RerunForm | None

    @property
    def is_agents(self) -> bool:
        """Whether an agent runs it, here."""
        return self.turn["endpoint"] is None and self.turn["agent_name"] is not None

    @property
    def can_fork(self) -> bool:
        """Whether its session can be forked at it."""
        return self.rerun is not None and self.turn["session_id"] is not None

    @property
    def state_words(self) -> str | None:
        """How it stands, where one word would not tell."""
        return "waiting for approval" if self.asked and self.account.state == "waiting" else None

    @property
    def undecided(self) -> tuple[AskedCall, ...]:
        """The calls that a person is to decide about."""
        return tuple(call for call in self.asked if call.waits)

    @property
    def answer_words(self) -> str:
        """Whose answer the turn shows, where it has several runs and none is under way."""
        counts = self.counts
        if counts is None or len(self.runs) < 2 or self.is_open:
            return ""
        number = f"run {counts['run_index'] + 1}"
        if counts["status"] == "success":
            return f"The turn's answer is that of {number}, the newest that succeeded."
        return f"None of its runs succeeded; what {number} left is shown."

    @property
    def in_all_words(self) -> str:
        """What its runs used together, where it has several."""
        if len(self.runs) < 2:
            return ""
        cost = None if self.turn["cost_usd"] is None else spelling.usd(self.turn["cost_usd"])
        used = wording.joined(f"{wording.usage_words(self.turn)} tokens", cost)
        return f"Its {len(self.runs)} runs together used {used}."

    def run_words(self, run: Row) -> str:
        """A run as its tab names it."""
        word = KINDS.get(run["kind"], run["kind"])
        return f"Run {run['run_index'] + 1} · {word}"

    def changed_words(self, run: Row) -> str:
        """What a run changes of the one that it goes on from or repeats."""
        return changed_words(run, self.runs)

    def seen(self, messages: Sequence[Row]) -> tuple[list[Row], list[Row]]:
        """Of these messages of the turn those that it shows, and the steps that it shows."""
        run = self.run if self.is_chosen else self.counts
        if run is None:
            return list(messages), []
        steps = [step for one in self.runs for step in one["steps"]]
        return seen_of(run, self.runs, messages, steps)


def view_of(
    turn: Row,
    *,
    tool_wait_seconds: float,
    window_of: Callable[[Row], int | None] = lambda _: None,
    run_id: str | None = None,
    csrf: str = "",
    limits: Mapping[str, Any] = NO_LIMITS,
    progress_of: Callable[[str], Row | None] = lambda _: None,
    failure_of: Callable[[], Envelope | None] = lambda: None,
    config: Row = NO_LIMITS,
    refused: Refused | None = None,
    from_step: str = "",
    servers: Row = NO_LIMITS,
) -> TurnView:
    """The view of a turn with its `runs`; `run_id` chooses one, the newest otherwise.

    `window_of` tells how many tokens the model of a call takes. `config` is the agent as its turn
    began with it, `limits` are those in it. `from_step` names the step that it may be run again
    from, `servers` the MCP servers of tools.
    """
    runs: Sequence[Row] = turn["runs"]
    chosen = next((r for r in runs if r["id"] == run_id), None)
    run = chosen or (runs[-1] if runs else None)
    steps: Sequence[Row] = run["steps"] if run else ()
    newest = runs[-1] if runs else None
    state = state_of_turn(turn["status"], newest["status"] if newest else None)
    running = [step for step in steps if step["status"] == "running"]
    calls = calls_of(run)
    # An agent's tools run here: nobody sends their results.
    waits = [step for step in running if step["tool_call_id"] and turn["endpoint"] is not None]
    answer = answer_of(calls)
    asked = asked_calls(newest)
    now = until()
    tried = () if run is None else lineage.resumed_in(lineage.ancestry_of(run, runs))
    return TurnView(
        turn=turn,
        runs=runs,
        run=run,
        steps=steps,
        state=state,
        is_open=state in OPEN_STATES,
        current=running[-1] if running else None,
        waits_since=_waits_since(turn, waits, newest if asked else None),
        waits_for=_waits_for(waits, asked),
        account=account_of(turn, runs, run),
        waterfall=waterfall_of(steps, now, servers),
        stops=(
            *stops_of_waiting(waits if state == "waiting" else (), tool_wait_seconds, now),
            *stops_of_agent(tried, limits, now),
            *stops_of_context(answer, window_of(answer) if answer else None),
        ),
        fields=tuple(_fields(turn, calls, len(runs))),
        csrf=csrf,
        progress=progress_of(running[-1]["id"]) if running else None,
        next_try=_next_try(steps[-1], failure_of) if state == "running" and steps else "",
        counts=counting(runs),
        is_chosen=chosen is not None,
        asked=asked,
        refused=refused,
        rerun=rerun_of(turn, runs, config, refused, from_step) if csrf else None,
    )


def _next_try(newest: Row, failure_of: Callable[[], Envelope | None]) -> str:
    """What comes after the newest step, where that is an attempt that failed."""
    if newest["step_type"] != "llm_call" or newest["status"] != "error":
        return ""
    failure = failure_of()
    if failure is None or failure.step_id != newest["id"] or not failure.payload["will_retry"]:
        return ""
    target, wait_ms = failure.payload["target"], failure.payload["wait_ms"]
    then = f"asks {target} {'next' if failure.payload['next'] == 'fallback' else 'again'}"
    return f"waits {spelling.duration(wait_ms)}, then {then}" if wait_ms else then


def _waits_since(turn: Row, waits: Sequence[Row], asking: Row | None) -> datetime.datetime:
    """When it began to wait: for its client's tools, or for a person (`asking` is the run)."""
    found: datetime.datetime = turn["started_at"] or turn["created_at"]
    if waits:
        found = waits[0]["started_at"]
    elif asking is not None and (at := (asking.get("checkpoint") or {}).get("at")):
        found = clock.parse_time(at)
    return found


def _waits_for(waits: Sequence[Row], asked: Sequence[AskedCall]) -> tuple[str, ...]:
    names = [call.name for call in asked if call.waits] or [step["name"] for step in waits]
    return tuple(name or spelling.UNKNOWN for name in names)


def _fields(turn: Row, calls: Sequence[Row], runs: int) -> list[tuple[str, str]]:
    of_all = f" of {runs} runs" if runs > 1 else ""
    asked = next((call["model_requested"] for call in calls if call["model_requested"]), None)
    client = (turn["metadata"] or {}).get("client")
    named = [
        ("asked for", asked),
        ("answered by", wording.served_words(turn["final_provider_name"], turn["final_model"])),
        ("endpoint", turn["endpoint"]),
        ("agent", turn["agent_name"]),
        (f"busy{of_all}", spelling.duration(turn["busy_ms"])),
        (f"tokens{of_all}", wording.usage_with_total(turn)),
        (f"cost{of_all}", spelling.usd(turn["cost_usd"])),
        (f"attempts{of_all}", spelling.count(turn["attempts"])),
        (f"tool calls{of_all}", spelling.count(turn["tool_calls"])),
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
