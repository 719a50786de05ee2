"""The demo's prompt size and prompt cache: how many tokens of a prompt were seen before.

A token is four bytes here. Like real providers it caches whole blocks of 128 tokens from the start
of the prompt (tools first, then messages), but from the first block on instead of from 1,024, so
that short conversations show hits too.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import orjson

TOKEN_BYTES = 4
BLOCK_TOKENS = 128
MESSAGE_TOKENS = 4
MAX_BLOCKS = 32_768

# An image or another part weighs at most this much, whatever the length of its data.
MAX_PART_BYTES = 765 * TOKEN_BYTES


class PromptCache:
    """Prefixes of earlier prompts, the least recently used dropped first."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, model: str, prompt: bytes) -> int:
        """Tokens of the prompt's longest known prefix; the prompt is known from now on."""
        size = BLOCK_TOKENS * TOKEN_BYTES
        chain = blake2b(model.encode("utf-8", "replace"), digest_size=16)
        known = 0
        unbroken = True
        for start in range(0, len(prompt) - size + 1, size)[:MAX_BLOCKS]:
            chain.update(prompt[start : start + size])
            unbroken = self._touch(chain.digest()) and unbroken
            known += BLOCK_TOKENS if unbroken else 0
        return known

    def _touch(self, block: bytes) -> bool:
        with self._lock:
            seen = block in self._blocks
            self._blocks[block] = None
            self._blocks.move_to_end(block)
            while len(self._blocks) > MAX_BLOCKS:
                self._blocks.popitem(last=False)
        return seen


def render_prompt(tools: Sequence[Any], messages: Sequence[dict[str, Any]]) -> bytes:
    """The bytes that stand for a prompt, in the order in which a provider would read them."""
    parts = [orjson.dumps(tool) for tool in tools]
    for message in messages:
        content = message.get("content")
        parts.append(str(message.get("role")).encode("utf-8", "replace"))
        for part in content if isinstance(content, list) else [content]:
            parts.append(_render(part))
        if message.get("tool_calls"):
            parts.append(orjson.dumps(message["tool_calls"]))
    return b"\n".join(parts)


def prompt_tokens(prompt: bytes, messages: int) -> int:
    """Tokens of a rendered prompt of so many messages, with their framing."""
    return -(-len(prompt) // TOKEN_BYTES) + MESSAGE_TOKENS * messages


def _render(part: object) -> bytes:
    if isinstance(part, str):
        return part.encode("utf-8", "replace")
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"]).encode("utf-8", "replace")
    return b"" if part is None else orjson.dumps(part)[:MAX_PART_BYTES]
