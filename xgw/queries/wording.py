"""What rows tell in words that several pages and lists share: usage, speed, errors, clients."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import orjson

from xgw import spelling
from xgw.queries.pages import Row


def joined(*parts: str | None) -> str:
    """What is known of these, set apart by dots."""
    return " · ".join(part for part in parts if part)


def counted(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def served_words(provider: str | None, model: str | None) -> str:
    """Who answered: provider and model, as far as they are known."""
    return "/".join(part for part in (provider, model) if part)


def error_words(row: Row) -> str:
    """Why something failed; nothing where it did not."""
    return ": ".join(part for part in (row["error_type"], row["error_message"]) if part)


def has_failed(log: Row) -> bool:
    """Whether a request ended in an error, of HTTP or of any other kind."""
    return log["error_type"] is not None or (log["status_code"] or 0) >= 400


def status_words(log: Row) -> str:
    """How a request ended: its HTTP status, or a word where there is none."""
    if log["ended_at"] is None:
        return "running"
    return str(log["status_code"] or ("failed" if has_failed(log) else "cancelled"))


def state_of_request(log: Row) -> str:
    """The state of a request: running, done, error, or cancelled before there was an answer."""
    if log["ended_at"] is None:
        return "running"
    if has_failed(log):
        return "error"
    return "done" if log["status_code"] else "cancelled"


def reads_words(log: Row) -> str | None:
    """When the pieces of an answer came, and the longest silence between two."""
    times = [frame[1] for frame in log["frames"] or () if len(frame) == 2]
    if len(times) < 2:
        return None
    longest = max(b - a for a, b in itertools.pairwise(times))
    return (
        f"{len(times)} reads from {spelling.duration(times[0])} to {spelling.duration(times[-1])}, "
        f"longest silence {spelling.duration(longest)}"
    )


def first_token_words(row: Mapping[str, Any]) -> str | None:
    """When the first token came."""
    return None if row["ttft_ms"] is None else f"first token {spelling.duration(row['ttft_ms'])}"


def usage_words(row: Mapping[str, Any]) -> str:
    """Tokens in and out with their parts, marked by their source."""
    source = row["usage_source"]
    if row["input_tokens"] is None and row["output_tokens"] is None:
        return spelling.UNKNOWN
    told = f"{spelling.count(row['input_tokens'], source)} in"
    parts = []
    if row["cached_tokens"] is not None:
        parts.append(f"{row['cached_tokens']:,} cached")
    if row.get("cache_write_tokens"):
        parts.append(f"{row['cache_write_tokens']:,} written to the cache")
    told += f" ({', '.join(parts)})" if parts else ""
    told += f" → {spelling.count(row['output_tokens'], source)} out"
    return told + (f" ({row['reasoning_tokens']:,} reasoning)" if row["reasoning_tokens"] else "")


def usage_with_total(row: Mapping[str, Any]) -> str:
    """The same with the sum, and where the figures come from."""
    if row["total_tokens"] is None:
        return usage_words(row)
    total = spelling.count(row["total_tokens"], row["usage_source"])
    told = {"provider": "as reported", "estimated": "estimated", "partial": "as far as known"}
    return f"{usage_words(row)} = {total}, {told.get(row['usage_source'] or '', 'source unknown')}"


def speed_words(step: Mapping[str, Any]) -> str | None:
    """Tokens a second after the first one."""
    ms = (step["latency_ms"] or 0) - (step["ttft_ms"] or 0)
    if step["ttft_ms"] is None or not step["output_tokens"] or ms < 50:
        return None
    return f"{step['output_tokens'] * 1000 / ms:,.0f} tokens/s"


def pace_words(step: Mapping[str, Any]) -> str:
    """How fast an answer came: its first token, and those after it; "" where that is unknown."""
    return joined(first_token_words(step), speed_words(step))


def client_words(client: Any) -> str | None:
    """Who called, in words."""
    if not isinstance(client, Mapping):
        return None
    key = f"key {client['key']}" if client.get("key") else None
    address = f"from {client['address']}" if client.get("address") else None
    return joined(client.get("user_agent"), address, key) or None


_MEDIA = ("image", "audio", "video", "file")
_SOURCES = ("url", "data", "file_data", "file_id", "filename")
_CONTENTS = ("data", "file_data")
_LONGEST_URL, _LONGEST_KIND = 512, 75


def media_words(part: Mapping[str, Any]) -> tuple[str, str] | None:
    """What kind of media a part of a content is, and where that is or how large; None of others."""
    kind = str(part.get("type") or "")
    media = next((word for word in _MEDIA if word in kind), None)
    return None if media is None else (media, f"{_source_words(part)}, not loaded")


def _source_words(part: Mapping[str, Any]) -> str:
    for value in part.values():
        if isinstance(value, str) and value.startswith(("http://", "https://", "data:")):
            return _url_words(value)
        if isinstance(value, Mapping):
            name = next((name for name in _SOURCES if value.get(name)), None)
            if name is not None:
                return _named_source(value, name)
    return "where it is was not said"


def _named_source(value: Mapping[str, Any], name: str) -> str:
    source = value[name]
    if isinstance(source, Mapping):  # kept by itself
        source = source.get("size")
        return f"{spelling.size(source)} in the request" if isinstance(source, int) else "a file"
    source = str(source)
    if name in _CONTENTS and not source.startswith("data:"):
        said = value.get("format")
        size = f"{spelling.size(len(source))} in the request"
        return f"{said}, {size}" if isinstance(said, str) and len(said) <= _LONGEST_KIND else size
    return _url_words(source)


def _url_words(value: str) -> str:
    if value.startswith("data:"):
        kind = value[5 : 5 + _LONGEST_KIND].partition(";")[0].partition(",")[0] or "data"
        return f"{kind}, {spelling.size(len(value))} in the request"
    if len(value) > _LONGEST_URL:
        return f"{spelling.size(len(value))} in the request"
    return value


def compaction_words(told: Mapping[str, Any]) -> str:
    """How much of a context was compacted, of the fields of `context.compacted`."""
    messages = counted(len(told.get("compacted_message_ids") or ()), "message")
    done = "dropped" if told.get("strategy") == "drop" else "summarised"
    sizes = (spelling.count(told.get(name)) for name in ("before_tokens", "after_tokens"))
    return f"{messages} {done}, context {' → '.join(sizes)} tokens"


def nth(number: int) -> str:
    """1st, 2nd, 3rd."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0)
    return f"{number}{ending or 'th'}"


def error_label(error_type: str | None) -> str:
    """A type of error in words: `upstream_timeout` is an upstream timeout."""
    return error_type.replace("_", " ") if error_type else "failed"


def json_words(value: Any) -> str:
    """A value as one line of JSON."""
    return orjson.dumps(value).decode()
