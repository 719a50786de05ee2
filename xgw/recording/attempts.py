"""`llm_call` steps: each try at a provider, its request log, its end.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

from typing import Any

from xgw.recording import sessions, totals
from xgw.recording.facts import AttemptEnd, AttemptFacts, Retry, Scope
from xgw.recording.moves import apply, emit, error_payload, step_head
from xgw.store.transaction import Transaction


def start_attempt(tx: Transaction, scope: Scope, attempt: AttemptFacts) -> None:
    """One try at a provider: its step, its request log, `step.started`."""
    at, request = attempt.started_at, attempt.request
    tx.hold(
        "steps",
        {
            **step_head(tx, scope, attempt.step_id, "llm_call", at),
            "parent_step_id": attempt.parent_step_id,
            "name": attempt.model,
            "attempt": attempt.attempt,
            "attempt_reason": attempt.reason,
            "waited_ms": attempt.waited_ms,
            "provider_id": attempt.provider_name,
            "provider_name": attempt.provider_name,
            "model": attempt.model,
            "model_requested": attempt.model_requested,
            "input_payload": request.payload,
            "history": attempt.history,
            "input_tokens": attempt.input_tokens,
            "usage_source": None if attempt.input_tokens is None else "estimated",
            "context_tokens": attempt.context_tokens,
            "metadata": attempt.metadata,
        },
    )
    _log_request(tx, scope, attempt)
    payload = {
        "step_type": "llm_call",
        "name": attempt.model,
        "provider_name": attempt.provider_name,
        "model": attempt.model,
        "attempt": attempt.attempt,
        "attempt_reason": attempt.reason,
        "waited_ms": attempt.waited_ms,
        "input_tokens": attempt.input_tokens,
        "usage_source": None if attempt.input_tokens is None else "estimated",
        "context_tokens": attempt.context_tokens,
        "context_window": attempt.context_window,
    }
    if attempt.parent_step_id is not None:
        agent_name = (attempt.metadata or {}).get("agent_name")
        payload |= {"parent_step_id": attempt.parent_step_id, "agent_name": agent_name}
    if attempt.metadata and "purpose" in attempt.metadata:
        payload["purpose"] = attempt.metadata["purpose"]
    emit(tx, scope, "step.started", at, payload, attempt.step_id)


def _log_request(tx: Transaction, scope: Scope, attempt: AttemptFacts) -> None:
    request = attempt.request
    tx.hold(
        "request_logs",
        {
            "id": request.id,
            "project_id": scope.project_id,
            "session_id": scope.session_id,
            "turn_id": scope.turn_id,
            "run_id": scope.run_id,
            "step_id": attempt.step_id,
            "trace_id": scope.trace_id,
            "provider_id": attempt.provider_name,
            "provider_name": attempt.provider_name,
            "endpoint": request.endpoint,
            "method": request.method,
            "url": request.url,
            "model": attempt.model,
            "stream": int(request.stream),
            "request_headers": request.headers,
            "request_payload": request.payload,
            "client": request.client,
            "bytes_sent": request.bytes_sent,
            "started_at": attempt.started_at,
        },
    )
    session = sessions.row_of(tx, scope)
    if session is not None:
        session.add({"request_count": 1})


def report_failure(
    tx: Transaction, scope: Scope, attempt: AttemptFacts, end: AttemptEnd, retry: Retry
) -> None:
    """`llm.error`: an attempt failed, and what follows."""
    payload = {
        "error_type": end.error_type,
        "message": end.error_message,
        "http_status": end.http_status,
        "attempt": attempt.attempt,
        "will_retry": retry.next != "give_up",
        "wait_ms": retry.wait_ms,
        "next": retry.next,
        "target": retry.target,
    }
    emit(tx, scope, "llm.error", end.ended_at, payload, attempt.step_id)


def end_attempt(tx: Transaction, scope: Scope, attempt: AttemptFacts, end: AttemptEnd) -> None:
    """The end of a try: its step, its request log, the totals above it; `step.completed`."""
    usage = end.usage
    apply(
        tx,
        "step",
        attempt.step_id,
        end.status,
        {
            "model": end.model or attempt.model,
            "output_payload": end.output,
            "partial_output": None if end.status == "success" else end.partial_output,
            "tool_calls": end.tool_calls,
            "error_type": end.error_type,
            "error_message": end.error_message,
            "http_status": end.http_status,
            "finish_reason": end.finish_reason,
            "finish_reason_raw": end.finish_reason_raw,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "total_tokens": usage.total_tokens,
            "usage_source": usage.source,
            "usage_raw": usage.raw,
            "cost_usd": end.cost_usd,
            "context_tokens": end.context_tokens,
            "ttft_ms": end.ttft_ms,
            "latency_ms": end.latency_ms,
            "ended_at": end.ended_at,
        },
    )
    _close_request(tx, attempt, end)
    totals.add_attempt(tx, scope, attempt, end)
    emit(tx, scope, "step.completed", end.ended_at, _attempt_payload(end), attempt.step_id)


def _close_request(tx: Transaction, attempt: AttemptFacts, end: AttemptEnd) -> None:
    tx.change(
        "request_logs",
        attempt.request.id,
        {
            "status_code": end.wire_status,
            "response_headers": end.response_headers,
            "response_body": end.body,
            "frames": end.frames,
            "error_body": end.error_body,
            "model": end.model or attempt.model,
            "error_type": end.error_type,
            "error_message": end.error_message,
            "input_tokens": end.usage.input_tokens,
            "output_tokens": end.usage.output_tokens,
            "bytes_received": end.bytes_received,
            "chunks": end.chunks,
            "truncated": int(end.truncated),
            "first_byte_at": end.first_byte_at,
            "ended_at": end.ended_at,
            "latency_ms": end.latency_ms,
            "ttft_ms": end.ttft_ms,
        },
    )


def _attempt_payload(end: AttemptEnd) -> dict[str, Any]:
    usage = end.usage
    known = usage.input_tokens is not None and usage.cached_tokens is not None
    return {
        "status": end.status,
        "error": error_payload(end.error_type, end.error_message),
        "http_status": end.http_status,
        "finish_reason": end.finish_reason,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "uncached_tokens": usage.input_tokens - usage.cached_tokens if known else None,  # type: ignore[operator]
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "usage_source": usage.source,
        "cost_usd": end.cost_usd,
        "ttft_ms": end.ttft_ms,
        "latency_ms": end.latency_ms,
    }
