"""The operations of the OpenAI-compatible surface, as far as xgw has a say in them."""

from __future__ import annotations

from typing import Any

from xgw.gateway.identity import OWN_KEYS
from xgw.web.openapi.schemas import ref
from xgw.web.v1 import ENDPOINTS

Json = dict[str, Any]

BELOW = "/s/{session_key}"
MODELS = "/v1/models"

_IDENTIFIER = {"anyOf": [ref("Identifier"), {"type": "null"}]}
_METADATA = {
    "description": "xgw's own keys are taken out before the provider sees them",
    "properties": dict.fromkeys(sorted(OWN_KEYS), _IDENTIFIER),
}
BODIES: dict[str, Json] = {
    "chat.completions": {
        "type": "object",
        "properties": {
            "model": {"type": "string", "minLength": 1},
            "messages": {"type": "array", "items": {"type": "object"}},
            "stream": {"type": ["boolean", "null"]},
            "metadata": {**_METADATA, "type": ["object", "null"]},
        },
        "required": ["model", "messages"],
    },
    "embeddings": {
        "type": "object",
        "properties": {
            "model": {"type": "string", "minLength": 1},
            "input": {"description": "texts or tokens, as the provider takes them"},
            "metadata": _METADATA,
        },
        "required": ["model"],
    },
}
_HEADER = {"type": "string", "pattern": "^[!-~]{1,256}$"}
HEADERS = [
    {"name": name, "in": "header", "schema": _HEADER, "description": text}
    for name, text in (
        ("X-Session-Id", "the session; `new` asks for one of the gateway's own"),
        ("X-Turn-Id", "the turn"),
        ("X-Parent-Turn-Id", "the turn that started this one, by id or key"),
        ("X-Task-Id", "the task"),
        ("X-End-User-Id", "the end user"),
    )
]
RETURNED = {
    name: {"schema": {"type": "string"}, "description": text}
    for name, text in (
        ("X-Session-Id", "the session, where there is one"),
        ("X-Turn-Id", "the turn: sent back, it continues"),
        ("X-Run-Id", "the run"),
        ("X-Trace-Id", "the trace"),
    )
}
_ANSWER = {
    "type": "object",
    "description": "what the provider answered",
    "properties": {"object": {"type": "string"}},
}
_ERROR = {"application/json": {"schema": ref("Error")}}
_ERRORS: Json = {
    "400": {"description": "xgw or the provider cannot understand it", "content": _ERROR},
    "401": {"description": "no key, or one that opens nothing", "content": _ERROR},
    "404": {"description": "no such model", "content": _ERROR},
    "409": {"description": "the turn was cancelled", "content": _ERROR},
    "413": {"description": "the body is too large", "content": _ERROR},
    "415": {"description": "the body is no JSON", "content": _ERROR},
    "502": {"description": "the provider failed", "content": _ERROR},
    "503": {"description": "too many calls at once: `Retry-After`", "content": _ERROR},
    "504": {"description": "the provider was silent for too long", "content": _ERROR},
    "default": {"description": "as the provider refused it", "content": _ERROR},
}


def _call(endpoint: str) -> Json:
    content: Json = {"application/json": {"schema": _ANSWER}}
    if endpoint == "chat.completions":
        content["text/event-stream"] = {"schema": {"description": "chunks, then `[DONE]`"}}
    answer = {"description": "the answer", "headers": RETURNED, "content": content}
    body = {"application/json": {"schema": BODIES[endpoint]}}
    return {
        "tags": ["v1"],
        "summary": f"{endpoint}, answered by the provider that serves the model",
        "parameters": HEADERS,
        "requestBody": {"required": True, "content": body},
        "responses": {"200": answer, **_ERRORS},
    }


def _read(summary: str, schema: Json) -> Json:
    answer = {"description": summary, "content": {"application/json": {"schema": schema}}}
    wanted = {code: _ERRORS[code] for code in ("401", "404", "default")}
    return {"tags": ["v1"], "summary": summary, "responses": {"200": answer, **wanted}}


def _models() -> Json:
    model = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "object": {"type": "string"}},
        "required": ["id"],
    }
    listed = {
        "type": "object",
        "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": model}},
        "required": ["object", "data"],
    }
    # A model's id may hold slashes, which a path parameter cannot say.
    named = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        MODELS: {"get": _read("the models that clients can ask for", listed)},
        f"{MODELS}/{{model}}": {"parameters": [named], "get": _read("one model", model)},
    }


def paths() -> Json:
    """Every path, also below the base URL that names a session."""
    plain = {path: {"post": _call(endpoint)} for path, endpoint in ENDPOINTS.items()} | _models()
    key = {"name": "session_key", "in": "path", "required": True}
    below = {}
    for path, item in plain.items():
        # Only calls take note of the key.
        schema = ref("Identifier") if "post" in item else {"type": "string"}
        named = [{**key, "schema": schema}, *item.get("parameters", ())]
        below[f"{BELOW}{path}"] = {**item, "parameters": named}
    return {**plain, **below}
