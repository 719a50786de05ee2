"""Messages: the history as people see it.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from xgw.recording import sessions
from xgw.recording.facts import MessageFacts, Scope
from xgw.recording.moves import emit
from xgw.store.transaction import Transaction


def add_messages(
    tx: Transaction,
    scope: Scope,
    messages: Sequence[MessageFacts],
    at: datetime.datetime,
    step_id: str | None = None,
) -> None:
    """Items of the history, in order: `message.added` each."""
    if not messages:
        return
    index = _first_index(tx, scope, len(messages))
    for number, message in enumerate(messages, index):
        tx.hold("messages", _row(tx, scope, message, number, at, step_id))
        payload = {
            "message_id": message.id,
            "kind": message.kind,
            "role": message.role,
            "token_count": message.token_count,
            "token_source": message.token_source,
            "tool_call_id": message.tool_call_id,
            "text": message.content,
        }
        emit(tx, scope, "message.added", at, payload, step_id)


def _first_index(tx: Transaction, scope: Scope, count: int) -> int:
    """In its session; in its turn without one."""
    if scope.session_id is not None:
        return sessions.next_message_index(tx, scope, count)
    if tx.is_new("turns", scope.turn_id):
        return tx.number("messages", scope.turn_id, count)
    row = tx.one(
        "SELECT coalesce(max(message_index) + 1, 0) FROM messages WHERE turn_id = ?",
        (scope.turn_id,),
    )
    return row[0] if row else 0


def _row(
    tx: Transaction,
    scope: Scope,
    message: MessageFacts,
    index: int,
    at: datetime.datetime,
    step_id: str | None,
) -> dict[str, Any]:
    return {
        "id": message.id,
        "session_id": scope.session_id,
        "turn_id": scope.turn_id,
        "run_id": scope.run_id,
        "step_id": step_id,
        "message_index": index,
        "kind": message.kind,
        "role": message.role,
        "content": tx.text_column(message.content),
        "parts": tx.json_column(message.parts),
        "tool_calls": message.tool_calls,
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "token_count": message.token_count,
        "token_source": message.token_source,
        "metadata": message.metadata,
        "created_at": at,
    }
