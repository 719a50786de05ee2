"""The words of an event's payload that matter, for each type of event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from xgw import spelling
from xgw.cli import texts
from xgw.queries.wording import compaction_words, counted, joined

Payload = Mapping[str, Any]

QUOTED = 100
"""Characters that are shown of a recorded text."""


def _session(payload: Payload) -> str:
    return joined(*(f"{name} {cut(_text(value))}" for name, value in payload.items()))


def _run(run: Payload) -> str:
    kind = None if run.get("kind") == "first" else run.get("kind")
    number = f"run {run.get('run_index', 0) + 1}"
    return joined(number, kind, run.get("status"), run.get("reason"))


def _delta(delta: Payload) -> str:
    part = f" {delta['index']}" if delta.get("index") else ""
    whole = " so far" if delta.get("replace") else ""
    text = texts.cut(texts.harmless(str(delta.get("text"))).replace("\n", "⏎"), QUOTED)
    return f"{delta.get('kind')}{part}{whole} “{text}”"


def _message(message: Payload) -> str:
    count = message.get("token_count")
    tokens = (
        None if count is None else f"{spelling.count(count, message.get('token_source'))} tokens"
    )
    role = message.get("role") or message.get("kind")
    answers = f"answers {message['tool_call_id']}" if message.get("tool_call_id") else None
    return joined(role, tokens, answers, quoted(message.get("text")))


def _llm_error(error: Payload) -> str:
    status = f"HTTP {error['http_status']}" if error.get("http_status") else None
    return joined(f"attempt {error.get('attempt')}", status, _error_of(error), _what_next(error))


def _what_next(error: Payload) -> str:
    wait = error.get("wait_ms")
    after = f" after {spelling.duration(wait)}" if wait else ""
    target = f" with {error['target']}" if error.get("target") else ""
    named = {"retry": "retry", "fallback": "fallback", "give_up": "gives up"}
    what = named.get(str(error.get("next")), str(error.get("next")))
    return what if what == "gives up" else f"{what}{target}{after}"


def _requested(payload: Payload) -> str:
    return joined(*map(_call, payload.get("calls") or ()))


def _call(call: Payload) -> str:
    broken = "" if call.get("arguments_json_valid", True) else " (no valid JSON)"
    id = f" ({cut(call['tool_call_id'])})" if call.get("tool_call_id") else ""
    return f"{call.get('name')} {cut(call.get('arguments'))}{broken}{id}"


def _results(payload: Payload) -> str:
    results = counted(len(payload.get("tool_call_ids") or ()), "result")
    return joined(f"{results} to the model", _context(payload))


def _approval(payload: Payload) -> str:
    by = f"by {payload['by']}" if payload.get("by") else None
    asking = f"agent {payload['agent_name']}" if payload.get("agent_name") else None
    return joined(_call(payload), asking, payload.get("decision"), by)


def _compacted(payload: Payload) -> str:
    reason = f"because {cut(payload['reason'])}" if payload.get("reason") else None
    told = quoted(payload.get("summary"))
    return joined(compaction_words(payload), payload.get("trigger"), reason, told)


def _limit(payload: Payload) -> str:
    return f"{payload.get('limit')}: {payload.get('value')} of {payload.get('max')}"


def _lagged(payload: Payload) -> str:
    return f"too slow; going on after {payload.get('resume_after')}"


SPELLED: dict[str, Callable[[Payload], str]] = {
    "session.updated": _session,
    "session.deleted": _session,
    "run.started": _run,
    "run.updated": _run,
    "run.completed": _run,
    "step.delta": _delta,
    "message.added": _message,
    "llm.error": _llm_error,
    "tool.requested": _requested,
    "tool.results_sent": _results,
    "tool.approval_requested": _approval,
    "tool.approval_decided": _approval,
    "context.compacted": _compacted,
    "limit.reached": _limit,
    "stream.lagged": _lagged,
}
"""The words of a type whose payload alone says everything."""


# -- parts of lines --------------------------------------------------------------------------------


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def cut(text: Any) -> str | None:
    """A recorded text or value, on one line and not too long."""
    return texts.one_line(_text(text), QUOTED) if text is not None else None


def quoted(text: Any) -> str | None:
    """A recorded text in quotation marks."""
    return f"“{cut(text)}”" if text else None


def _tokens(usage: Payload) -> str | None:
    sent, received = usage.get("input_tokens"), usage.get("output_tokens")
    if sent is None and received is None:
        return None
    source, cached = usage.get("usage_source"), usage.get("cached_tokens")
    hits = f" ({cached:,} cached)" if cached is not None else ""
    return f"{spelling.count(sent, source)}{hits} → {spelling.count(received, source)} tokens"


def _cost(usage: Payload) -> str | None:
    return None if usage.get("cost_usd") is None else spelling.usd(usage["cost_usd"])


def input_words(step: Payload) -> str | None:
    """How much is sent, as far as it is known when a call starts."""
    if step.get("input_tokens") is None:
        return _context(step) if step.get("context_tokens") is not None else None
    return f"{spelling.count(step['input_tokens'], step.get('usage_source'))} tokens in"


def _context(payload: Payload) -> str | None:
    used, window = payload.get("context_tokens"), payload.get("context_window")
    if used is None:
        return None
    return f"context ~{used:,}{f' of {window:,}' if window else ''} tokens"


def attempt_words(step: Payload) -> str | None:
    """Which attempt it is, if it is not the first."""
    number = step.get("attempt") or 1
    if number == 1:
        return None
    waited = step.get("waited_ms")
    after = f" after {spelling.duration(waited)}" if waited else ""
    return f"attempt {number}, {step.get('attempt_reason')}{after}"


def turn_outcome(turn: Payload, served: str) -> list[str | None]:
    """How a turn ended: the parts of a line."""
    cause = turn.get("ended_by")
    return [
        str(turn.get("status")),
        None if cause == "finished" else cause,
        turn.get("finish_reason"),
        served,
        _tokens(turn),
        spelling.duration(turn.get("latency_ms")),
        _cost(turn),
        _counted(turn.get("llm_calls"), "call"),
        _counted(turn.get("attempts"), "attempt") if _wasted(turn) else None,
        _counted(turn.get("tool_calls"), "tool") if turn.get("tool_calls") else None,
        _of_session(turn),
        _error(turn.get("error")),
        quoted(turn.get("final_output")),
    ]


def step_outcome(step: Payload) -> list[str | None]:
    """How a step ended: the parts of a line."""
    first, took = step.get("ttft_ms"), step.get("latency_ms")
    status = step.get("http_status")
    return [
        str(step.get("status")),
        f"HTTP {status}" if status and step.get("status") == "error" else None,
        step.get("finish_reason"),
        _tokens(step),
        f"first token {spelling.duration(first)}" if first is not None else None,
        spelling.duration(took) if took is not None else None,
        _cost(step),
        _error(step.get("error")),
        quoted(step.get("output")),
    ]


def progress(step: Payload) -> list[str | None]:
    """How far a step is: the parts of a line."""
    speed, first = step.get("tokens_per_second"), step.get("ttft_ms")
    sent, received = step.get("input_tokens"), step.get("output_tokens")
    return [
        spelling.duration(step.get("elapsed_ms")),
        f"{spelling.count(sent, step.get('usage_source'))} tokens in" if sent is not None else None,
        f"~{received:,} tokens out" if received is not None else None,
        f"{speed:g}/s" if speed is not None else None,
        f"first token {spelling.duration(first)}" if first is not None else None,
    ]


def _error(error: Any) -> str | None:
    if not error:
        return None
    return _error_of(error) if isinstance(error, Mapping) else cut(error)


def _error_of(error: Payload) -> str | None:
    kind = error.get("error_type") or error.get("type")
    return cut(": ".join(str(part) for part in (kind, error.get("message")) if part))


def _of_session(turn: Payload) -> str | None:
    total = turn.get("session_total_tokens")
    return None if total is None else f"session {total:,} tokens"


def _wasted(turn: Payload) -> bool:
    return bool((turn.get("attempts") or 0) > (turn.get("llm_calls") or 0))


def _counted(count: int | None, noun: str) -> str | None:
    return None if count is None else counted(count, noun)
