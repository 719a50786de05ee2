"""Checkpoints: from where an agent's run can be picked up, whatever became of its process.

`{next, step_id, pending_tool_calls, messages_upto, elapsed_ms, busy_ms, at}`. `next` is what comes:
`llm_call`, `tools` (of the answer of `step_id`), or `decisions` (a person's, before those tools).

A call that handed a task over has a `task`: where the agent stands that works on it, with
`agent_name`, `step_ids` and `began_at` in the place of the last two; its `next` is `answer` once
that is given.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from xgw import clock
from xgw.recording import sessions
from xgw.recording.facts import Scope, ToolStart
from xgw.recording.pending import UNDECIDED, Checkpoint, Decision, Next, PendingCall, Progress, Task
from xgw.store.transaction import Transaction
from xgw.values import ToolCall

Json = dict[str, Any]
"""A checkpoint, or the task of a call in one, as JSON."""


def save(
    tx: Transaction,
    scope: Scope,
    checkpoint: Checkpoint,
    at: datetime.datetime,
    *,
    upto: int | None = None,
) -> Json:
    """The run's checkpoint from now on; unless `upto` is given, what is said by now belongs to it.

    Returns it as it is kept.
    """
    upto = _newest_message(tx, scope) if upto is None else upto
    root = _node(tx, replace(checkpoint, messages_upto=upto))
    return _keep(tx, scope, [root | {"busy_ms": checkpoint.busy_ms}], at)


def update(tx: Transaction, scope: Scope, progress: Progress, at: datetime.datetime) -> Json:
    """What one agent's loop tells of itself; how far others are that it handed tasks over to is for
    them to tell. Returns the run's checkpoint as it is kept."""
    chain = _chain(_read(tx, scope.run_id), progress.under)
    if not chain:
        return {}
    before = chain[-1]
    told = replace(progress.at, messages_upto=_newest_message(tx, scope))
    node = _node(tx, told, is_answered=progress.is_answered)
    if node["step_id"] == before.get("step_id"):
        _keep_tasks(node, before)
    before.update(node)
    if progress.under is None:
        before["busy_ms"] = progress.at.busy_ms
    for one, elapsed_ms in zip(chain[:-1], progress.above_ms, strict=True):
        one["elapsed_ms"] = elapsed_ms
    return _keep(tx, scope, chain, at)


def begin_tasks(
    tx: Transaction,
    scope: Scope,
    under: str | None,
    starts: Iterable[ToolStart],
    at: datetime.datetime,
) -> None:
    """Tasks are handed over by the agent that works `under` this step, as `Progress` has it."""
    handed = {start.tool_call_id: start for start in starts if start.partner is not None}
    chain = _chain(_read(tx, scope.run_id), under) if handed else []
    if not chain:
        return
    for one in _pending_of(chain[-1]):
        if (start := handed.get(one["tool_call_id"])) is not None:
            task = one.setdefault("task", _task(tx, Task(start.partner or "", ())))
            task["step_ids"] = [*task["step_ids"], start.step_id]
            task["began_at"] = clock.to_rfc3339(at)
            one["step_id"] = start.step_id
    tx.change("runs", scope.run_id, {"checkpoint": chain[0]})


def read(tx: Transaction, run_id: str) -> Checkpoint:
    """The checkpoint of a run in this transaction; an empty one where it has none."""
    kept = _read(tx, run_id)
    return parse(kept, [tx.text_in(one.get("result")) for one in entries_of(kept)])


def parse(kept: Mapping[str, Any] | None, results: Iterable[str | None]) -> Checkpoint:
    """A checkpoint as it was kept; `results` are the texts of its `entries_of`, whole."""
    return _parsed(kept or {}, iter(results))


