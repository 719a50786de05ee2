"""Events' payloads as the store has them: packed where they have a layout, JSON text where not.

What is packed is MessagePack. In it bytes stand for what takes more room in words: one byte for a
word that is often said, eight for a time, sixteen for a long text's hash, seventeen for an id.
Words in use keep their numbers for good; new ones are added.
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from xgw import clock, ids
from xgw.store.digits import DIGITS, packed_digits

WORDS: tuple[str, ...] = (
    "success",
    "error",
    "cancelled",
    "running",
    "finished",
    "provider",
    "estimated",
    "partial",
    "stop",
    "length",
    "tool_calls",
    "content_filter",
    "message",
    "tool_call",
    "tool_result",
    "status",
    "user",
    "assistant",
    "system",
    "tool",
    "first",
    "resume",
    "rerun",
    "llm_call",
    "initial",
    "retry",
    "fallback",
    "give_up",
    "waiting_tool",
    "superseded",
    "client_disconnect",
    "user_cancel",
    "turn_key",
    "openai",
    "demo",
)
_BY_WORD = {word: bytes([number]) for number, word in enumerate(WORDS)}
_BY_PREFIX = {prefix: bytes([number]) for number, prefix in enumerate(ids.PREFIXES)}

_TIME_LENGTH = len("2026-01-02T03:04:05.123456Z")
_ID_LENGTHS = frozenset(len(prefix) + 1 + DIGITS for prefix in ids.PREFIXES)
_LENGTHS = _ID_LENGTHS | {_TIME_LENGTH}
_WORD, _TIME, _HASH = 1, 8, 16

_WORDY = frozenset({str, dict})
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def packed(laid: dict[str, Any] | list[Any]) -> str | bytes:
    """What is written of a payload that was laid out."""
    if isinstance(laid, dict):
        return orjson.dumps(laid).decode()
    return _encode([_short(value) if type(value) in _WORDY else value for value in laid])


def unpacked(kept: str | bytes) -> Any:
    """The payload, laid out, of which this was written."""
    if isinstance(kept, str):
        return orjson.loads(kept)
    return [_whole(value) if isinstance(value, bytes) else value for value in _decode(kept)]


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return _BY_WORD.get(value) or (_short_text(value) if len(value) in _LENGTHS else value)
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("payload"), str):
        return packed_digits(value["payload"]) or value
    return value


def _short_text(text: str) -> str | bytes:
    if len(text) == _TIME_LENGTH:
        return _short_time(text) or text
    prefix, _, digits = text.partition("_")
    number, id = _BY_PREFIX.get(prefix), packed_digits(digits)
    return text if number is None or id is None else number + id


@lru_cache(maxsize=256)
def _short_time(text: str) -> bytes | None:
    """The microseconds since 1970, if that is all that the text says."""
    if not text.endswith("Z"):
        return None
    try:
        passed = clock.to_microseconds(datetime.datetime.fromisoformat(text[:-1]))
    except ValueError:
        return None
    kept = passed.to_bytes(_TIME, "big", signed=True)
    return kept if _whole(kept) == text else None


def _whole(kept: bytes) -> Any:
    if len(kept) == _WORD:
        return WORDS[kept[0]]
    if len(kept) == _TIME:
        passed = int.from_bytes(kept, "big", signed=True)
        return clock.to_rfc3339(clock.from_microseconds(passed))
    if len(kept) == _HASH:
        return {"payload": kept.hex()}
    return f"{ids.PREFIXES[kept[0]]}_{kept[1:].hex()}"
