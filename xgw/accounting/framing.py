"""How much a chat request weighs beyond its texts: the framing of messages, tools and images.

OpenAI's published rules (cookbook, "How to count tokens with tiktoken"); an estimate for everyone
else. Every function takes `count`, which counts a text. Left out, because no rule is published:
tool call ids, reasoning that is sent back, audio and files. Nothing here raises on odd content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

MESSAGE_TOKENS = 3
NAME_TOKENS = 1
PRIMING_TOKENS = 3
TOOL_CALL_TOKENS = 3

# The size of an image is rarely known here: 85 at low detail, else 85 and four tiles of 170, which
# is what 1024 × 1024 pixels cost.
IMAGE_LOW_TOKENS = 85
IMAGE_TOKENS = 765

PROPERTIES_TOKENS = 3
PROPERTY_TOKENS = 3
ENUM_TOKENS = -3
ENUM_VALUE_TOKENS = 3
TOOLS_END_TOKENS = 12

MAX_SCHEMA_DEPTH = 16

_IMAGE_PARTS = frozenset({"image_url", "input_image", "image"})
_UNCOUNTED_PARTS = frozenset({"input_audio", "audio", "file", "input_file"})

Count = Callable[[str], int]


def message_tokens(message: object, count: Count) -> int:
    """Tokens of one chat message: role, content, name, refusal and tool calls, with its framing."""
    if not isinstance(message, dict):
        return MESSAGE_TOKENS + _content_tokens(message, count)
    tokens = MESSAGE_TOKENS + _content_tokens(message.get("content"), count)
    tokens += count(_text_of(message.get("role")))
    if message.get("refusal") is not None:
        tokens += count(_text_of(message["refusal"]))
    if message.get("name") is not None:
        tokens += NAME_TOKENS + count(_text_of(message["name"]))
    if message.get("tool_calls") is None and message.get("function_call") is None:
        return tokens
    return tokens + sum(count(text) + TOOL_CALL_TOKENS for text in _call_texts(message))


def tools_tokens(tools: Iterable[object], function_tokens: int, count: Count) -> int:
    """Tokens of a request's tool definitions; `function_tokens` is what starting each one costs."""
    return TOOLS_END_TOKENS + sum(function_tokens + _tool_tokens(tool, count) for tool in tools)


def _text_of(value: object) -> str:
    """A text as it is, nothing for null, anything else as JSON where it has one."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return ""


def _content_tokens(content: object, count: Count) -> int:
    if isinstance(content, (list, tuple)):
        return sum(_part_tokens(part, count) for part in content)
    return count(_text_of(content))


def _part_tokens(part: object, count: Count) -> int:
    if not isinstance(part, dict):
        return count(_text_of(part))
    kind = part.get("type")
    if isinstance(kind, str) and kind in _IMAGE_PARTS:
        image = part.get("image_url")
        detail = image.get("detail") if isinstance(image, dict) else part.get("detail")
        return IMAGE_LOW_TOKENS if detail == "low" else IMAGE_TOKENS
    if isinstance(kind, str) and kind in _UNCOUNTED_PARTS:
        return 0
    text = next((part[key] for key in ("text", "refusal", "content") if key in part), None)
    return count(_text_of(text))


def _call_texts(message: dict[str, Any]) -> Iterator[str]:
    """Name and arguments of each tool call of a message."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        called = call.get("function") or call.get("custom") if isinstance(call, dict) else None
        if isinstance(called, dict):
            arguments = called.get("arguments", called.get("input"))
            yield _text_of(called.get("name")) + _text_of(arguments)
    old = message.get("function_call")
    if isinstance(old, dict):
        yield _text_of(old.get("name")) + _text_of(old.get("arguments"))


def _tool_tokens(tool: object, count: Count) -> int:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        return count(_text_of(tool))
    line = f"{_text_of(function.get('name'))}:{_description(function)}"
    return count(line) + _schema_tokens(function.get("parameters"), count)


def _description(described: dict[str, Any]) -> str:
    return _text_of(described.get("description")).removesuffix(".")


def _schema_tokens(schema: object, count: Count, depth: int = 0) -> int:
    """The published rule for an object's properties, applied to nested schemas as well."""
    if not isinstance(schema, dict) or depth > MAX_SCHEMA_DEPTH:
        return 0
    tokens = 0
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties:
        tokens += PROPERTIES_TOKENS
        tokens += sum(_property_tokens(name, p, count) for name, p in properties.items())
    return tokens + sum(_schema_tokens(nested, count, depth + 1) for nested in _nested(schema))


def _property_tokens(name: object, schema: object, count: Count) -> int:
    if not isinstance(schema, dict):
        return PROPERTY_TOKENS + count(_text_of(name))
    tokens = PROPERTY_TOKENS
    values = schema.get("enum")
    if isinstance(values, list):
        tokens += ENUM_TOKENS + sum(ENUM_VALUE_TOKENS + count(_text_of(v)) for v in values)
    line = f"{_text_of(name)}:{_text_of(schema.get('type'))}:{_description(schema)}"
    return tokens + count(line)


def _nested(schema: dict[str, Any]) -> Iterator[object]:
    for key in ("properties", "$defs", "definitions"):
        group = schema.get(key)
        yield from group.values() if isinstance(group, dict) else ()
    for key in ("anyOf", "oneOf", "allOf"):
        group = schema.get(key)
        yield from group if isinstance(group, list) else ()
    yield schema.get("items")