def entries_of(kept: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The calls in a checkpoint as it is kept, each before those of the task that it began."""
    for one in _pending_of(kept or {}):
        yield one
        yield from entries_of(one.get("task"))


def list_undecided(kept: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The calls in a checkpoint, as it is kept, that wait for a person.

    Each with `asked_by`, the step of the answer that asked for it, and the `agent_name` of whom a
    task was handed over to, None for a call of the turn's own agent.
    """
    return list(_undecided(kept or {}, None))


def reason_of(one: Mapping[str, Any]) -> str:
    """Why a call, as it is kept, waits for a person: `approval` or `outcome_unknown`."""
    return "approval" if one["state"] == "awaits_approval" else str(one["state"])


def _undecided(node: Mapping[str, Any], agent_name: str | None) -> Iterator[dict[str, Any]]:
    for one in _pending_of(node):
        if one["state"] in UNDECIDED:
            yield {**one, "asked_by": node.get("step_id"), "agent_name": agent_name}
        elif (task := one.get("task")) is not None:
            yield from _undecided(task, task["agent_name"])


# -- as it is kept ---------------------------------------------------------------------------------


def _read(tx: Transaction, run_id: str) -> Json:
    """A copy of a run's checkpoint, to be changed."""
    row = tx.row("runs", run_id)
    kept = row.get("checkpoint") if row is not None else None
    found: Json = orjson.loads(kept if isinstance(kept, str) else orjson.dumps(kept or {}))
    return found


def _keep(tx: Transaction, scope: Scope, chain: list[Json], at: datetime.datetime) -> Json:
    """The first of these is the run's checkpoint; the last one has changed."""
    for node in chain[::-1]:
        node["next"] = _next_of(node)
    shown = {**chain[0], "at": clock.to_rfc3339(at)}
    tx.change("runs", scope.run_id, {"checkpoint": shown, "heartbeat_at": at})
    return shown


def _keep_tasks(node: Json, before: Json) -> None:
    """The same calls as before go on with their tasks."""
    known = {one["tool_call_id"]: one for one in _pending_of(before) if "task" in one}
    for one in _pending_of(node):
        if one["state"] == "open" and (task := known.get(one["tool_call_id"])) is not None:
            one.update({name: task[name] for name in ("step_id", "task") if name in task})


def _chain(node: Json, under: str | None) -> list[Json]:
    """What leads from here to the task whose handoff is the step `under`; [] if nothing does."""
    if under is None:
        return [node]
    for one in _pending_of(node):
        if (task := one.get("task")) is not None:
            found = [task] if one.get("step_id") == under else _chain(task, under)
            if found:
                return [node, *found]
    return []


def _newest_message(tx: Transaction, scope: Scope) -> int:
    session = sessions.row_of(tx, scope)
    return session.get("message_count") - 1 if session is not None else -1


def _next_of(node: Json) -> Next:
    pending = _pending_of(node)
    if not pending:
        return "answer" if node.get("next") == "answer" else "llm_call"
    return "decisions" if any(_undecided(node, None)) else "tools"


def _pending_of(kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    return kept.get("pending_tool_calls") or []


def _node(tx: Transaction, checkpoint: Checkpoint, *, is_answered: bool = False) -> Json:
    return {
        "next": "answer" if is_answered else "llm_call",
        "step_id": checkpoint.step_id,
        "pending_tool_calls": [_shown(tx, one) for one in checkpoint.pending],
        "messages_upto": checkpoint.messages_upto,
        "elapsed_ms": checkpoint.elapsed_ms,
    }


def _task(tx: Transaction, task: Task) -> Json:
    node = _node(tx, task.at, is_answered=task.is_answered)
    node["next"] = _next_of(node)
    told = {"agent_name": task.agent_name, "step_ids": list(task.step_ids)}
    return {**node, **told, "began_at": task.began_at}


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
        return shown | {"step_id": one.step_id, "result": tx.text_column(one.result)}
    if one.task is not None:
        shown |= {"step_id": one.step_id, "task": _task(tx, one.task)}
    return shown


def _parsed(kept: Mapping[str, Any], results: Iterator[str | None]) -> Checkpoint:
    return Checkpoint(
        kept.get("step_id"),
        tuple(_pending(one, results) for one in _pending_of(kept)),
        kept.get("elapsed_ms", 0),
        kept.get("busy_ms", 0),
        kept.get("messages_upto"),
        kept.get("at"),
    )


def _pending(kept: Mapping[str, Any], results: Iterator[str | None]) -> PendingCall:
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
    state, result, task = kept["state"], next(results), kept.get("task")
    known = None if task is None else _parsed_task(task, results)
    return PendingCall(call, state, decision, kept.get("step_id"), result, known)


def _parsed_task(kept: Mapping[str, Any], results: Iterator[str | None]) -> Task:
    at, step_ids = _parsed(kept, results), tuple(kept["step_ids"])
    is_answered = kept["next"] == "answer"
    return Task(kept["agent_name"], step_ids, at, is_answered, kept.get("began_at"))
