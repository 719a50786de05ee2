"""Events' payloads as the store has them: packed where they have a layout, JSON text where not.

What is packed is MessagePack. In it bytes stand for what takes more room in words: one byte for a
word that is often said, eight for a time, sixteen for a long text's hash, seventeen for an id.
Words in use keep their numbers for good; new ones are added.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from xgw import clock, ids
from xgw.events import TEXTS, is_surely_short
from xgw.store.digits import DIGITS, packed_digits, packed_hash
from xgw.store.layouts import LAYOUTS, without_known
from xgw.store.templates import LONG

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

# The first place is the layout's number.
_PLACES = {number: ("", *fields) for number, fields in LAYOUTS.items()}

Keep = Callable[[str], str]
"""Returns the hash under which a text is kept."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def packed(laid: dict[str, Any] | list[Any]) -> str | bytes:
    """What is written of a payload that was laid out."""
    if isinstance(laid, dict):
        return orjson.dumps(laid).decode()
    values: list[Any] = []
    for value in laid:
        kind = type(value)
        if kind is str:
            if value in _BY_WORD:
                value = _BY_WORD[value]
            elif len(value) in _LENGTHS:
                value = _short_text(value)
        elif kind is dict:
            value = _short_reference(value)
        values.append(value)
    return _encode(values)


def packed_at_once(
    number: int, payload: dict[str, Any], turn_id: str | None, session_id: str | None, keep: Keep
) -> bytes | None:
    """What is written of a payload of this layout, its long texts kept by themselves.

    It comes to the same as `shortened`, `laid_out` and `packed` do one after the other, and looks
    at each value once. The ids are the event's own. None where there is perhaps a
    text to be cut, or something inside of a value: few have either.
    """
    laid = without_known([number, *payload.values()], turn_id, session_id)
    names = _PLACES[number]
    for place, value in enumerate(laid):
        kind = type(value)
        if kind is str:
            length = len(value)
            if length in _LENGTHS:
                laid[place] = _short_text(value)
            elif length < LONG:
                laid[place] = _BY_WORD.get(value, value)
            elif not is_surely_short(value):
                return None
            elif names[place] in TEXTS:
                laid[place] = packed_hash(keep(value))
        elif kind is dict or kind is list:
            return None
    return _encode(laid)


def unpacked(kept: str | bytes) -> Any:
    """The payload, laid out, of which this was written."""
    if isinstance(kept, str):
        return orjson.loads(kept)
    return [_whole(value) if isinstance(value, bytes) else value for value in _decode(kept)]


def _short_reference(value: dict[str, Any]) -> Any:
    key = value.get("payload") if len(value) == 1 else None
    return packed_digits(key) or value if isinstance(key, str) else value


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
        moment = datetime.datetime.fromisoformat(text[:-1])
    except ValueError:
        return None
    if moment.tzinfo is not None or clock.to_rfc3339(moment) != text:
        return None
    return clock.to_microseconds(moment).to_bytes(_TIME, "big", signed=True)


def _whole(kept: bytes) -> Any:
    if len(kept) == _WORD:
        return WORDS[kept[0]]
    if len(kept) == _TIME:
        passed = int.from_bytes(kept, "big", signed=True)
        return clock.to_rfc3339(clock.from_microseconds(passed))
    if len(kept) == _HASH:
        return {"payload": kept.hex()}
    return f"{ids.PREFIXES[kept[0]]}_{kept[1:].hex()}"
