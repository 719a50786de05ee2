"""Totals of turns and sessions: they only ever change as `x = x + ?`, once at each step's end."""

from __future__ import annotations

from xgw.recording.facts import AttemptEnd, AttemptFacts, Scope
from xgw.store.transaction import Transaction

COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "total_tokens",
    "cost_usd",
)


def add_attempt(tx: Transaction, scope: Scope, attempt: AttemptFacts, end: AttemptEnd) -> None:
    """Add one attempt, a failed one too, to its turn and session."""
    first = 1 if attempt.attempt == 1 and attempt.reason == "initial" else 0
    tx.execute(
        "UPDATE turns SET attempts = attempts + 1, llm_calls = llm_calls + ? WHERE id = ?",
        (first, scope.turn_id),
    )
    _add(tx, "turns", "turn_id", scope.turn_id, end)
    if scope.session_id is None:
        return
    _add(tx, "sessions", "session_id", scope.session_id, end)
    last = {"model": end.model or attempt.model, "provider_name": attempt.provider_name}
    used = _context_after(end)
    if used is not None:
        tx.update("sessions", {**last, "context_tokens": used}, {"id": scope.session_id})
    else:
        tx.update("sessions", last, {"id": scope.session_id})


def combine(old: str | None, new: str | None) -> str | None:
    """The source of a sum: estimated if any part is, partial if some part is unknown."""
    if "estimated" in (old, new):
        return "estimated"
    if old == new:
        return old
    return "partial"


def _add(tx: Transaction, table: str, column: str, row_id: str, end: AttemptEnd) -> None:
    usage = end.usage
    values = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.reasoning_tokens,
        usage.total_tokens,
        end.cost_usd,
    )
    counted = [
        (name, value) for name, value in zip(COUNTERS, values, strict=True) if value is not None
    ]
    sets = [f"{name} = coalesce({name}, 0) + ?" for name, _ in counted]
    params: list[object] = [value for _, value in counted]
    if end.answered:
        row = tx.one(f"SELECT usage_source FROM {table} WHERE id = ?", (row_id,))
        known = row[0] if row else None
        sets.append("usage_source = ?")
        params.append(_source(tx, column, row_id, known, usage.source))
    if sets:
        tx.execute(f"UPDATE {table} SET {', '.join(sets)} WHERE id = ?", (*params, row_id))


def _source(
    tx: Transaction, column: str, row_id: str, old: str | None, new: str | None
) -> str | None:
    if old is not None:
        return combine(old, new)
    unknown_before = tx.one(
        f"SELECT 1 FROM steps WHERE {column} = ? AND step_type = 'llm_call' AND status = 'success' "
        "AND usage_source IS NULL LIMIT 1",
        (row_id,),
    )
    return combine(None, new) if unknown_before and new is not None else new


def _context_after(end: AttemptEnd) -> int | None:
    """What the conversation holds after this call: what was sent and what was answered."""
    if end.usage.input_tokens is None or not end.answered:
        return None
    return end.usage.input_tokens + (end.usage.output_tokens or 0)
