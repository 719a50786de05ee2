"""The fields of requests' bodies and payloads: read once, each checked, none that is not known.

Every mistake is an ApiError 422 that names the field in `param`.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from flask import request

from xgw import ids
from xgw.config import check_parameters
from xgw.errors import bad_request, unprocessable
from xgw.web.api import edge
from xgw.web.bodies import parse_json, read_body

MAX_TITLE = 500
MAX_MODEL = 256
MAX_METADATA_BYTES = 65536
MAX_TOKENS = 1 << 53
MAX_USD = 1e9
MAX_NAME = 64
MAX_WAIT_SECONDS = 3600
MAX_SEQ = (1 << 63) - 1

_UNSEEN = frozenset({"Zs", "Zl", "Zp", "Cf"})
"""The categories of characters that leave nothing to be seen, by themselves."""

Json = dict[str, Any]
Check = Callable[[str, Any], Any]


def read(checks: Mapping[str, Check], *, needed: bool = False) -> Json:
    """The fields of the request's JSON object, each checked; {} for no body, unless `needed`."""
    content = read_body(request.environ, edge.services().config.config.server.max_body_bytes)
    if not content and not needed:
        return {}
    body = parse_json(content)
    if not isinstance(body, dict):
        raise bad_request("the body must be a JSON object")
    return checked(body, checks)


def checked(given: Json, checks: Mapping[str, Check]) -> Json:
    """The fields of an object, each checked."""
    for name in given:
        if name not in checks:
            raise unprocessable(f"there is no field {name[:64]!r} here", param=name[:64])
    return {name: checks[name](name, value) for name, value in given.items()}


def required(given: Json, name: str) -> Any:
    """A field that must be there."""
    if name not in given:
        raise unprocessable(f"{name} must be given", param=name)
    return given[name]


def identifier(name: str, value: Any) -> str | None:
    """An identifier that a client chooses, or null."""
    given = _identifier(name, value)
    if given is not None and edge.services().masker.identifier(given) != given:
        raise unprocessable(f"{name}: it holds a key, which is not stored", param=name)
    return given


def label(name: str, value: Any) -> str | None:
    """An identifier that is only shown and looked for, without secrets, or null."""
    given = _identifier(name, value)
    return None if given is None else edge.services().masker.identifier(given)


def session_key(name: str, value: Any) -> str | None:
    """An identifier; `new` is how a request asks for a session without one."""
    key = identifier(name, value)
    if key == "new":
        raise unprocessable(f"{name}: leave it out to have one made", param=name)
    return key


