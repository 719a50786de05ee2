"""The nouns as JSON Schemas: their columns as the store has them, and what JSON makes of them."""

from __future__ import annotations

from typing import Any

import peewee

from xgw import errors, ids
from xgw.events import TYPES
from xgw.recording.lifecycle import MOVES, STATUS_OF_CAUSE
from xgw.store import models
from xgw.store.fields import JsonField, TimeField
from xgw.web.serialize import SESSION_TOTALS

Json = dict[str, Any]

ANY: Json = {}
COUNT: Json = {"type": ["integer", "null"], "minimum": 0}
TIME: Json = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"}
OBJECT: Json = {"type": ["object", "null"]}
ARRAY: Json = {"type": ["array", "null"]}


def ref(name: str) -> Json:
    """A reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def enum(*values: str | None) -> Json:
    """One of a few texts; None is null."""
    return {"enum": list(values)}


def of(properties: Json, *, optional: tuple[str, ...] = ()) -> Json:
    """An object that has these properties and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def statuses(noun: str) -> tuple[str, ...]:
    """Every status that the noun can have."""
    moves = MOVES[noun]
    return tuple(dict.fromkeys((*moves, *sorted(new for news in moves.values() for new in news))))


# -- columns ---------------------------------------------------------------------------------------


def columns(model: type[models.Table], *left_out: str, **differing: Json) -> Json:
    """The properties that a row's columns become."""
    found = {}
    for field in model._meta.sorted_fields:
        name = field.column_name
        if name not in left_out:
            found[name] = differing.get(name) or _of_field(field)
    return found


def _of_field(field: peewee.Field) -> Json:
    if isinstance(field, JsonField):
        return ANY
    if isinstance(field, TimeField):
        return {**TIME, "type": ["string", "null"]} if field.null else TIME
    kind = "string"
    if isinstance(field, peewee.IntegerField | peewee.BigIntegerField):
        kind = "integer"
    elif isinstance(field, peewee.DoubleField):
        kind = "number"
    return {"type": [kind, "null"] if field.null else kind}


_KIND = enum("chat", "agent")
_MODE = enum("chat", "task", None)
_USAGE_SOURCE = enum("provider", "estimated", "partial", None)
_SOURCE = enum("metadata", "header", "url", "client", "managed", "api", "import")
_ERROR_TYPE = enum(*errors.ERROR_TYPES, None)
_ENDED_BY = enum(*STATUS_OF_CAUSE, None)
_ERROR = {"anyOf": [ref("Fault"), {"type": "null"}]}
_PAYLOAD = ref("PayloadOrBody")


def _session() -> Json:
    shown = columns(
        models.Session,
        *SESSION_TOTALS,
        "context_tokens",
        kind=_KIND,
        mode=_MODE,
        status=enum("active", "archived", "closed"),
        source=_SOURCE,
        metadata=OBJECT,
        artifacts=ARRAY,
        budget=of({"tokens": ref("Limit"), "cost_usd": ref("Limit")}),
        usage_source=_USAGE_SOURCE,
    )
    money = {"type": ["number", "null"], "minimum": 0}
    usage = {name: money if name == "cost_usd" else COUNT for name in SESSION_TOTALS}
    context = {"window": COUNT, "used": COUNT, "remaining": COUNT}
    percent = {"type": ["number", "null"], "minimum": 0}
    added = {
        "object": {"const": "session"},
        "usage": of(usage),
        "context": of({**context, "percent": percent, "source": _USAGE_SOURCE}),
        "tools": {"type": "array", "items": ref("Tool")},
    }
    return of({**shown, **added}, optional=("tools",))


def _turn() -> Json:
    shown = columns(
        models.Turn,
        status=enum(*statuses("turn")),
        ended_by=_ENDED_BY,
        error_type=_ERROR_TYPE,
        usage_source=_USAGE_SOURCE,
        metadata=OBJECT,
        input_payload=_PAYLOAD,
        config_snapshot=_PAYLOAD,
    )
    added = {
        "object": {"const": "turn"},
        "error": _ERROR,
        "completed_at": {**TIME, "type": ["string", "null"]},
        "runs": {"type": "array", "items": ref("Run")},
    }
    return of({**shown, **added}, optional=("runs",))


