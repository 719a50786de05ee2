"""An event as one line: when, whose, what, and the words that matter."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from xgw import clock
from xgw.cli import spelling, texts
from xgw.cli.pages import joined
from xgw.cli.refs import SHORT_DIGITS
from xgw.cli.terminal import Role, Screen

Event = Mapping[str, Any]
Payload = Mapping[str, Any]

TYPE_CELLS = 17
QUOTED = 100
LONGEST = 4000
REMEMBERED = 10_000

_ROLES: dict[str, Role] = {
    "llm.error": "bad",
    "limit.reached": "waiting",
    "tool.requested": "accent",
    "tool.results_sent": "accent",
    "step.delta": "faint",
    "step.progress": "faint",
    "stream.lagged": "waiting",
}
_STATUS_ROLES: dict[str, Role] = {"success": "good", "error": "bad", "waiting_tool": "waiting"}


class EventLines:
    """Spells events; remembers what steps and sessions are called from their first event on."""

    def __init__(
        self, screen: Screen, demos: frozenset[str], session_key: Callable[[str], str | None]
    ) -> None:
        self._screen = screen
        self._demos = demos
        self._session_key = session_key
        self._steps: OrderedDict[str, str] = OrderedDict()
        self._keys: OrderedDict[str, str] = OrderedDict()

    def spell(self, event: Event) -> str:
        """One line, cut to the terminal, with nothing in it that could do harm."""
        type, payload = str(event["type"]), event["payload"]
        words = texts.one_line(self._words(type, event, payload), LONGEST)
        owner = (event["turn_id"] or event["session_id"] or "")[-SHORT_DIGITS:]
        head = f"{spelling.time_of_day(clock.parse_time(event['at']))}  {owner:{SHORT_DIGITS}}  "
        named = f"{texts.one_line(type, LONGEST):<{TYPE_CELLS}}"
        if self._screen.width is not None:
            words = texts.cut(words, max(1, self._screen.width - len(head) - len(named) - 2))
        paint = self._screen.paint
        line = f"{paint(head, 'faint')}{paint(named, _role(type, payload))}  {words}"
        return line.rstrip()

    def _words(self, type: str, event: Event, payload: Payload) -> str:
        spelled = _SPELLED.get(type)
        if spelled is not None:
            return spelled(payload)
        match type:
            case "session.created":
                key = _remember(self._keys, event["session_id"], payload.get("session_key"))
                return joined(key, payload.get("model"), f"named by {payload.get('source')}")
            case "turn.started" | "turn.queued" | "turn.updated":
                return joined(self._turn(event, payload), _quoted(payload.get("user_input")))
            case "turn.completed":
                return joined(self._turn(event, payload), *self._outcome(payload))
            case "step.started":
                return self._step_started(event, payload)
            case "step.completed":
                return joined(self._steps.get(event["step_id"] or ""), *_step_outcome(payload))
            case "step.progress":
                return joined(self._steps.get(event["step_id"] or ""), *_progress(payload))
        return orjson.dumps(payload).decode()

    def _turn(self, event: Event, payload: Payload) -> str:
        cause = f"reopened by {payload['cause']}" if payload.get("cause") else None
        if event["session_id"] is None:
            return joined("no session", cause)
        key = self._keys.get(event["session_id"])
        if key is None:
            found = self._session_key(event["session_id"]) or event["session_id"]
            key = _remember(self._keys, event["session_id"], found)
        return joined(f"{key} turn {payload['turn_index'] + 1}", cause)

    def _outcome(self, turn: Payload) -> list[str | None]:
        cause = turn.get("ended_by")
        return [
            str(turn.get("status")),
            None if cause == "finished" else cause,
            turn.get("finish_reason"),
            self._served(turn.get("final_provider_name"), turn.get("final_model")),
            _tokens(turn),
            spelling.duration(turn.get("latency_ms")),
            _cost(turn),
            _plural(turn.get("llm_calls"), "call"),
            _plural(turn.get("attempts"), "attempt") if _wasted(turn) else None,
            _plural(turn.get("tool_calls"), "tool") if turn.get("tool_calls") else None,
            _error(turn.get("error")),
            _quoted(turn.get("final_output")),
        ]

    def _step_started(self, event: Event, step: Payload) -> str:
        if step.get("step_type") == "llm_call":
            name = self._served(step.get("provider_name"), step.get("model") or step.get("name"))
            words = [_attempt(step), _input(step)]
        else:
            name = f"{step.get('step_type')} {step.get('name')}"
            words = [_cut(step.get("arguments"))]
        _remember(self._steps, event["step_id"], name)
        return joined(name, *words)

    def _served(self, provider: Any, model: Any) -> str:
        name = "/".join(part for part in (provider, model) if part)
        return f"{name} (scripted)" if provider in self._demos else name


def _remember(names: OrderedDict[str, str], id: str, name: Any) -> str:
    names[id] = str(name or id)
    if len(names) > REMEMBERED:
        names.popitem(last=False)
    return names[id]


def _role(type: str, payload: Payload) -> Role:
    known = _ROLES.get(type)
    return known if known is not None else _STATUS_ROLES.get(str(payload.get("status")), "plain")


# -- the words of one type each --------------------------------------------------------------------


def _session(payload: Payload) -> str:
    return joined(*(f"{name} {_cut(_text(value))}" for name, value in payload.items()))


def _run(run: Payload) -> str:
    kind = None if run.get("kind") == "first" else run.get("kind")
    number = f"run {run.get('run_index', 0) + 1}"
    return joined(number, kind, run.get("status"), run.get("reason"))


def _delta(delta: Payload) -> str:
    part = f" {delta['index']}" if delta.get("index") else ""
    whole = " so far" if delta.get("replace") else ""
    return f"{delta.get('kind')}{part}{whole} {_quoted(delta.get('text'))}"


def _message(message: Payload) -> str:
    count = message.get("token_count")
    tokens = None if count is None else f"{spelling.count(count)} tokens"
    role = message.get("role") or message.get("kind")
    answers = f"answers {message['tool_call_id']}" if message.get("tool_call_id") else None
    return joined(role, tokens, answers, _quoted(message.get("text")))


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
    return f"{call.get('name')} {_cut(call.get('arguments'))}{broken}"


def _results(payload: Payload) -> str:
    count = len(payload.get("tool_call_ids") or ())
    return joined(f"{count} result{'' if count == 1 else 's'} to the model", _context(payload))


def _approval(payload: Payload) -> str:
    by = f"by {payload['by']}" if payload.get("by") else None
    return joined(_call(payload), payload.get("decision"), by)


def _compacted(payload: Payload) -> str:
    before, after = payload.get("before_tokens"), payload.get("after_tokens")
    sizes = f"{spelling.count(before)} → {spelling.count(after)} tokens"
    count = len(payload.get("compacted_message_ids") or ())
    return joined(sizes, payload.get("trigger"), f"{count} messages", _quoted(payload.get("summary")))


def _limit(payload: Payload) -> str:
    return f"{payload.get('limit')}: {payload.get('value')} of {payload.get('max')}"


def _lagged(payload: Payload) -> str:
    return f"too slow; going on after {payload.get('resume_after')}"


_SPELLED: dict[str, Callable[[Payload], str]] = {
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


# -- parts of lines --------------------------------------------------------------------------------


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _cut(text: Any) -> str | None:
    return texts.one_line(_text(text), QUOTED) if text is not None else None


def _quoted(text: Any) -> str | None:
    """A recorded text in quotation marks."""
    return f"“{_cut(text)}”" if text else None


def _tokens(usage: Payload) -> str | None:
    sent, received = usage.get("input_tokens"), usage.get("output_tokens")
    if sent is None and received is None:
        return None
    source, cached = usage.get("usage_source"), usage.get("cached_tokens")
    hits = f" ({cached:,} cached)" if cached is not None else ""
    return f"{spelling.count(sent, source)}{hits} → {spelling.count(received, source)} tokens"


def _cost(usage: Payload) -> str | None:
    return None if usage.get("cost_usd") is None else spelling.usd(usage["cost_usd"])


def _input(step: Payload) -> str | None:
    if step.get("input_tokens") is None:
        return _context(step) if step.get("context_tokens") is not None else None
    return f"{spelling.count(step['input_tokens'], step.get('usage_source'))} tokens in"


def _context(payload: Payload) -> str | None:
    used, window = payload.get("context_tokens"), payload.get("context_window")
    if used is None:
        return None
    return f"context {used:,}{f' of {window:,}' if window else ''} tokens"


def _attempt(step: Payload) -> str | None:
    number = step.get("attempt") or 1
    if number == 1:
        return None
    waited = step.get("waited_ms")
    after = f" after {spelling.duration(waited)}" if waited else ""
    return f"attempt {number}, {step.get('attempt_reason')}{after}"


def _step_outcome(step: Payload) -> list[str | None]:
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
        _quoted(step.get("output")),
    ]


def _progress(step: Payload) -> list[str | None]:
    speed, first = step.get("tokens_per_second"), step.get("ttft_ms")
    sent, received = step.get("input_tokens"), step.get("output_tokens")
    return [
        spelling.duration(step.get("elapsed_ms")),
        f"{spelling.count(sent, step.get('usage_source'))} tokens in" if sent is not None else None,
        f"~{received:,} out" if received is not None else None,
        f"{speed:g}/s" if speed is not None else None,
        f"first token {spelling.duration(first)}" if first is not None else None,
    ]


def _error(error: Any) -> str | None:
    if not error:
        return None
    return _error_of(error) if isinstance(error, Mapping) else _cut(error)


def _error_of(error: Payload) -> str | None:
    kind = error.get("error_type") or error.get("type")
    return _cut(": ".join(str(part) for part in (kind, error.get("message")) if part))


def _wasted(turn: Payload) -> bool:
    return bool((turn.get("attempts") or 0) > (turn.get("llm_calls") or 0))


def _plural(count: int | None, noun: str) -> str | None:
    return None if count is None else f"{count:,} {noun}{'' if count == 1 else 's'}"
