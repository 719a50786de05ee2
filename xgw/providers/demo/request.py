"""Chat requests as the demo reads them: checked as a provider would, reduced to what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from xgw.errors import ApiError, bad_request

MAX_CHOICES = 8
MAX_STOPS = 4


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's result that the client sent back."""

    tool_call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A checked chat request.

    `said` are the texts of all user messages, the last one is the prompt. `results` and `asked`
    (name and arguments by tool call id) are those since that message. `tool_choice` is `auto`,
    `none` or `required`, `forced` the name of the only function that may be called. `schema` is
    what the answer must fit: `{}` for any JSON, None for prose.
    """

    model: str
    messages: list[dict[str, Any]]
    said: tuple[str, ...]
    images: int
    results: tuple[ToolResult, ...]
    asked: dict[str, tuple[str, str]]
    functions: tuple[dict[str, Any], ...]
    tool_choice: str
    forced: str | None
    parallel: bool
    schema: dict[str, Any] | None
    choices: int
    stop: tuple[str, ...]
    max_tokens: int | None
    stream: bool
    include_usage: bool

    @property
    def prompt(self) -> str:
        """The text of the last user message."""
        return self.said[-1] if self.said else ""


def parse_body(raw: bytes) -> dict[str, Any]:
    """A request body with a model name in it; ApiError 400 where it is not one."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(body, dict):
        raise bad_request("The body must be a JSON object.", code="invalid_json")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise bad_request("You must provide a model parameter.", param="model")
    return body


def parse_chat(body: dict[str, Any]) -> ChatRequest:
    """The chat request that a body holds; ApiError 400 naming the parameter where it is wrong."""
    messages = _messages(body)
    functions = _functions(body)
    tool_choice, forced = _tool_choice(body, functions)
    stream = _flag(body, "stream")
    tail = _tail(messages)
    last: dict[str, Any] = next((m for m in reversed(messages) if m["role"] == "user"), {})
    return ChatRequest(
        model=body["model"],
        messages=messages,
        said=tuple(_text_of(m.get("content")) for m in messages if m["role"] == "user"),
        images=sum(1 for part in _parts(last) if "image" in str(part.get("type"))),
        results=tuple(
            ToolResult(str(m.get("tool_call_id")), _text_of(m.get("content")))
            for m in tail
            if m["role"] == "tool"
        ),
        asked={call_id: call for m in tail for call_id, call in _calls(m)},
        functions=functions,
        tool_choice=tool_choice,
        forced=forced,
        parallel=body.get("parallel_tool_calls") is not False,
        schema=_schema(body),
        choices=_count(body, "n", MAX_CHOICES) or 1,
        stop=_stops(body),
        max_tokens=_count(body, "max_completion_tokens") or _count(body, "max_tokens"),
        stream=stream,
        include_usage=_includes_usage(body, stream),
    )


def _wrong(param: str, message: str) -> ApiError:
    return bad_request(message, param=param, code="invalid_value")


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", "'messages' must be a list of at least one message.")
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _wrong(f"messages[{number}]", "Each message must be an object with a role.")
    return messages


def _tail(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages after the last user message."""
    last = max((n for n, message in enumerate(messages) if message["role"] == "user"), default=-1)
    return messages[last + 1 :]


def _parts(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    yield from (p for p in content if isinstance(p, dict)) if isinstance(content, list) else ()


def _text_of(content: object) -> str:
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _calls(message: dict[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            name, arguments = str(function.get("name")), str(function.get("arguments") or "")
            yield str(call.get("id")), (name, arguments)


def _functions(body: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The offered functions; tools of other types are accepted and never called."""
    tools = body.get("tools")
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise _wrong("tools", "'tools' must be a list.")
    functions = [t.get("function") for t in tools if isinstance(t, dict) and "function" in t]
    for function in functions:
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise _wrong("tools", "Each function must be an object with a name.")
    return tuple(f for f in functions if isinstance(f, dict))


def _tool_choice(
    body: dict[str, Any], functions: tuple[dict[str, Any], ...]
) -> tuple[str, str | None]:
    choice = body.get("tool_choice")
    if choice in (None, "auto", "none", "required"):
        if choice == "required" and not functions:
            raise _wrong("tool_choice", "'tool_choice' is only allowed when 'tools' are specified.")
        return choice or "auto", None
    named = choice.get("function") if isinstance(choice, dict) else None
    name = named.get("name") if isinstance(named, dict) else None
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = choice.get("allowed_tools")
        required = isinstance(allowed, dict) and allowed.get("mode") == "required"
        return ("required" if required and functions else "auto"), None
    if not any(function["name"] == name for function in functions):
        raise _wrong("tool_choice", f"The function {name!r} is not among the tools.")
    return "required", name


def _schema(body: dict[str, Any]) -> dict[str, Any] | None:
    wanted = body.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if wanted is None or kind == "text":
        return None
    if kind == "json_object":
        return {}
    named = wanted.get("json_schema") if isinstance(wanted, dict) else None
    schema = named.get("schema") if isinstance(named, dict) else None
    if kind != "json_schema" or not isinstance(schema, dict):
        raise _wrong(
            "response_format", "'response_format' must be text, json_object or json_schema."
        )
    return schema


def _count(body: dict[str, Any], param: str, most: int | None = None) -> int | None:
    value = body.get(param)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _wrong(param, f"'{param}' must be a whole number from 1.")
    if most is not None and value > most:
        raise _wrong(param, f"'{param}' can be {most} at most.")
    return value


def _flag(body: dict[str, Any], param: str) -> bool:
    value = body.get(param)
    if value is not None and not isinstance(value, bool):
        raise _wrong(param, f"'{param}' must be true or false.")
    return bool(value)


def _stops(body: dict[str, Any]) -> tuple[str, ...]:
    given = body.get("stop")
    stops = given if isinstance(given, list) else [] if given is None else [given]
    if len(stops) > MAX_STOPS or not all(isinstance(stop, str) for stop in stops):
        raise _wrong("stop", f"'stop' must be a text or a list of at most {MAX_STOPS} texts.")
    return tuple(stop for stop in stops if stop)


def _includes_usage(body: dict[str, Any], stream: bool) -> bool:
    options = body.get("stream_options")
    if options is None:
        return False
    if not stream:
        raise _wrong("stream_options", "'stream_options' is only allowed when 'stream' is enabled.")
    if not isinstance(options, dict):
        raise _wrong("stream_options", "'stream_options' must be an object.")
    return _flag(options, "include_usage")
