"""Totals of turns and sessions: added to once at each step's end, in its transaction."""

from __future__ import annotations

from operator import attrgetter

from xgw.recording import sessions
from xgw.recording.facts import AttemptEnd, AttemptFacts, Scope
from xgw.store.held import HeldRow
from xgw.store.transaction import Transaction

COUNTERS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "total_tokens")

_counts = attrgetter(*COUNTERS)

UNKNOWN = (
    "SELECT 1 FROM steps WHERE {column} = ? AND step_type = 'llm_call' AND usage_source IS NULL "
    "AND (status = 'success' OR (status <> 'running' "
    "AND coalesce(output_payload, partial_output) IS NOT NULL)) LIMIT 1"
)


def add_attempt(tx: Transaction, scope: Scope, attempt: AttemptFacts, end: AttemptEnd) -> None:
    """Add one attempt, a failed one too, to its turn and session."""
    turn, session = tx.row("turns", scope.turn_id), sessions.row_of(tx, scope)
    if turn is not None:
        alone = turn.get("attempts") == 0
        turn.add({"attempts": 1, "llm_calls": 1 if attempt.attempt == 1 else 0})
        _add_usage(tx, turn, end, column="turn_id", alone=alone)
    if session is not None:
        if attempt.parent_step_id is None and attempt.is_said:
            # Inside of a tool another conversation is held: the session's context is its own.
            model, provider = end.model or attempt.model, attempt.provider_name
            session.set({"model": model, "provider_name": provider, **_context_after(end)})
        alone = session.is_new and session.get("request_count") == 1
        _add_usage(tx, session, end, column="session_id", alone=alone)


def _add_usage(tx: Transaction, row: HeldRow, end: AttemptEnd, *, column: str, alone: bool) -> None:
    """An attempt that got no answer at all changes no sum; `alone` is one with none before it."""
    if not end.answered:
        return
    source, known = end.usage.source, row.get("usage_source")
    if known is None:
        # The look at earlier answers is only taken while nothing is known yet.
        counted = source is not None and source != "estimated"
        partial = counted and not alone and _any_unknown(tx, column, row.get("id"))
        row.set({"usage_source": "partial" if partial else source})
    else:
        row.set({"usage_source": _joined(known, source)})
    row.add({**dict(zip(COUNTERS, _counts(end.usage), strict=True)), "cost_usd": end.cost_usd})


def _joined(known: str, source: str | None) -> str:
    """A sum is estimated if any part of it is, and partial if some part is unknown."""
    if "estimated" in (known, source):
        return "estimated"
    return known if known == source else "partial"


def _any_unknown(tx: Transaction, column: str, owner: str) -> bool:
    """Whether an answer was recorded whose usage nobody knows."""
    if tx.stored(UNKNOWN.format(column=column), (owner,)):
        return True
    return any(_is_unknown(step) for step in tx.held("steps") if step.get(column) == owner)


def _is_unknown(step: HeldRow) -> bool:
    if step.get("step_type") != "llm_call" or step.get("usage_source") is not None:
        return False
    status = step.get("status")
    answered = step.get("output_payload") is not None or step.get("partial_output") is not None
    return status == "success" or (status != "running" and answered)


def _context_after(end: AttemptEnd) -> dict[str, int]:
    """What the conversation holds after this call: what was sent and what was answered."""
    if end.usage.input_tokens is None or not end.answered:
        return {}
    return {"context_tokens": end.usage.input_tokens + (end.usage.output_tokens or 0)}
