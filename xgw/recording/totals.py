"""Totals of turns and sessions: they only ever change as `x = x + ?`, once at each step's end."""

from __future__ import annotations

from typing import Any

from xgw.recording.facts import AttemptEnd, AttemptFacts, Scope
from xgw.store.transaction import Transaction

COUNTERS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "total_tokens")

# A sum is estimated if any part of it is, and partial if some part is unknown. The look at earlier
# answers is only taken while nothing is known yet.
SOURCE = (
    "usage_source = CASE "
    "WHEN usage_source IS NULL THEN CASE WHEN :source IS NOT NULL AND :source <> 'estimated' "
    "AND EXISTS (SELECT 1 FROM steps WHERE {column} = :id AND step_type = 'llm_call' "
    "AND usage_source IS NULL AND (status = 'success' OR (status <> 'running' "
    "AND coalesce(output_payload, partial_output) IS NOT NULL))) THEN 'partial' ELSE :source END "
    "WHEN 'estimated' IN (usage_source, :source) THEN 'estimated' "
    "WHEN usage_source = :source THEN usage_source ELSE 'partial' END"
)
SUM = "{name} = CASE WHEN :{name} IS NULL THEN {name} ELSE coalesce({name}, 0) + :{name} END"
SUMS = ", ".join(SUM.format(name=name) for name in (*COUNTERS, "cost_usd"))

ADD_TO_TURN = (
    "UPDATE turns SET attempts = attempts + 1, llm_calls = llm_calls + :first{more} WHERE id = :id"
)
ADD_TO_SESSION = (
    "UPDATE sessions SET model = :model, provider_name = :provider_name, "
    "context_tokens = coalesce(:context, context_tokens){more} WHERE id = :id"
)


def add_attempt(tx: Transaction, scope: Scope, attempt: AttemptFacts, end: AttemptEnd) -> None:
    """Add one attempt, a failed one too, to its turn and session."""
    usage = end.usage
    values: dict[str, Any] = {name: getattr(usage, name) for name in COUNTERS}
    values |= {"cost_usd": end.cost_usd, "source": usage.source, "id": scope.turn_id}
    values["first"] = 1 if attempt.attempt == 1 else 0
    tx.execute_named(_statement(ADD_TO_TURN, "turn_id", end), values)
    if scope.session_id is None:
        return
    values |= {
        "id": scope.session_id,
        "model": end.model or attempt.model,
        "provider_name": attempt.provider_name,
        "context": _context_after(end),
    }
    tx.execute_named(_statement(ADD_TO_SESSION, "session_id", end), values)


def _statement(template: str, column: str, end: AttemptEnd) -> str:
    """An attempt that got no answer at all changes no sum."""
    more = f", {SUMS}, {SOURCE.format(column=column)}" if end.answered else ""
    return template.format(more=more)


def _context_after(end: AttemptEnd) -> int | None:
    """What the conversation holds after this call: what was sent and what was answered."""
    if end.usage.input_tokens is None or not end.answered:
        return None
    return end.usage.input_tokens + (end.usage.output_tokens or 0)
