"""What a chat answer says about itself, in the words of all providers: token counts and its end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from xgw.providers.dialects.loose_json import encodable, json_text, storable
from xgw.values import Usage

# Sums of a few of them still are integers of the store, and of JSON's readers.
_LARGEST_COUNT = 2**53 - 1

_WITHOUT_DETAILS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
"""All that most servers say besides OpenAI's own."""

_FINISH_REASONS = {
    "stop": ("eos", "eos_token", "end_turn", "stop_sequence", "end", "complete", "completed"),
    "length": (
        "max_tokens",
        "max_output_tokens",
        "max_new_tokens",
        "max_length",
        "model_length",
        "token_limit",
        "model_context_window_exceeded",
    ),
    "tool_calls": ("tool_use", "tool_call", "function_calls"),
    "content_filter": (
        "content_filtered",
        "safety",
        "refusal",
        "recitation",
        "blocklist",
        "prohibited_content",
        "spii",
        "guardrail_intervened",
    ),
    "function_call": (),
}
_NOT_YET = frozenset({"null", "none"})
"""What servers write that put JSON's null, or Python's None, into a text."""

_DOCUMENTED = {
    name: documented
    for documented, others in _FINISH_REASONS.items()
    for name in (documented, *others)
}


def finish_reason_as_given(value: Any) -> str | None:
    """The text of a finish reason; of one that is none, its JSON. None while there is no reason."""
    if not value:
        return None
    if not isinstance(value, str):
        return json_text(value)
    return None if value.lower() in _NOT_YET else encodable(value)


def normalise_finish_reason(raw: str | None) -> str | None:
    """One of the five documented reasons where `raw` is known to mean it, else `raw` as given."""
    return _DOCUMENTED.get(raw.lower(), raw) if raw else None


def parse_usage(usage: Any) -> Usage | None:
    """The counts of a `usage` object; None where it knows none.

    Null counts as absent at every level; a negative or fractional count is unknown. Cached and
    reasoning tokens become parts of input and output where the provider reports them beside these;
    a part that is larger than its whole is unknown. A missing total is the sum of both parts.
    """
    if not isinstance(usage, dict):
        return None
    input_tokens = _first(usage, "prompt_tokens", "input_tokens")
    output_tokens = _first(usage, "completion_tokens", "output_tokens")
    total = _first(usage, "total_tokens")
    cached = written = reasoning = None
    is_usual = usage.keys() <= _WITHOUT_DETAILS
    if not is_usual:
        cached, written, reasoning = _parse_details(usage)

    beside = (cached or 0) + (written or 0)
    if beside or reasoning:
        extra_input, extra_output = _outside(
            input_tokens, output_tokens, total, beside, reasoning or 0, _counts_cache_apart(usage)
        )
        input_tokens = None if input_tokens is None else input_tokens + extra_input
        output_tokens = None if output_tokens is None else output_tokens + extra_output
    known = (input_tokens, output_tokens, total, cached, reasoning)
    if known.count(None) == len(known):
        return None
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=_part_of(input_tokens, cached),
        cache_write_tokens=_part_of(input_tokens, written),
        reasoning_tokens=_part_of(output_tokens, reasoning),
        total_tokens=_total(input_tokens, output_tokens, total),
        raw=usage if is_usual and None not in known[:3] else storable(usage),
        source="provider",
    )


def _parse_details(usage: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    """Tokens read from a cache, put into one, and spent on reasoning."""
    inputs = _details(usage, "prompt_tokens_details", "input_tokens_details")
    outputs = _details(usage, "completion_tokens_details", "output_tokens_details")
    cached = _first(inputs, "cached_tokens", "cache_read_tokens")
    if cached is None:
        others = "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"
        cached = _first(usage, *others)
    written = _first(inputs, "cache_write_tokens", "cache_creation_tokens")
    if written is None:
        written = _first(usage, "cache_creation_input_tokens", "cache_write_tokens")
    reasoning = _first(outputs, "reasoning_tokens")
    if reasoning is None:
        reasoning = _first(usage, "reasoning_tokens")
    return cached, written, reasoning


def merge_usage(earlier: dict[str, Any] | None, later: dict[str, Any]) -> dict[str, Any]:
    """The usage object that counts after `later` has come: the last one.

    One that lacks a main count leaves what was known standing, the total only where it says nothing
    at all: with another count it would no longer fit.
    """
    sent = _first(later, "prompt_tokens", "input_tokens")
    received = _first(later, "completion_tokens", "output_tokens")
    if earlier is None or (sent is not None and received is not None):
        return later
    said = {key: value for key, value in later.items() if value is not None}
    if not said:
        return earlier
    return {key: value for key, value in earlier.items() if key != "total_tokens"} | said


def find_usage(choices: Iterable[dict[str, Any]], top: dict[str, Any]) -> Any:
    """Where some servers put their `usage` object instead: in the choice, or in `x_groq`.

    Several choices with one each count their prompt several times: then none is taken.
    """
    inside = [choice["usage"] for choice in choices if isinstance(choice.get("usage"), dict)]
    if inside:
        return inside[0] if len(inside) == 1 else None
    beside = top.get("x_groq")
    return beside.get("usage") if isinstance(beside, dict) else None


def _counts_cache_apart(usage: dict[str, Any]) -> bool:
    """Anthropic's names: `input_tokens` there is without what was read from or put in a cache."""
    names = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return usage.get("prompt_tokens") is None and any(usage.get(n) is not None for n in names)


def _outside(
    input_tokens: int | None,
    output_tokens: int | None,
    total: int | None,
    beside: int,
    reasoning: int,
    apart: bool,
) -> tuple[int, int]:
    """What has to be added to input and output so that their details are parts of them."""
    if apart:
        return beside, 0
    if input_tokens is not None and output_tokens is not None and total is not None:
        for more_input, more_output in ((0, 0), (0, reasoning), (beside, 0), (beside, reasoning)):
            if input_tokens + more_input + output_tokens + more_output == total:
                return more_input, more_output
    elif total is None and output_tokens is not None and reasoning > output_tokens:
        return 0, reasoning
    return 0, 0


def _total(input_tokens: int | None, output_tokens: int | None, total: int | None) -> int | None:
    parts = (input_tokens or 0) + (output_tokens or 0)
    if total is not None and total >= parts:
        return total
    return None if input_tokens is None or output_tokens is None else parts


def _part_of(whole: int | None, part: int | None) -> int | None:
    return None if whole is not None and part is not None and part > whole else part


def _details(usage: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        if isinstance(details := usage.get(name), dict):
            return details
    return {}


def _first(counts: dict[str, Any], *names: str) -> int | None:
    for name in names if counts else ():
        value = counts.get(name)
        if type(value) is int and 0 <= value <= _LARGEST_COUNT:
            return value
        if value is not None and (count := _count(value)) is not None:
            return count
    return None


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _LARGEST_COUNT else None
