"""What was said, as text: contents, their parts, JSON set out so that it can be read."""

from __future__ import annotations

import json
from typing import Any

from xgw.portable.formats.shelf import Row, Shelf
from xgw.queries.wording import media_words

_LONGEST_SET_OUT = 200_000


def content_of(shelf: Shelf, message: Row) -> Any:
    """What a message says: its text, or its parts one after the other; as left out."""
    content, parts = message["content"], message["parts"]
    if parts is None or left_out(parts):
        return parts if content is None else content
    listed = parts.get("content") if isinstance(parts, dict) else parts
    if isinstance(listed, list):
        return "\n".join(_part(shelf, part) for part in listed)
    if content is not None or not isinstance(parts, dict):
        return parts if content is None else content
    # Fields that hold nothing, as `annotations` mostly do, say nothing.
    return {name: value for name, value in parts.items() if value not in (None, "", [], {})} or None


def _part(shelf: Shelf, part: Any) -> str:
    if not isinstance(part, dict):
        return str(part)
    if isinstance(part.get("payload"), str):
        return _of_payload(shelf, part)
    if isinstance(part.get("text"), str):
        return str(part["text"])
    media = media_words(part)
    return f"({': '.join(media)})" if media else json.dumps(part, ensure_ascii=False)


def _of_payload(shelf: Shelf, part: dict[str, Any]) -> str:
    told = shelf.text(part["payload"])
    kind = part.get("type") or "part"
    if told is None:
        return f"({kind}, left out)"
    if kind == "text" or len(told) < 2000:
        return told
    return f"({kind}, {len(told):,} characters, payload {part['payload']})"


def left_out(value: Any) -> str:
    """That a content was left out, and how long it was; nothing where it is there."""
    if isinstance(value, dict) and value.keys() == {"length", "hash"}:
        return f"{value['length']:,} characters, left out (hash {value['hash']})"
    return ""


def pretty(value: Any) -> str:
    """A text as it is, JSON set out: `{"a":1}` over several lines if it is long."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, indent=2)
    if not value.lstrip().startswith(("{", "[")) or not 60 < len(value) < _LONGEST_SET_OUT:
        return value
    try:
        return json.dumps(json.loads(value), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return value
