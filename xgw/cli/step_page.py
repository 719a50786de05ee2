"""What `xgw show` tells about a step: what was sent, what came back, how long it took, its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xgw import clock, spelling
from xgw.cli import agent_page, timeline
from xgw.cli.pages import Page, spelled_json
from xgw.cli.run_page import render_error
from xgw.queries import payloads, requests, steps
from xgw.queries.pages import Row
from xgw.queries.wording import (
    counted,
    first_token_words,
    joined,
    speed_words,
    usage_with_total,
)
from xgw.store.database import Store

SHOWN_MESSAGES = 12
_NOT_SETTINGS = frozenset({"messages", "input", "tools", "model"})


def render_step(page: Page, store: Store, step: Row) -> None:
    """A step, with the bodies that belong to it."""
    page.head(
        f"step {step['id']}",
        joined(step["status"], step["finish_reason"]),
        timeline.role_of(step),
    )
    _fields(page, step)
    render_error(page, step)
    if step["step_type"] == "llm_call":
        keys = [key for key in (step["input_payload"], step["output_payload"]) if key]
        bodies = payloads.bodies(store, keys)
        _sent(page, store, step, bodies.get(step["input_payload"] or ""))
        _received(page, step, bodies.get(step["output_payload"] or ""))
        _request(page, store, step)
    else:
        _tool(page, store, step)


def _fields(page: Page, step: Row) -> None:
    now = clock.now()
    if step["step_type"] == "llm_call":
        page.field("model", page.served(step["provider_name"], step["model"] or step["name"]))
        page.field("asked for", step["model_requested"])
    page.field("kind", step["step_type"])
    page.field("name", step["name"] if step["step_type"] != "llm_call" else None)
    page.field("attempt", _attempt(step))
    page.field("session", step["session_id"] or "none")
    page.field("turn", step["turn_id"])
    page.field("run", f"{step['run_id']}, step {step['step_index'] + 1}")
    page.field(
        "started", f"{spelling.moment(step['started_at'])}, {spelling.ago(step['started_at'], now)}"
    )
    page.field("took", _took(step, page.until))
    if step["step_type"] == "llm_call":
        page.field("tokens", usage_with_total(step))
        page.field("context", f"{spelling.count(step['context_tokens'])} tokens sent")
        page.field("cost", spelling.usd(step["cost_usd"]))
    page.field("finish", _finish(step))
    page.field("HTTP", str(step["http_status"] or ""))
    page.field("call", step["tool_call_id"])
    page.field("span", f"{step['observation_id']} of trace {step['trace_id']}")
    kept = {k: v for k, v in (step["metadata"] or {}).items() if k != "arguments"}
    page.field("metadata", spelled_json(kept) if kept else None)


def _attempt(step: Row) -> str | None:
    if step["attempt"] is None:
        return None
    waited = f" after a wait of {spelling.duration(step['waited_ms'])}" if step["waited_ms"] else ""
    return f"{step['attempt']}, {step['attempt_reason'] or spelling.UNKNOWN}{waited}"


def _took(step: Row, now: Any) -> str:
    first = first_token_words(step)
    took = spelling.duration(timeline.elapsed_ms(step, now))
    return joined(took if step["ended_at"] else f"{took} so far", first, speed_words(step))


def _finish(step: Row) -> str | None:
    told, raw = step["finish_reason"], step["finish_reason_raw"]
    return told if raw in (None, told) else f"{told} (the provider said {raw!r})"


# -- what was sent ---------------------------------------------------------------------------------


def _sent(page: Page, store: Store, step: Row, body: Any) -> None:
    if not isinstance(body, Mapping):
        gone = body is None and step["input_payload"]
        words = payloads.pruned_words(store, step["input_payload"]) or "not in the store any more"
        page.section("Sent", words if gone else "")
        if body is not None:
            page.json(body)
        return
    messages = body.get("messages", body.get("input"))
    listed = messages if isinstance(messages, Sequence) and not isinstance(messages, str) else []
    page.section("Sent", _sent_words(listed, body))
    _changes(page, store, step)
    settings = {name: value for name, value in body.items() if name not in _NOT_SETTINGS}
    for name, value in settings.items():
        page.text(
            spelled_json(value) if not isinstance(value, str) else value, 2, most=3, mark=f"{name} "
        )
    for tool in _dicts(body.get("tools")):
        _offered(page, tool)
    if isinstance(messages, str):
        page.text(messages)
    skipped = 0 if page.full else max(0, len(listed) - SHOWN_MESSAGES)
    if skipped:
        page.line(f"… {skipped} earlier messages (--full shows all)", 2, "faint")
    for message in listed[skipped:]:
        _message(page, message)


def _sent_words(listed: Sequence[Any], body: Mapping[str, Any]) -> str:
    tools = len(_dicts(body.get("tools")))
    return joined(
        counted(len(listed), "message"),
        counted(tools, "tool") if tools else None,
    )


def _changes(page: Page, store: Store, step: Row) -> None:
    found = steps.find_changes(store, step)
    if found is None:
        return
    counts = (
        (len(found.added), "added"),
        (len(found.changed), "changed"),
        (len(found.dropped), "dropped"),
    )
    told = ", ".join(f"{count} {what}" for count, what in counts if count) or "nothing changed"
    words = f"since the call before ({found.previous_step_id}): "
    page.text(f"{words}the first {found.common_prefix} the same, {told}", 2, "faint")


def _offered(page: Page, tool: Mapping[str, Any]) -> None:
    nested = tool.get("function")
    function = nested if isinstance(nested, Mapping) else tool
    parameters = function.get("parameters", function.get("input_schema"))
    known = parameters.get("properties") if isinstance(parameters, Mapping) else None
    names = ", ".join(str(name) for name in known) if isinstance(known, Mapping) else ""
    told = f"{function.get('name') or tool.get('type')}({names})"
    page.text(joined(told, _word(function.get("description"))), 2, most=2, mark="tool ")
    if page.full and parameters is not None:
        page.json(parameters, 6)


def _message(page: Page, message: Any) -> None:
    if not isinstance(message, Mapping):
        page.json(message)
        return
    role = str(message.get("role") or message.get("type"))
    page.line(joined(role, _word(message.get("tool_call_id"))), 2, "accent")
    _content(page, message)


def _word(value: Any) -> str | None:
    """A text of a body, which was recorded as it came: of another kind it is JSON."""
    return value if value is None or isinstance(value, str) else spelled_json(value)


def _content(page: Page, message: Mapping[str, Any]) -> None:
    """What a message of a request or an answer holds: texts, parts, tool calls."""
    said = message.get("content")
    for part in said if isinstance(said, list) else [said]:
        if isinstance(part, Mapping):
            text = part.get("text")
            page.text(text, 4) if isinstance(text, str) else page.json(part, 4)
        elif part is not None:
            page.json(part, 4)
    for name in ("reasoning_content", "refusal"):
        if message.get(name):
            page.text(str(message[name]), 4, mark=f"{name.partition('_')[0]}: ")
    for call in _dicts(message.get("tool_calls")):
        function = call.get("function")
        asked = function if isinstance(function, Mapping) else call
        words = f"{asked.get('name')} {asked.get('arguments')}"
        page.text(words, 4, mark="→ ")
        page.line(str(call.get("id")), 6, "faint")


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return (
        [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
    )


# -- what came back --------------------------------------------------------------------------------


def _received(page: Page, step: Row, body: Any) -> None:
    is_partial = step["partial_output"] is not None
    page.section("Received", "what had arrived" if is_partial else "")
    choices = _dicts(body.get("choices")) if isinstance(body, Mapping) else []
    if not choices:
        _unchosen(page, step, body)
    for choice in choices:
        if len(choices) > 1:
            ended = _word(choice.get("finish_reason"))
            page.line(joined(f"choice {choice.get('index')}", ended), 2, "accent")
        message = choice.get("message")
        _content(page, message if isinstance(message, Mapping) else choice)
    for call in step["tool_calls"] or ():
        if call.get("incomplete"):
            page.line(f"the arguments of {call.get('name')} broke off", 4, "waiting")
        elif not call.get("arguments_json_valid", True):
            page.line(f"the arguments of {call.get('name')} are no valid JSON", 4, "waiting")
    if page.full and step["usage_raw"]:
        page.section("Usage as reported")
        page.json(step["usage_raw"])


def _unchosen(page: Page, step: Row, body: Any) -> None:
    if step["partial_output"]:
        page.text(step["partial_output"], 4)
    elif body is not None:
        page.json(body, 4)
    else:
        page.line("nothing" if step["ended_at"] else "nothing yet", 4, "faint")


def _request(page: Page, store: Store, step: Row) -> None:
    log = requests.of_step(store, step["id"])
    if log is None:
        return
    page.section("Request", log["id"])
    status = log["status_code"] or ("failed" if log["ended_at"] else "running")
    page.text(f"{log['method']} {log['url']} → {status}", most=3)
    page.line(
        joined(
            f"{spelling.size(log['bytes_sent'])} sent",
            f"{spelling.size(log['bytes_received'])} received",
            None if log["chunks"] is None else f"in {log['chunks']} pieces",
        )
    )


def _tool(page: Page, store: Store, step: Row) -> None:
    compaction = agent_page.find_compaction(store, step)
    if compaction is not None:
        page.section("Compaction")
        agent_page.render_compaction(page, step, compaction, 2)
        if page.full:
            page.json(compaction)
        return
    arguments = (step["metadata"] or {}).get("arguments") or _body(store, step["input_payload"])
    if arguments is not None:
        page.section("Arguments")
        page.text(str(arguments))
    page.section("Result")
    result = _body(store, step["output_payload"])
    if result is None:
        words = payloads.pruned_words(store, step["output_payload"])
        page.line(words or ("none" if step["ended_at"] else "none yet"), 2, "faint")
    else:
        page.text(result)


def _body(store: Store, key: str | None) -> str | None:
    """A body as it was, to be read."""
    found = payloads.find_body(store, key) if key else None
    return None if found is None else found.decode(errors="replace")