def _run() -> Json:
    shown = columns(
        models.Run,
        status=enum(*statuses("run")),
        kind=enum("first", "resume", "rerun"),
        ended_by=enum(*STATUS_OF_CAUSE, "resumed", None),
        error_type=_ERROR_TYPE,
        metadata=OBJECT,
    )
    steps = {"type": "array", "items": ref("Step")}
    added = {"object": {"const": "run"}, "error": _ERROR, "steps": steps}
    return of({**shown, **added}, optional=("steps",))


def _step() -> Json:
    kinds = ("llm_call", "tool_call", "retrieval", "planner", "memory_write", "handoff")
    shown = columns(
        models.Step,
        step_type=enum(*kinds),
        attempt_reason=enum("initial", "retry", "fallback", None),
        history=enum("appended", "rewritten", None),
        status=enum(*statuses("step")),
        error_type=_ERROR_TYPE,
        usage_source=_USAGE_SOURCE,
        tool_calls=ARRAY,
        metadata=OBJECT,
        input_payload=_PAYLOAD,
        output_payload=_PAYLOAD,
    )
    changes = {"anyOf": [ref("Changes"), {"type": "null"}]}
    added = {"object": {"const": "step"}, "error": _ERROR, "changes": changes}
    return of({**shown, **added}, optional=("changes",))


def _message() -> Json:
    shown = columns(
        models.Message,
        kind=enum("message", "tool_call", "tool_result", "status", "error"),
        role=enum("system", "user", "assistant", "tool", None),
        metadata=OBJECT,
    )
    return of({**shown, "object": {"const": "message"}})


def _request() -> Json:
    headers = {"type": ["array", "null"], "items": {"type": "array", "items": {"type": "string"}}}
    flag = {"type": ["boolean", "null"]}
    shown = columns(
        models.RequestLog,
        stream=flag,
        truncated=flag,
        error_type=_ERROR_TYPE,
        request_headers=headers,
        response_headers=headers,
        client=OBJECT,
        metadata=OBJECT,
        frames=ARRAY,
        request_payload=_PAYLOAD,
        response_body=_PAYLOAD,
    )
    return of({**shown, "object": {"const": "request"}, "error": _ERROR}, optional=("frames",))


def _import() -> Json:
    text, count = {"type": "string"}, {"type": "integer", "minimum": 0}
    return of(
        {
            "object": {"const": "import"},
            "id": {"type": "string", "pattern": "^imp_[0-9a-f]{32}$"},
            "file": text,
            "imported_at": text,
            "exported_at": text,
            "xgw_version": text,
            "bodies": {"type": "boolean", "description": "false: without what was said"},
            "counts": {"type": "object", "additionalProperties": count},
            "size_bytes": {"type": ["integer", "null"]},
            "url": {"type": "string", "description": "its pages"},
        }
    )


# -- the rest --------------------------------------------------------------------------------------


def _refusal() -> Json:
    text = {"type": ["string", "null"]}
    fields = {"message": {"type": "string"}, "type": {"type": "string"}, "param": text, "code": ANY}
    inner = {"type": "object", "properties": fields, "required": list(fields)}
    return of({"error": inner})


def _changes() -> Json:
    place = {"type": "integer", "minimum": 0}
    places = {"type": "array", "items": place}
    pair = of({"previous_index": place, "index": place})
    return of(
        {
            "previous_step_id": {"type": "string"},
            "common_prefix": place,
            "added": places,
            "changed": {"type": "array", "items": pair},
            "dropped": places,
        }
    )


def _envelope() -> Json:
    text = {"type": ["string", "null"]}
    return of(
        {
            "seq": {"type": ["integer", "null"], "description": "the cursor; null on live frames"},
            "type": enum(*TYPES, "stream.lagged"),
            "at": TIME,
            **dict.fromkeys(("session_id", "turn_id", "run_id", "step_id"), text),
            "payload": {"type": "object"},
        }
    )


