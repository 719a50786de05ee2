"""Calls of an agent's run whose process is gone, or that nobody is to answer any more.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import replace

from xgw import ids
from xgw.recording import checkpoints, messages, tools
from xgw.recording.facts import MessageFacts, Scope, ToolEnd, ToolStart
from xgw.recording.pending import Checkpoint, PendingCall, Place
from xgw.store.transaction import Transaction

NEWEST_STEP = (
    "SELECT id FROM steps WHERE run_id = ? AND parent_step_id IS ? AND tool_call_id = ? "
    "AND step_type <> 'llm_call' ORDER BY step_index DESC LIMIT 1"
)
IN_RUN = "SELECT 1 FROM steps WHERE id = ? AND run_id = ?"


def interrupted(tx: Transaction, scope: Scope) -> Checkpoint:
    """The run's checkpoint once its process is gone: calls that had begun may have had effects.

    A task that was handed over goes on where it was.
    """

    def after(one: PendingCall, place: Place) -> PendingCall:
        if one.task is not None or one.state != "open":
            return one
        began = _find_step(tx, scope, place, one)
        return one if began is None else replace(one, state="outcome_unknown")

    return checkpoints.read(tx, scope.run_id).changed(after)


def drop_tasks(tx: Transaction, scope: Scope, handoffs: Iterable[ToolEnd]) -> None:
    """These handoffs end before their tasks are done: so do the calls in those that never began."""
    ends = {end.step_id: end for end in handoffs}
    for one in checkpoints.read(tx, scope.run_id).handed_over():
        if (end := ends.get(one.step_id or "")) is not None:
            _drop_inside(tx, scope, one, end.error_message or "", end.ended_at)


def answer_all(
    tx: Transaction, scope: Scope, kept: Checkpoint, reason: str, at: datetime.datetime
) -> None:
    """A run ends in the middle of its calls: each gets a result, so that the session can go on."""
    place = Place(kept.step_id)
    for one in kept.pending:
        step_id, text = one.step_id, one.result
        if one.state != "ended":
            step_id = _find_step(tx, scope, place, one) or _drop(tx, scope, place, one, reason, at)
            text = f"Error: no result: {reason}"
        said = MessageFacts(
            ids.mint("msg"), "tool_result", "tool", text, tool_call_id=one.id, name=one.call.name
        )
        messages.add_messages(tx, scope, [said], at, step_id)


def drop_inside(
    tx: Transaction, scope: Scope, kept: Checkpoint, reason: str, at: datetime.datetime
) -> None:
    """The same for the calls of tasks that were handed over, which nobody gets a result of."""
    for one in kept.pending:
        _drop_inside(tx, scope, one, reason, at)


def _drop_inside(
    tx: Transaction, scope: Scope, handed: PendingCall, reason: str, at: datetime.datetime
) -> None:
    if handed.task is None or handed.step_id is None:
        return
    for one, place in handed.task.at.calls(handed.task.place(Place(None), handed.step_id)):
        if one.state != "ended" and _find_step(tx, scope, place, one) is None:
            _drop(tx, scope, place, one, reason, at)


def _above(tx: Transaction, scope: Scope, place: Place) -> str | None:
    """The step that calls stand under in this run: that of their answer, or of the handoff, where
    an earlier run has the answer."""
    if place.under is None or tx.one(IN_RUN, (place.step_id, scope.run_id)):
        return place.step_id
    return place.under


def _find_step(tx: Transaction, scope: Scope, place: Place, one: PendingCall) -> str | None:
    """The step in which a call began in this run, if it did."""
    row = tx.one(NEWEST_STEP, (scope.run_id, _above(tx, scope, place), one.id))
    return str(row[0]) if row is not None else None


def _drop(
    tx: Transaction,
    scope: Scope,
    place: Place,
    one: PendingCall,
    reason: str,
    at: datetime.datetime,
) -> str:
    """A call that never began is begun in the record, so that it can end there."""
    start = ToolStart(
        ids.mint("step"),
        one.id,
        one.call.name,
        one.call.arguments,
        "server",
        step_type="tool_call" if one.task is None else "handoff",
        partner=None if one.task is None else one.task.agent_name,
    )
    tools.start_tool(tx, scope, start, at, parent_step_id=_above(tx, scope, place))
    end = ToolEnd(
        start.step_id,
        one.id,
        "cancelled",
        None,
        None,
        0,
        at,
        error_type="no_result",
        error_message=reason,
    )
    tools.end_tool(tx, scope, end)
    return start.step_id