def line(most: int) -> Check:
    """One line of text, or null."""

    def check(name: str, value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not 1 <= len(value) <= most:
            raise unprocessable(f"{name} must be a text of 1 to {most} characters", param=name)
        if any(unicodedata.category(character) == "Cc" for character in value):
            raise unprocessable(f"{name} must not hold control characters", param=name)
        if all(unicodedata.category(character) in _UNSEEN for character in value):
            raise unprocessable(f"{name} must hold something that can be seen", param=name)
        return value

    return check


def title(name: str, value: Any) -> str | None:
    """A line without secrets, or null."""
    given = line(MAX_TITLE)(name, value)
    return None if given is None else edge.services().masker.text(given)


def choice(*known: str) -> Check:
    """One of a few words."""

    def check(name: str, value: Any) -> str:
        if value not in known:
            raise unprocessable(f"{name} must be one of {', '.join(known)}", param=name)
        return str(value)

    return check


def metadata(name: str, value: Any) -> Json | None:
    """A JSON object of bounded size, without secrets, or null."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise unprocessable(f"{name} must be an object", param=name)
    if len(orjson.dumps(value)) > MAX_METADATA_BYTES:
        raise unprocessable(f"{name} must not be over {MAX_METADATA_BYTES} bytes", param=name)
    return {**edge.services().masker.value(value)}


def budget(name: str, value: Any) -> Json | None:
    """`{tokens, cost_usd}`, each a limit or null; null for none of them."""
    if value is None:
        return None
    if not isinstance(value, dict) or value.keys() - {"tokens", "cost_usd"}:
        raise unprocessable(f"{name} must be an object of tokens and cost_usd", param=name)
    tokens, usd = value.get("tokens"), value.get("cost_usd")
    if tokens is not None and not (_is_whole(tokens) and 1 <= tokens <= MAX_TOKENS):
        most = f"{MAX_TOKENS:,}"
        raise unprocessable(f"{name}.tokens must be a whole number from 1 to {most}", param=name)
    if usd is not None and not (_is_number(usd) and 0 < usd <= MAX_USD):
        most = f"{MAX_USD:,.0f}"
        raise unprocessable(f"{name}.cost_usd must be above 0, at most {most}", param=name)
    return {"tokens": None if tokens is None else int(tokens), "cost_usd": usd}


def message(name: str, value: Any) -> str:
    """What is said to an agent."""
    if not isinstance(value, str) or not value.strip():
        raise unprocessable(f"{name} must be a text that is not empty", param=name)
    return value


def parameters(name: str, value: Any) -> Json:
    """What a model is asked with besides the conversation; null for nothing."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise unprocessable(f"{name} must be an object", param=name)
    try:
        return check_parameters(value)
    except ValueError as error:
        raise unprocessable(f"{name} {error}", param=name) from None


def seconds(name: str, value: Any) -> float:
    """How long to wait; 0 is not at all."""
    if not _is_number(value) or not 0 <= value <= MAX_WAIT_SECONDS:
        most = MAX_WAIT_SECONDS
        raise unprocessable(f"{name} must be a number of seconds up to {most}", param=name)
    return float(value)


def one_of(*known: str) -> Check:
    """One of a few words, or null."""

    def check(name: str, value: Any) -> str | None:
        return None if value is None else choice(*known)(name, value)

    return check


def reference(name: str, value: Any) -> str:
    """An id or a key of something that is there."""
    if not isinstance(value, str) or not value:
        raise unprocessable(f"{name} must be a text", param=name)
    return value


def arguments(name: str, value: Any) -> Json | None:
    """The arguments of a tool, or null for those that it was asked for with."""
    if value is not None and not isinstance(value, dict):
        raise unprocessable(f"{name} must be an object", param=name)
    return value


def text(name: str, value: Any) -> str:
    """Any text."""
    if not isinstance(value, str):
        raise unprocessable(f"{name} must be a text", param=name)
    return value


def nullable(check: Check) -> Check:
    """The same, or null."""
    return lambda name, value: None if value is None else check(name, value)


def flag(name: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise unprocessable(f"{name} must be true or false", param=name)
    return value


def seq(name: str, value: Any) -> int | None:
    """The `seq` of an event, 0 for before the first, or null."""
    if value is None:
        return None
    if not (_is_whole(value) and 0 <= value <= MAX_SEQ):
        raise unprocessable(f"{name} must be the seq of an event, or 0", param=name)
    return int(value)


def _identifier(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise unprocessable(f"{name} must be a string", param=name)
    try:
        return ids.client_identifier(value)
    except ValueError as error:
        raise unprocessable(f"{name}: {error}", param=name) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    """JSON has one kind of number: 5.0 is 5."""
    return _is_number(value) and value == int(value)


STATUS = choice("active", "archived", "closed")
MODE = one_of("chat", "task")

OPENING: Mapping[str, Check] = {
    "session_key": session_key,
    "title": title,
    "model": line(MAX_MODEL),
    "metadata": metadata,
    "end_user_id": label,
    "task_id": label,
    "budget": budget,
    "agent": line(MAX_NAME),
    "mode": MODE,
}
"""What `POST /sessions` takes."""

CHATTING: Mapping[str, Check] = {
    "message": message,
    "sessionId": identifier,
    "mode": MODE,
    "metadata": metadata,
    "model": line(MAX_MODEL),
    "parameters": parameters,
    "ifBusy": one_of("queue", "reject", "supersede"),
    "wait": seconds,
}
"""What `POST /agents/{name}/chat` takes."""

CHANGING: Mapping[str, Check] = {
    "title": title,
    "status": STATUS,
    "metadata": metadata,
    "budget": budget,
}
"""What `PATCH /sessions/{id}` takes."""

FOLLOWING: Mapping[str, Check] = {"session_id": reference, "after": seq, "deltas": flag}
"""What `session.subscribe` takes."""

NAMING_SESSION: Mapping[str, Check] = {"session_id": reference}
SENDING: Mapping[str, Check] = {
    "agent": reference,
    "session_id": identifier,
    "message": message,
    "mode": MODE,
}
"""What `session.message.send` takes."""

DECIDING: Mapping[str, Check] = {
    "tool_call_id": reference,
    "step_id": nullable(reference),
    "decision": choice("approve", "deny", "result"),
    "arguments": arguments,
    "reason": nullable(text),
    "result": text,
}
"""What `POST /runs/{id}/approvals` takes."""

REPEATING: Mapping[str, Check] = {
    "model": line(MAX_MODEL),
    "parameters": nullable(parameters),
    "instructions": nullable(text),
    "message": nullable(message),
    "from_step_id": nullable(reference),
    "reuse": one_of("results", "none"),
}
"""What `POST /turns/{id}/runs` takes."""

NAMING_RUN: Mapping[str, Check] = {"run_id": reference}
NAMING_TURN: Mapping[str, Check] = {"turn_id": reference}
