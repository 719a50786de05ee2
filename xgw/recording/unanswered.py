"""Calls of an agent's run whose process is gone, or that nobody is to answer any more.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from dataclasses import replace

from xgw import ids
from xgw.recording import checkpoints, messages, tools
from xgw.recording.checkpoints import Checkpoint, PendingCall
from xgw.recording.facts import MessageFacts, Scope, ToolEnd, ToolStart
from xgw.store.transaction import Transaction

NEWEST_STEP = (
    "SELECT id FROM steps WHERE run_id = ? AND parent_step_id IS ? AND tool_call_id = ? "
    "AND step_type <> 'llm_call' ORDER BY step_index DESC LIMIT 1"
)


def interrupted(tx: Transaction, scope: Scope) -> Checkpoint:
    """The run's checkpoint once its process is gone: calls that had begun may have had effects."""
    kept = checkpoints.read(tx, scope.run_id)
    pending = (_interrupted(tx, scope, kept, one) for one in kept.pending)
    return replace(kept, pending=tuple(pending))


def _interrupted(tx: Transaction, scope: Scope, kept: Checkpoint, one: PendingCall) -> PendingCall:
    if one.state != "open" or _find_step(tx, scope, kept, one) is None:
        return one
    return replace(one, state="outcome_unknown")


def answer_all(
    tx: Transaction, scope: Scope, kept: Checkpoint, reason: str, at: datetime.datetime
) -> None:
    """A run ends in the middle of its calls: each gets a result, so that the session can go on."""
    for one in kept.pending:
        step_id, text = one.step_id, one.result
        if one.state != "ended":
            step_id = _find_step(tx, scope, kept, one) or _drop(tx, scope, kept, one, reason, at)
            text = f"Error: no result: {reason}"
        said = MessageFacts(
            ids.mint("msg"), "tool_result", "tool", text, tool_call_id=one.id, name=one.call.name
        )
        messages.add_messages(tx, scope, [said], at, step_id)


def _find_step(tx: Transaction, scope: Scope, kept: Checkpoint, one: PendingCall) -> str | None:
    """The step in which a call began in this run, if it did."""
    row = tx.one(NEWEST_STEP, (scope.run_id, kept.step_id, one.id))
    return str(row[0]) if row is not None else None


def _drop(
    tx: Transaction,
    scope: Scope,
    kept: Checkpoint,
    one: PendingCall,
    reason: str,
    at: datetime.datetime,
) -> str:
    """A call that never began is begun in the record, so that it can end there."""
    start = ToolStart(ids.mint("step"), one.id, one.call.name, one.call.arguments, "server")
    tools.start_tool(tx, scope, start, at, parent_step_id=kept.step_id)
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
