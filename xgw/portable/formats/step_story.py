"""What a step tells: who was asked, how it went, what went in and what came out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from xgw import spelling
from xgw.portable.formats.blocks import Block, Facts, Heading, Left
from xgw.portable.formats.shelf import Row, Shelf
from xgw.portable.formats.telling import failure, known, moment, spoken
from xgw.queries.wording import (
    counted,
    first_token_words,
    joined,
    reads_words,
    served_words,
    speed_words,
    usage_with_total,
)

_KINDS = {
    "llm_call": "model call",
    "tool_call": "tool call",
    "memory_write": "memory",
}


def tell_step(shelf: Shelf, step: Row, requests: Sequence[Row]) -> Iterator[Block]:
    """The blocks of one step."""
    is_call = step["step_type"] == "llm_call"
    kind = _KINDS.get(step["step_type"], step["step_type"])
    name = served_words(step["provider_name"], step["model"]) if is_call else step["name"]
    aside = joined(_attempt(step), step["finish_reason"])
    state = "done" if step["status"] == "success" else step["status"]
    title = f"{step['step_index'] + 1}. {joined(kind, name or step['name'])}"
    yield Heading(4, title, state, aside, step["id"])
    yield Facts(_pairs(step, requests))
    yield from failure(step)
    if is_call:
        yield from _answer(shelf, step, requests)
    else:
        yield from _work(shelf, step)


def _pairs(step: Row, requests: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    log = requests[-1] if requests else None
    took = spelling.duration(step["latency_ms"]) if step["latency_ms"] is not None else None
    return known(
        ("id", step["id"]),
        ("started", moment(step["started_at"])),
        ("took", joined(took, first_token_words(step), speed_words(step))),
        ("asked as", _other_model(step)),
        ("tokens", usage_with_total(step)),
        ("asks for", ", ".join(str(call.get("name")) for call in step["tool_calls"] or ())),
        ("cost", spelling.usd(step["cost_usd"])),
        ("HTTP", step["http_status"]),
        ("request", f"{log['method']} {log['url']} ({log['id']})" if log and log["url"] else None),
        ("stream", reads_words(log) if log else None),
        ("call", step["tool_call_id"]),
        ("side", (step["metadata"] or {}).get("side")),
    )


def _other_model(step: Row) -> str | None:
    asked = step["model_requested"]
    return None if asked == step["model"] else asked


def _attempt(step: Row) -> str | None:
    if not step["attempt"] or (step["attempt"] == 1 and not step["waited_ms"]):
        return None
    waited = f"after {spelling.duration(step['waited_ms'])}" if step["waited_ms"] else None
    return joined(f"attempt {step['attempt']}", step["attempt_reason"], waited)


def _answer(shelf: Shelf, step: Row, requests: Sequence[Row]) -> Iterator[Block]:
    """What a model call brought that no message tells: a part of an answer, an error's body."""
    if step["status"] != "success":
        yield from spoken("what had arrived", _arrived(shelf, step), "assistant")
        for log in requests:
            yield from spoken("body of the error", log["error_body"], "error")
    for call in () if step["status"] == "success" else step["tool_calls"] or ():
        note = "not valid JSON" if call.get("arguments_json_valid") is False else ""
        note = "incomplete" if call.get("incomplete") else note
        who = f"asks for {call.get('name') or 'a tool'}"
        yield from spoken(
            who, call.get("arguments"), "call", joined(call.get("tool_call_id"), note)
        )
    if step["input_payload"]:
        yield from _sent(shelf, step)


def _arrived(shelf: Shelf, step: Row) -> Any:
    if step["partial_output"] is not None:
        return step["partial_output"]
    answer = _json(shelf.body(step["output_payload"]))
    choices = answer.get("choices") if isinstance(answer, dict) else None
    message = choices[0].get("message") if choices and isinstance(choices[0], dict) else None
    return message.get("content") if isinstance(message, dict) else None


def _sent(shelf: Shelf, step: Row) -> Iterator[Block]:
    content = shelf.body(step["input_payload"])
    if content is None:
        yield Left("sent", "the body is not in this document")
        return
    body = _json(content)
    if not isinstance(body, dict):
        return
    messages = body.get("messages", body.get("input"))
    told = counted(len(messages), "message") if isinstance(messages, list) else None
    offered = body.get("tools")
    tools = [_tool_name(tool) for tool in (offered if isinstance(offered, list) else ())]
    settings = {k: v for k, v in body.items() if k not in ("messages", "input", "tools", "model")}
    yield Facts(
        known(
            ("sent", joined(told, spelling.size(len(content)))),
            ("tools", ", ".join(filter(None, tools))),
            ("settings", json.dumps(settings, ensure_ascii=False) if settings else None),
        )
    )


def _tool_name(tool: Any) -> str:
    """What a tool of a request is called; "" of what is none: requests are kept as they came."""
    if not isinstance(tool, dict):
        return ""
    function = tool.get("function")
    named = function if isinstance(function, dict) else tool
    return str(named.get("name") or tool.get("type") or "")


def _work(shelf: Shelf, step: Row) -> Iterator[Block]:
    given = shelf.text(step["input_payload"])
    if given is None:
        given = (step["metadata"] or {}).get("arguments")
    yield from spoken("arguments" if step["step_type"] == "tool_call" else "given", given, "call")
    came = shelf.text(step["output_payload"])
    if came is None and step["output_payload"]:
        yield Left("result", "the body is not in this document")
    yield from spoken("result", came, "tool")


def _json(content: bytes | None) -> Any:
    try:
        return json.loads(content or b"null")
    except (ValueError, RecursionError):
        return None
