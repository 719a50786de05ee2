"""Checkpoints: from where an agent's run can be picked up, whatever became of its process.

`{next, step_id, pending_tool_calls, messages_upto, elapsed_ms, busy_ms, at}`. `next` is what comes:
`llm_call`, `tools` (of the answer of `step_id`), or `decisions` (a person's, before those tools).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from xgw import clock
from xgw.recording import sessions
from xgw.recording.facts import Scope
from xgw.store.transaction import Transaction
from xgw.values import ToolCall

State = Literal["open", "awaits_approval", "outcome_unknown", "ended"]
Verdict = Literal["approve", "deny", "result"]
Next = Literal["llm_call", "tools", "decisions"]

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
    `outcome_unknown`: it was under way when its process ended.
    """

    call: ToolCall
    state: State = "open"
    decision: Decision | None = None
    step_id: str | None = None
    result: str | None = None

    @property
    def id(self) -> str:
        """The call's id; each call of an agent has one."""
        return self.call.tool_call_id or ""


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
        """The calls that wait for a person."""
        return tuple(one for one in self.pending if one.state in UNDECIDED)

    @property
    def next(self) -> Next:
        """What comes next."""
        if self.undecided:
            return "decisions"
        return "tools" if self.pending else "llm_call"


def save(
    tx: Transaction,
    scope: Scope,
    checkpoint: Checkpoint,
    at: datetime.datetime,
    *,
    upto: int | None = None,
) -> dict[str, Any]:
    """The run's checkpoint from now on; unless `upto` is given, what is said by now belongs to it.

    Returns it as it is kept.
    """
    if upto is None:
        session = sessions.row_of(tx, scope)
        upto = session.get("message_count") - 1 if session is not None else -1
    shown = {
        "next": checkpoint.next,
        "step_id": checkpoint.step_id,
        "pending_tool_calls": [_shown(tx, one) for one in checkpoint.pending],
        "messages_upto": upto,
        "elapsed_ms": checkpoint.elapsed_ms,
        "busy_ms": checkpoint.busy_ms,
        "at": clock.to_rfc3339(at),
    }
    tx.change("runs", scope.run_id, {"checkpoint": shown, "heartbeat_at": at})
    return shown


def read(tx: Transaction, run_id: str) -> Checkpoint:
    """The checkpoint of a run in this transaction; an empty one where it has none."""
    row = tx.row("runs", run_id)
    kept = row.get("checkpoint") if row is not None else None
    found = orjson.loads(kept) if isinstance(kept, str) else kept
    texts = [tx.text_in(one.get("result")) for one in (found or {}).get("pending_tool_calls", ())]
    return parse(found, texts)


def parse(kept: Mapping[str, Any] | None, results: Iterable[str | None]) -> Checkpoint:
    """A checkpoint as it was kept; `results` are the texts of its calls, whole."""
    if not kept:
        return Checkpoint()
    pending = tuple(
        _pending(one, result) for one, result in zip(_pending_of(kept), results, strict=True)
    )
    return Checkpoint(
        kept.get("step_id"),
        pending,
        kept.get("elapsed_ms", 0),
        kept.get("busy_ms", 0),
        kept.get("messages_upto"),
        kept.get("at"),
    )


def list_undecided(kept: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The calls in a checkpoint, as it is kept, that wait for a person."""
    return [one for one in _pending_of(kept or {}) if one["state"] in UNDECIDED]


def _pending_of(kept: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return kept.get("pending_tool_calls") or []


def _shown(tx: Transaction, one: PendingCall) -> dict[str, Any]:
    call = one.call
    shown: dict[str, Any] = {
        "tool_call_id": call.tool_call_id,
        "name": call.name,
        "arguments": call.arguments,
        "arguments_json_valid": call.arguments_json_valid,
        "incomplete": call.incomplete,
        "state": one.state,
    }
    if one.decision is not None:
        shown["decision"] = one.decision.to_json()
    if one.state == "ended":
        shown |= {"step_id": one.step_id, "result": tx.text_column(one.result)}
    return shown


def _pending(kept: Mapping[str, Any], result: str | None) -> PendingCall:
    call = ToolCall(
        kept["tool_call_id"],
        kept["name"],
        kept["arguments"],
        kept["arguments_json_valid"],
        kept["incomplete"],
    )
    decided = dict(kept["decision"]) if kept.get("decision") else None
    decision = None
    if decided is not None:
        decision = Decision(decided.pop("decision"), decided.pop("by"), **decided)
    return PendingCall(call, kept["state"], decision, kept.get("step_id"), result)
