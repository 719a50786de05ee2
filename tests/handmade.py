"""Bundles written by hand: one session whose turn was answered at the second try."""

from __future__ import annotations

import copy
import gzip
import json
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

from xgw.portable.imports import Import, Imports

Json = dict[str, Any]

EXPORTED_AT = "2026-02-03T04:05:06.000007Z"
NOON = "2026-02-03T04:00:00.000000Z"


def id_of(prefix: str, number: int = 1) -> str:
    return f"{prefix}_{number:032x}"


def body(content: str | bytes) -> Json:
    """An entry of `payloads`."""
    text = content if isinstance(content, str) else content.decode()
    return {"hash": hash_of(text), "size": len(text.encode()), "text": text}


def hash_of(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


SENT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Where?"}]})
ANSWERED = json.dumps(
    {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Here."},
                "finish_reason": "stop",
            }
        ],
    }
)


def session(number: int = 1, **columns: Any) -> Json:
    return {
        "id": id_of("sess", number),
        "session_key": f"key-{number}",
        "project_id": "default",
        "kind": "chat",
        "status": "active",
        "source": "metadata",
        "created_at": NOON,
        "updated_at": NOON,
        "last_turn_at": NOON,
        **columns,
    }


def turn(number: int = 1, **columns: Any) -> Json:
    return {
        "id": id_of("turn", number),
        "project_id": "default",
        "session_id": id_of("sess"),
        "endpoint": "chat.completions",
        "turn_index": number - 1,
        "user_input": "Where?",
        "final_output": "Here.",
        "status": "success",
        "ended_by": "finished",
        "trace_id": f"{number:032x}",
        "started_at": NOON,
        "ended_at": NOON,
        "latency_ms": 12,
        "created_at": NOON,
        "updated_at": NOON,
        **columns,
    }


def run(number: int = 1, **columns: Any) -> Json:
    return {
        "id": id_of("run", number),
        "turn_id": id_of("turn", number),
        "run_index": 0,
        "status": "success",
        "kind": "first",
        "started_at": NOON,
        "ended_at": NOON,
        **columns,
    }


def step(number: int = 1, **columns: Any) -> Json:
    return {
        "id": id_of("step", number),
        "run_id": id_of("run"),
        "turn_id": id_of("turn"),
        "session_id": id_of("sess"),
        "step_index": number - 1,
        "step_type": "llm_call",
        "attempt": number,
        "model": "m",
        "provider_name": "p",
        "status": "success",
        "input_payload": hash_of(SENT),
        "output_payload": hash_of(ANSWERED),
        "trace_id": f"{1:032x}",
        "observation_id": f"{number:016x}",
        "started_at": NOON,
        "ended_at": NOON,
        "latency_ms": 12,
        **columns,
    }


def message(number: int = 1, **columns: Any) -> Json:
    return {
        "id": id_of("msg", number),
        "session_id": id_of("sess"),
        "turn_id": id_of("turn"),
        "message_index": number - 1,
        "kind": "message",
        "role": "user" if number % 2 else "assistant",
        "content": "Where?" if number % 2 else "Here.",
        "created_at": NOON,
        **columns,
    }


def request(number: int = 1, **columns: Any) -> Json:
    return {
        "id": id_of("req", number),
        "project_id": "default",
        "session_id": id_of("sess"),
        "turn_id": id_of("turn"),
        "run_id": id_of("run"),
        "step_id": id_of("step", number),
        "provider_name": "p",
        "endpoint": "/chat/completions",
        "method": "POST",
        "url": "https://example.com/v1/chat/completions",
        "model": "m",
        "stream": 0,
        "status_code": 200,
        "request_headers": [["content-type", "application/json"]],
        "response_headers": [["content-type", "application/json"], ["x-request-id", "r1"]],
        "request_payload": hash_of(SENT),
        "response_body": hash_of(ANSWERED),
        "frames": [[0, 5]],
        "started_at": NOON,
        "ended_at": NOON,
        "latency_ms": 12,
        **columns,
    }


def event(seq: int = 1, **columns: Any) -> Json:
    return {
        "seq": seq,
        "type": "message.added",
        "at": NOON,
        "project_id": "default",
        "session_id": id_of("sess"),
        "turn_id": id_of("turn"),
        "run_id": None,
        "step_id": None,
        "payload": {
            "message_id": id_of("msg"),
            "kind": "message",
            "role": "user",
            "token_count": None,
            "tool_call_id": None,
            "text": "Where?",
        },
        **columns,
    }


SOFTWARE: Json = {
    "version": "9.8.7",
    "python": "3.11",
    "platform": "Linux",
    "sqlite": "3.40",
    "libraries": {},
}


def bundle(**changes: Any) -> Json:
    """A whole bundle; `changes` stand in the place of its fields."""
    whole = {
        "xgw_bundle": 1,
        "exported_at": EXPORTED_AT,
        "xgw": SOFTWARE,
        "asked_for": [id_of("sess")],
        "filter": None,
        "sessions": [session()],
        "turns": [turn()],
        "runs": [run()],
        "steps": [step()],
        "messages": [message(1), message(2)],
        "request_logs": [request()],
        "events": [event()],
        "agents": [],
        "payloads": [body(SENT), body(ANSWERED)],
        "redaction": {"on": True, "bodies": True, "masked": []},
        "imported": None,
    }
    return copy.deepcopy(whole | changes)


def lines(whole: Json) -> bytes:
    """The same as JSON lines."""
    head = ("xgw_bundle", "exported_at", "xgw", "asked_for", "filter")
    told: list[Json] = [{name: whole[name] for name in head}]
    for table in whole:
        if isinstance(whole[table], list) and table not in head:
            told += [{"table": table, "row": row} for row in whole[table]]
    told.append({name: whole[name] for name in ("redaction", "imported")})
    return b"".join(json.dumps(line).encode() + b"\n" for line in told)


def spelled(whole: Json) -> bytes:
    return json.dumps(whole).encode()


def packed(whole: Json) -> bytes:
    return gzip.compress(spelled(whole))


def add(folder: Path, content: bytes, name: str = "bug.json") -> Import:
    """Import it beside a store in this folder."""
    return Imports(folder / "xgw.db").add(BytesIO(content), name)[0]
