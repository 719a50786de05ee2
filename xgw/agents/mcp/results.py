"""What an MCP tool returned, as text for the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from mcp.types import CallToolResult


def text_of(result: CallToolResult) -> str:
    """Its texts, a line for what is none, and its structured content where no text says it."""
    parts = [_part(block) for block in result.content]
    structured = result.structured_content
    if structured is not None and not _says(parts, structured):
        parts.append(orjson.dumps(structured).decode())
    return "\n".join(parts)


def _part(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type in ("image", "audio"):
        return f"[{block.type} {block.mime_type}, {_size(block.data)} bytes]"
    if block.type == "resource_link":
        return f"[resource {block.name} at {block.uri}]"
    held = block.resource
    if hasattr(held, "text"):
        return str(held.text)
    return f"[resource {held.uri}, {held.mime_type or 'binary'}, {_size(held.blob)} bytes]"


def _size(base64: str) -> int:
    """How many bytes that stands for."""
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _says(texts: Iterable[str], structured: Any) -> bool:
    """Whether one of them is it as JSON, or the one value that it holds."""
    if isinstance(structured, dict) and list(structured) == ["result"]:
        structured = structured["result"]  # how servers make an object of what is none
    return any(structured in (text, _parsed(text)) for text in texts)


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return ...
