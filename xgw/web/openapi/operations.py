"""The operations of the JSON API: what each takes and answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from xgw.portable.writing import DEFAULT, FORMATS
from xgw.queries import filters
from xgw.web.api import fields
from xgw.web.api.imports import TYPES as BUNDLE_TYPES
from xgw.web.openapi.schemas import OBJECT, enum, of, ref

Json = dict[str, Any]

ERROR_TEXTS = {
    "400": "it cannot be understood: bad JSON, a cursor of another list",
    "401": "no key, or one that opens nothing",
    "403": "this key may not have it",
    "404": "there is nothing here, or nothing for this key",
    "405": "not this method",
    "409": "the state does not allow it",
    "413": "the body is too large",
    "415": "the body is no JSON",
    "422": "a value or field is not allowed; `param` names it",
    "503": "too much at once, or the store cannot be written: `Retry-After`",
    "507": "the server's disk has no room for the file",
}
_ERROR_BODY = {"application/json": {"schema": ref("Error")}}
RESPONSES: Json = {
    f"Error{status}": {"description": text, "content": _ERROR_BODY}
    for status, text in ERROR_TEXTS.items()
} | {"Error": {"description": "any other refusal", "content": _ERROR_BODY}}

TIME_PATTERN = (
    r"^(19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])"
    r"([Tt]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)?)?$"
)
_TIME = {"type": "string", "pattern": TIME_PATTERN}
_TEXT = {"type": "string", "minLength": 1}
_FLAG = {"type": "boolean"}
FILTERS: dict[str, Json] = {
    "session_key": ref("Identifier"),
    "kind": enum("chat", "agent"),
    "agent": _TEXT,
    "model": _TEXT,
    "task_id": ref("Identifier"),
    "end_user_id": ref("Identifier"),
    "has_error": _FLAG,
    "running": _FLAG,
    "since": _TIME,
    "until": _TIME,
    "session_id": ref("Identifier"),
    "turn_id": _TEXT,
    "status_code": {"type": "string", "pattern": r"^[1-5]([0-9][0-9]|xx)$"},
    "provider": _TEXT,
    "q": _TEXT,
}
STATUSES: dict[str, tuple[str, ...]] = {
    "sessions": ("active", "archived", "closed"),
    "turns": ("queued", "running", "success", "error", "cancelled"),
    "requests": ("running", "success", "error"),
}


# -- parameters and bodies -------------------------------------------------------------------------


def _query(name: str, schema: Json, text: str = "") -> Json:
    told = {"description": text} if text else {}
    return {"name": name, "in": "query", "schema": schema, **told}


def _path(name: str, text: str) -> Json:
    told = {"description": text, "required": True}
    return {"name": name, "in": "path", "schema": {"type": "string"}, **told}


EXPAND = _query("expand", enum("payloads"), "bodies instead of their hash and size")
PAGE = [
    _query("limit", {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}),
    _query("cursor", _TEXT, "the `next_cursor` of the page before"),
    _query("order", {**enum("desc", "asc"), "default": "desc"}),
]
AFTER = [
    _query("after", {"type": "string", "pattern": "^[0-9]{1,18}$"}, "the `seq` to go on after"),
    _query("types", _TEXT, "types of events, with commas between and `*` for any letters"),
    {
        "name": "Last-Event-ID",
        "in": "header",
        "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
        "description": "as `after`, before which it counts",
    },
]


def _filters(noun: str, *left_out: str) -> list[Json]:
    """Those that may be given several times are arrays, of which any value fits."""
    found = []
    for name, kind in filters.NOUNS[noun].items():
        if name in left_out:
            continue
        one = enum(*STATUSES[noun]) if name == "status" else FILTERS[name]
        several = {"type": "array", "items": one, "minItems": 1}
        found.append(_query(name, one if kind.single or name == filters.QUERY else several))
    return found


def _body(schema: Json, *, required: bool) -> Json:
    return {
        "requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}
    }


def _line(most: int) -> Json:
    return {
        "type": ["string", "null"],
        "minLength": 1,
        "maxLength": most,
        "pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$",
    }


def _changeable() -> Json:
    tokens = {"type": ["integer", "null"], "minimum": 1, "maximum": fields.MAX_TOKENS}
    usd = {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": fields.MAX_USD}
    budget = of({"tokens": tokens, "cost_usd": usd}, optional=("tokens", "cost_usd"))
    return {
        "title": _line(fields.MAX_TITLE),
        "metadata": OBJECT,
        "budget": {**budget, "type": ["object", "null"]},
    }


def _opening() -> Json:
    identifier = {"anyOf": [ref("Identifier"), {"type": "null"}]}
    own = {
        "session_key": {"allOf": [identifier, {"not": {"const": "new"}}]},
        "model": _line(fields.MAX_MODEL),
        "end_user_id": identifier,
        "task_id": identifier,
    }
    agents_own = {"agent": _line(fields.MAX_NAME), "mode": enum("chat", "task", None)}
    properties = {**own, **agents_own, **_changeable()}
    return of(properties, optional=tuple(properties))


def _chatting() -> Json:
    properties = {
        "message": {"type": "string", "pattern": r"\S"},
        "sessionId": {"anyOf": [ref("Identifier"), {"type": "null"}]},
        "mode": enum("chat", "task", None),
        "metadata": OBJECT,
        "model": _line(fields.MAX_MODEL),
        "parameters": OBJECT,
        "ifBusy": enum("queue", "reject", "supersede", None),
        "wait": {"type": "number", "minimum": 0, "maximum": fields.MAX_WAIT_SECONDS},
    }
    return of(properties, optional=tuple(name for name in properties if name != "message"))


def _changing() -> Json:
    properties = {**_changeable(), "status": enum("active", "archived", "closed")}
    return of(properties, optional=tuple(properties))


EVENTS = {"text/event-stream": {"schema": {"description": "`data` of each is an Event"}}}


# -- operations ------------------------------------------------------------------------------------


def _operation(
    tag: str, summary: str, answers: Mapping[str, str | None], *codes: str, **more: Any
) -> Json:
    """`answers` are the schemas by status (None: no body), `codes` the refusals to be expected."""
    responses: Json = {}
    for status, schema in answers.items():
        body = {"application/json": {"schema": ref(schema)}} if schema else None
        told = {"content": body} if body else {}
        responses[status] = {"description": summary, **told}
    for code in ("400", "401", "422", *codes):
        responses[code] = {"$ref": f"#/components/responses/Error{code}"}
    responses["default"] = {"$ref": "#/components/responses/Error"}
    return {"tags": [tag], "summary": summary, "responses": responses, **more}


def _get(
    tag: str, summary: str, schema: str, *parameters: Json, codes: tuple[str, ...] = ()
) -> Json:
    return {"get": _operation(tag, summary, {"200": schema}, *codes, parameters=list(parameters))}


def _stream(summary: str, *codes: str) -> Json:
    operation = _operation("events", summary, {"200": None}, "409", "503", *codes, parameters=AFTER)
    operation["responses"]["200"]["content"] = EVENTS
    return {"get": operation}


def _sessions() -> Json:
    listed = _get("sessions", "sessions", "SessionList", *_filters("sessions"), *PAGE)
    opened = _operation(
        "sessions",
        "a new session, or the one that has the key",
        {"200": "Session", "201": "Session"},
        *("409", "413", "415", "503"),
        **_body(_opening(), required=False),
    )
    return {**listed, "post": opened}


def _session() -> Json:
    changed = _operation(
        "sessions",
        "the session as it is now",
        {"200": "Session"},
        *("404", "413", "415", "503"),
        **_body(_changing(), required=True),
    )
    deleted = _operation("sessions", "it is gone", {"204": None}, "404", "503")
    return {
        "parameters": [_SESSION],
        **_get("sessions", "one session", "Session", codes=("404",)),
        "patch": changed,
        "delete": deleted,
    }


_SESSION = _path("session", "an id, or the session's key if there is no `/` in it")


def _fork() -> Json:
    operation = _operation(
        "sessions",
        "a new session that shares the history up to a turn",
        {"201": "Session"},
        *("404", "409", "413", "415", "503"),
        **_body(of({"turn_id": {"type": "string", "minLength": 1}}), required=True),
    )
    return {"parameters": [_SESSION], "post": operation}


def _inside(noun: str, schema: str, *parameters: Json) -> Json:
    listed = _get("sessions", f"{noun} of a session", schema, *parameters, codes=("404",))
    return {"parameters": [_SESSION], **listed}


def _one(tag: str, schema: str, text: str, *parameters: Json) -> Json:
    shown = _get(tag, text, schema, *parameters, codes=("404",))
    return {"parameters": [_path("id", "a minted id")], **shown}


def _chat(summary: str, answers: Mapping[str, str | None]) -> Json:
    codes = ("404", "409", "413", "415", "503")
    operation = _operation("agents", summary, answers, *codes, **_body(_chatting(), required=True))
    return {"parameters": [_AGENT], "post": operation}


def _chat_stream() -> Json:
    item = _chat("the turn's events as they happen, last `chat.response`", {"200": None})
    told = "`data` of each is an Event, of the last a ChatResponse"
    content = {"text/event-stream": {"schema": {"description": told}}}
    item["post"]["responses"]["200"]["content"] = content
    return item


_AGENT = _path("name", "the agent's name")


def _cancel() -> Json:
    operation = _operation(
        "turns",
        "the turn, cancelled",
        {"200": "Turn"},
        *("404", "409", "413", "415", "503"),
        **_body(of({}), required=False),
    )
    return {"parameters": [_path("id", "a minted id")], "post": operation}


def _act(summary: str, answers: Mapping[str, str | None], schema: Json, *, required: bool) -> Json:
    codes = ("404", "409", "413", "415", "503")
    operation = _operation("turns", summary, answers, *codes, **_body(schema, required=required))
    return {"parameters": [_path("id", "a minted id")], "post": operation}


def _deciding() -> Json:
    """What may be given goes by the decision."""
    text = {"type": ["string", "null"]}
    asked_by = {**text, "minLength": 1, "description": "the step of the answer that asked for it"}
    named = {"tool_call_id": _TEXT, "step_id": asked_by}
    arguments = {**OBJECT, "description": "in the place of the model's"}
    reason = {**text, "description": "the model is told"}
    result = {"type": "string", "description": "what the model gets; nothing is run"}
    approve = of(
        {**named, "decision": enum("approve"), "arguments": arguments},
        optional=("step_id", "arguments"),
    )
    deny = of({**named, "decision": enum("deny"), "reason": reason}, optional=("step_id", "reason"))
    give = of({**named, "decision": enum("result"), "result": result}, optional=("step_id",))
    return {"oneOf": [approve, deny, give]}


def _repeating() -> Json:
    properties = {
        "model": _line(fields.MAX_MODEL),
        "parameters": OBJECT,
        "instructions": {"type": ["string", "null"]},
        "message": {"type": ["string", "null"], "pattern": r"\S"},
        "from_step_id": {"type": ["string", "null"], "minLength": 1},
        "reuse": {**enum("results", "none", None), "default": "results"},
    }
    return of(properties, optional=tuple(properties))


def _compact() -> Json:
    operation = _operation(
        "sessions",
        "the session, whose context is shorter now",
        {"200": "Session"},
        *("404", "409", "413", "415", "503"),
        **_body(of({}), required=False),
    )
    return {"parameters": [_SESSION], "post": operation}


def _prune() -> Json:
    texts = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
    properties = {
        "before": {"anyOf": [_TIME, {"type": "null"}]},
        "bodies_before": {"anyOf": [_TIME, {"type": "null"}]},
        "filters": {"type": ["object", "null"], "minProperties": 1, "additionalProperties": texts},
        "legacy": _FLAG,
    }
    codes = ("403", "409", "413", "415", "503")
    body = _body(of(properties, optional=tuple(properties)), required=True)
    return {"post": _operation("server", "what went", {"200": "Pruned"}, *codes, **body)}


def _curl() -> Json:
    operation = _operation("requests", "the request as a curl command", {"200": None}, "404")
    operation["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    return {"parameters": [_path("id", "a minted id")], "get": operation}


def _exports() -> Json:
    """Of what a list has, and of one thing by its id."""
    filtered = {
        "": ("all there is, or of the sessions that fit", _filters("sessions")),
        "/turns": ("the turns that fit", _filters("turns")),
        "/requests": ("the requests that fit", _filters("requests")),
    }
    found = {}
    for path, (what, parameters) in filtered.items():
        found[f"/export{path}"] = _export(what, parameters=parameters)
        found[f"/export{path}/preview"] = _preview(what, parameters=parameters)
    ids = {f"{noun}s/{{id}}": _path("id", "a minted id") for noun in _EXPORTED_NOUNS}
    for path, parameter in ({"sessions/{session}": _SESSION} | ids).items():
        what, of_it = f"the {path.partition('s/')[0]}", {"parameters": [parameter]}
        found[f"/export/{path}"] = of_it | _export(what, "404")
        found[f"/export/{path}/preview"] = of_it | _preview(what, "404")
    return found


def _export(what: str, *codes: str, parameters: Iterable[Json] = ()) -> Json:
    """The document is described by a schema of its own, `docs/bundle.schema.json`."""
    told = f"all that was recorded of {what}, as `xgw export` writes it"
    asked = [*_EXPORTED, *parameters]
    refusals = ("403", "507", *codes)
    operation = _operation("export", told, {"200": None}, *refusals, parameters=asked)
    content = {one.media_type: {"schema": {"type": "string"}} for one in FORMATS.values()}
    content["application/json"] = {"schema": {"type": "object"}}
    operation["responses"]["200"]["content"] = content
    return {"get": operation}


def _import() -> Json:
    """A bundle is described by a schema of its own, too."""
    answers: dict[str, str | None] = {"200": "Import", "201": "Import"}
    codes = ("403", "413", "415")
    name = _query("file", {"type": "string"}, "what the bundle's file is called")
    told = "a bundle taken in, to be read; 200 where it was imported already"
    operation = _operation("imports", told, answers, *codes, parameters=[name])
    content: Json = {kind: {"schema": {}} for kind in BUNDLE_TYPES}
    return {"post": {**operation, "requestBody": {"required": True, "content": content}}}


def _imported() -> Json:
    shown = _get("imports", "one import; under its path it is read", "Import", codes=("403", "404"))
    removed = _operation("imports", "the import removed, for good", {"204": None}, "403", "404")
    return {"parameters": [_path("id", "of an import")], **shown, "delete": removed}


def _preview(what: str, *codes: str, parameters: Iterable[Json] = ()) -> Json:
    told = f"what an export of {what} would hold, and what is masked in it"
    answers: dict[str, str | None] = {"200": "ExportPreview"}
    asked = [*_EXPORTED, *parameters]
    return {"get": _operation("export", told, answers, "403", *codes, parameters=asked)}


_EXPORTED_NOUNS = ("turn", "run", "step", "request")
_EXPORTED = [
    _query("format", {**enum(*FORMATS), "default": DEFAULT}),
    _query("bodies", {**_FLAG, "default": True}, "false: lengths and hashes of what was said"),
    _query("redact", {**_FLAG, "default": True}, "false: secrets as they are; for the token"),
]


def paths() -> Json:
    """Every path of the API with its operations."""
    group = _query("group", {**enum("day", "model", "provider", "agent"), "default": "day"})
    bounds = [_query("since", _TIME), _query("until", _TIME)]
    turns = [*_filters("turns", "session_id"), *PAGE, EXPAND]
    requests = [*_filters("requests", "session_id"), *PAGE, EXPAND]
    all_requests = [*_filters("requests"), *PAGE, EXPAND]
    health = _get("server", "whether all is well", "Health")
    health["get"]["security"] = []
    described = _operation("server", "this document", {"200": None})
    described["responses"]["200"]["content"] = {"application/json": {"schema": {"type": "object"}}}
    answered = {"200": "ChatResponse", "202": "ChatResponse"}
    told = "what the next call of the session would send, part by part"
    context = _get("sessions", told, "Context", EXPAND, codes=("404",))
    agent = _get("agents", "one agent", "Agent", codes=("404",))
    what_was_imported = "what was imported, the newest first"
    return {
        "/agents": _get("agents", "every agent", "AgentList"),
        "/agents/{name}": {"parameters": [_AGENT], **agent},
        "/agents/{name}/chat": _chat("the answer; 202 if it is not there yet", answered),
        "/agents/{name}/chat/stream": _chat_stream(),
        "/sessions": _sessions(),
        "/sessions/{session}": _session(),
        "/sessions/{session}/fork": _fork(),
        "/sessions/{session}/messages": _inside("messages", "MessageList", *PAGE),
        "/sessions/{session}/turns": _inside("turns", "TurnList", *turns),
        "/sessions/{session}/steps": _inside("steps", "StepList", *PAGE, EXPAND),
        "/sessions/{session}/requests": _inside("requests", "RequestList", *requests),
        "/sessions/{session}/events": {"parameters": [_SESSION], **_stream("its events", "404")},
        "/sessions/{session}/context": {"parameters": [_SESSION], **context},
        "/sessions/{session}/compact": _compact(),
        "/turns": _get("turns", "turns", "TurnList", *_filters("turns"), *PAGE, EXPAND),
        "/turns/{id}": _one("turns", "Turn", "one turn with its runs and steps", EXPAND),
        "/turns/{id}/cancel": _cancel(),
        "/turns/{id}/runs": _act(
            "the turn run once more: the new run", {"201": "Run"}, _repeating(), required=False
        ),
        "/runs/{id}/approvals": _act(
            "a person's decision about a call: the run", {"200": "Run"}, _deciding(), required=True
        ),
        "/runs/{id}/resume": _act(
            "the run that goes on in its place", {"201": "Run"}, of({}), required=False
        ),
        "/runs/{id}": _one("turns", "Run", "one run with its steps", EXPAND),
        "/steps/{id}": _one("turns", "Step", "one step with its bodies", EXPAND),
        "/requests": _get("requests", "requests", "RequestList", *all_requests),
        "/requests/{id}": _one("requests", "Request", "one request", EXPAND),
        "/requests/{id}/curl": _curl(),
        **_exports(),
        "/import": _import(),
        "/imports": _get("imports", what_was_imported, "ImportList", codes=("403",)),
        "/imports/{id}": _imported(),
        "/events": _stream("events as they happen"),
        "/stats": _get("stats", "sums and latencies", "Stats", group, *bounds),
        "/prune": _prune(),
        "/health": health,
        "/openapi.json": {"get": described},
    }