def _stats() -> Json:
    numbers: Json = {
        name: {"type": ["integer", "null"]}
        for name in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
    }
    counts: Json = {name: {"type": "integer"} for name in ("requests", "errors", "unpriced")}
    sums = {**counts, **numbers, "cost_usd": {"type": ["number", "null"]}}
    groups = ("day", "model", "provider", "agent")
    keys = {name: {"type": ["string", "null"]} for name in groups}
    latency = {"type": ["object", "null"], "additionalProperties": {"type": "number"}}
    row = of({**keys, **sums, "latency_ms": latency}, optional=groups)
    return of(
        {
            "object": {"const": "stats"},
            "group": enum(*groups),
            "totals": of(sums),
            "data": {"type": "array", "items": row},
        }
    )


def _pruned() -> Json:
    whole = {"type": "integer", "minimum": 0}
    amount = of({"count": whole, "bytes": whole})
    table = of({"table": {"type": "string"}, "rows": whole, "bytes": COUNT})
    return of(
        {
            "object": enum("pruned"),
            "sessions": whole,
            "busy_sessions": whole,
            "turns": whole,
            "requests": whole,
            "row_bytes": COUNT,
            "bodies": amount,
            "payloads": amount,
            "legacy": {"type": "array", "items": table},
        }
    )


def _health() -> Json:
    """Whoever may not see everything is told the status alone."""
    told = {
        "reasons": {"type": "array", "items": {"type": "string"}},
        "version": {"type": "string"},
        "store": {"type": "object"},
        "writer": {"type": "object"},
        "threads": {"type": "integer"},
        "calls": {"type": "integer"},
        "watchers": {"type": "integer"},
        "providers": {"type": "array", "items": {"type": "object"}},
    }
    status = {"object": {"const": "health"}, "status": enum("ok", "degraded")}
    return of({**status, **told}, optional=tuple(told))


def _export_preview() -> Json:
    text, number = {"type": "string"}, {"type": "integer", "minimum": 0}
    flag = {"type": "boolean"}
    part = of({"name": text, "rows": number, "bytes": number})
    masked = {"type": "array", "items": {"type": "object"}}
    covers = of({"looked_at": number, "found": number, "all_counted": flag})
    return of(
        {
            "object": {"const": "export_preview"},
            "kind": enum(
                *("session", "turn", "run", "step", "request"),
                *("sessions", "turns", "requests", "everything"),
            ),
            "id": {"type": ["string", "null"]},
            "format": text,
            "covers": {"anyOf": [covers, {"type": "null"}]},
            "bytes": number,
            "parts": {"type": "array", "items": part},
            "redaction": of({"on": flag, "bodies": flag, "masked": masked}),
            "left_out": {"type": "array", "items": text},
        }
    )


def _agent() -> Json:
    text = {"type": "string"}
    number = {"type": ["number", "null"]}
    names = ("turn_tokens", "session_tokens", "turn_cost_usd", "session_cost_usd", "seconds")
    limits = {"max_iterations": {"type": "integer"}} | {f"max_{name}": number for name in names}
    tools = {"type": "array", "items": text}
    mode = of({"tools": tools, "limits": of(limits), "planner": {"type": "boolean"}})
    shares = {"compact_at": {"type": "number"}, "keep_last_turns": {"type": "integer"}}
    return of(
        {
            "object": {"const": "agent"},
            "name": text,
            "description": text,
            "model": text,
            "provider": {"type": ["string", "null"]},
            "instructions": text,
            "parameters": {"type": "object"},
            "modes": of({"chat": mode, "task": mode}),
            "tools": {"type": "array", "items": ref("Tool")},
            "handoffs": {"type": "array", "items": text},
            "problems": {"type": "array", "items": text},
            "context": of({"window": COUNT, **shares}),
        }
    )


