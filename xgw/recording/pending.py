"""The calls of an agent's answer whose results its model has not got yet, and where a run stands.

A call may have handed a task over to another agent: then that one has calls of its own.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from xgw import clock
from xgw.values import ToolCall

State = Literal["open", "awaits_approval", "outcome_unknown", "ended"]
Verdict = Literal["approve", "deny", "result"]
Next = Literal["llm_call", "tools", "decisions", "answer"]

UNDECIDED: tuple[State, ...] = ("awaits_approval", "outcome_unknown")


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided: run the call (with `arguments` of theirs), refuse it, or give its
    `result`. `was_unknown`: the call had been interrupted."""

    verdict: Verdict
    by: str
    arguments: str | None = None
    reason: str | None = None
    result: str | None = None
    was_unknown: bool = False

    def to_json(self) -> dict[str, Any]:
        """As checkpoints, steps and events have it: what is not there is left out."""
        shown = {
            "decision": self.verdict,
            "by": self.by,
            "arguments": self.arguments,
            "reason": self.reason,
            "result": self.result,
            "was_unknown": self.was_unknown or None,
        }
        return {name: value for name, value in shown.items() if value is not None}


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call of an answer whose result the model has not got yet.

    `open`: it is to be run, or ends as it was decided. `ended`: it has a `result`, of `step_id`.
    `outcome_unknown`: it was under way when its process ended. One with a `task` that is open goes
    on with that, in `step_id` if that has begun in this run.
    """

    call: ToolCall
    state: State = "open"
    decision: Decision | None = None
    step_id: str | None = None
    result: str | None = None
    task: Task | None = None

    @property
    def id(self) -> str:
        """The call's id; each call of an agent has one."""
        return self.call.tool_call_id or ""

    def open_ms(self, at: datetime.datetime) -> int | None:
        """How long its step is open at this moment, where it goes on in that."""
        if self.task is None or self.task.began_at is None or self.step_id is None:
            return None
        since = at - clock.parse_time(self.task.began_at)
        return max(0, round(since.total_seconds() * 1000))


@dataclass(frozen=True, slots=True)
class Place:
    """Where calls stand: `step_id` is the answer's that asked for them.

    Of an agent that a task was handed over to `agents` are those that lead to it, itself the last,
    and `under` is the step of the handoff, if that has begun in this run.
    """

    step_id: str | None
    agents: tuple[str, ...] = ()
    under: str | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a run stands; `step_id` is the answer's that asked for `pending`, in its order.

    `elapsed_ms` is its time without waits for people, the runs before it that it goes on from
    included; `busy_ms` this run's alone, without its tools either.
    """

    step_id: str | None = None
    pending: tuple[PendingCall, ...] = ()
    elapsed_ms: int = 0
    busy_ms: int = 0
    messages_upto: int | None = None
    at: str | None = None

    @property
    def undecided(self) -> tuple[PendingCall, ...]:
        """The calls that wait for a person, those of tasks that were handed over too."""
        return tuple(one for one, _ in self.calls() if one.state in UNDECIDED)

    def changed(
        self, change: Callable[[PendingCall, Place], PendingCall], place: Place | None = None
    ) -> Checkpoint:
        """With each call as `change` has it, those of tasks that were handed over too."""
        here = place or Place(self.step_id)
        return replace(self, pending=tuple(_changed(one, change, here) for one in self.pending))

    def calls(self, place: Place | None = None) -> Iterator[tuple[PendingCall, Place]]:
        """The calls and where they stand; those of a task come in the place of the one that handed
        it over."""
        here = place or Place(self.step_id)
        for one in self.pending:
            if one.task is None:
                yield one, here
            else:
                yield from one.task.at.calls(one.task.place(here, one.step_id))

    def handed_over(self) -> Iterator[PendingCall]:
        """The calls that have handed a task over, each before those in its task."""
        for one in self.pending:
            if one.task is not None:
                yield one
                yield from one.task.at.handed_over()


def _changed(
    one: PendingCall, change: Callable[[PendingCall, Place], PendingCall], here: Place
) -> PendingCall:
    if one.task is not None:
        inside = one.task.at.changed(change, one.task.place(here, one.step_id))
        one = replace(one, task=replace(one.task, at=inside))
    return change(one, here)


@dataclass(frozen=True, slots=True)
class Task:
    """Where an agent stands that a task was handed over to.

    `step_ids` are the steps of the handoff, one for each run that has worked on it, the newest
    last, which began at `began_at`. `is_answered`: what it said last is its answer.
    """

    agent_name: str
    step_ids: tuple[str, ...]
    at: Checkpoint = field(default_factory=Checkpoint)
    is_answered: bool = False
    began_at: str | None = None

    def place(self, above: Place, step_id: str | None) -> Place:
        """Where its calls stand; `step_id` is the handoff's in this run."""
        return Place(self.at.step_id, (*above.agents, self.agent_name), step_id)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the loop of one agent is, for the checkpoint of its run.

    `under` is the step of the handoff that it works in, None for the turn's own agent; `above_ms`
    are the times of those that await it, as `elapsed_ms`, the turn's own first.
    """

    at: Checkpoint
    under: str | None = None
    above_ms: tuple[int, ...] = ()
    is_answered: bool = False