def _context() -> Json:
    text, count = {"type": ["string", "null"]}, {"type": "integer", "minimum": 0}
    names = ("instructions", "working_memory", "plan", "summary", "turn", "history", "tools")
    part = {"part": enum(*names), "tokens": COUNT, "count": count, "turn_id": text}
    listed = {"type": "array"}
    return of(
        {
            "object": {"const": "context"},
            "session_id": {"type": "string"},
            "agent_name": text,
            "model": text,
            "window": COUNT,
            "used": COUNT,
            "remaining": COUNT,
            "percent": {"type": ["number", "null"], "minimum": 0},
            "source": enum("estimated", None),
            "threshold": COUNT,
            "keep_last_turns": COUNT,
            "step_id": text,
            "parts": {
                "type": "array",
                "items": of(
                    {**part, "messages": listed, "tools": listed}, optional=("messages", "tools")
                ),
            },
        }
    )


def _chat_response() -> Json:
    text = {"type": ["string", "null"]}
    time = {**TIME, "type": ["string", "null"]}
    money = {"type": ["number", "null"]}
    tokens = ("input", "output", "cache", "reasoning", "total", "sessionTotal")
    call = of(
        {
            "id": text,
            "name": text,
            "arguments": ANY,
            "durationMs": COUNT,
            "success": {"type": ["boolean", "null"]},
            "error": _ERROR,
        }
    )
    later = {
        "runStatus": enum(*statuses("run")),
        "queuePosition": COUNT,
        "pendingApprovals": {"type": "array"},
    }
    answer = {
        "sessionId": {"type": "string"},
        "turnId": {"type": "string"},
        "runId": {"type": "string"},
        "message": of({"role": {"const": "assistant"}, "content": text}),
        "status": enum(*statuses("turn")),
        "error": _ERROR,
        "timestamp": time,
        "completedAt": time,
        "iterations": COUNT,
        "durationMs": COUNT,
        "tokenUsage": of(dict.fromkeys(tokens, COUNT)),
        "costUsd": money,
        "toolCalls": {"type": "array", "items": call},
        "attempts": COUNT,
        "finishReason": text,
        "limitReached": text,
    }
    return of({**answer, **later}, optional=tuple(later))


def _list_of(name: str) -> Json:
    return of(
        {
            "object": {"const": "list"},
            "data": {"type": "array", "items": ref(name)},
            "has_more": {"type": "boolean"},
            "next_cursor": {"type": ["string", "null"]},
        }
    )


def components() -> Json:
    """All schemas by name."""
    nouns = {
        "Session": _session(),
        "Turn": _turn(),
        "Run": _run(),
        "Step": _step(),
        "Message": _message(),
        "Request": _request(),
        "Agent": _agent(),
        "Context": _context(),
        "Import": _import(),
    }
    listed = ("Agent", "Import", "Session", "Turn", "Step", "Message", "Request")
    number = {"type": ["number", "null"]}
    return {
        **nouns,
        **{f"{name}List": _list_of(name) for name in listed},
        "Error": _refusal(),
        "Fault": of(
            {"type": {"type": ["string", "null"]}, "message": {"type": ["string", "null"]}}
        ),
        "Identifier": {
            "type": "string",
            "minLength": 1,
            "maxLength": ids.MAX_IDENTIFIER_LENGTH,
            "description": "printable characters of any script; compared in Unicode NFC",
        },
        "Limit": of({"limit": number, "used": number, "remaining": number}),
        "Tool": of({"name": ANY, "description": ANY, "parameters": ANY, "approval": ANY}),
        "Payload": of(
            {
                "hash": {"type": "string"},
                "size": {"type": ["integer", "null"]},
                "pruned": {"const": True, "description": "only its hash and size are kept"},
            },
            optional=("pruned",),
        ),
        "PayloadOrBody": {
            "description": "null, hash and size, or with `expand=payloads` the body itself",
            "anyOf": [{"type": "null"}, ref("Payload"), ANY],
        },
        "Changes": _changes(),
        "ChatResponse": _chat_response(),
        "Event": _envelope(),
        "Stats": _stats(),
        "Pruned": _pruned(),
        "Health": _health(),
        "ExportPreview": _export_preview(),
    }
