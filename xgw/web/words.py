"""What templates spell with: figures, times, states and JSON as people read them."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from xgw import clock, spelling
from xgw.queries import wording
from xgw.queries.overview import TurnOverview

SHOWN_BYTES = 256 << 10
"""A text is shown up to this length, with a link to the whole."""

_STATES = {
    "success": "done",
    "waiting_tool": "waiting",
    "archived": "archived",
}
_CAUSES = {"client_disconnect": "client left", "user_cancel": "by a person"}
_WHITE = re.compile(r"\s+")
_BLANK = re.compile(r"[^\S\x0b\x0c\x1c-\x1f\x85\u2028\u2029]+")
"""White space but for what pages draw as its code."""
_BEGINS_WITH_WORD = re.compile(r"[a-z]+[ ']")


def state_word(state: str) -> str:
    """The name of a state: it is both read and the name of its colour."""
    return _STATES.get(state, state)


def standing(seen: TurnOverview) -> str:
    """How a turn or a session stands, in words: what it waits for, why it failed."""
    cause = _CAUSES.get(seen.cause, seen.cause.replace("_", " ")) if seen.cause else None
    if seen.waits_for:
        return f"waiting for {seen.waits_for}"
    if seen.state == "error":
        return cause or "error"
    if seen.state == "paused":
        cause = "can resume"
    return wording.joined(seen.state, cause)


def title(text: str | None, most: int = 120) -> str:
    """A text in one line, cut."""
    line = _BLANK.sub(" ", text or "").strip(" ")
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def sentence(message: str) -> str:
    """A message as it stands in a text: with a capital, if a word begins it, and a stop."""
    first = message[:1].upper() if _BEGINS_WITH_WORD.match(message) else message[:1]
    stop = "" if message.endswith((".", "!", "?", "…")) else "."
    return f"{first}{message[1:]}{stop}"


def short_id(id: str) -> str:
    """Enough of an id to tell it from its neighbours: its kind, and its last digits."""
    kind, _, digits = id.rpartition("_")
    if len(digits) <= 12:
        return id
    return f"{kind}_…{digits[-6:]}" if kind else f"{digits[:4]}…{digits[-6:]}"


def short_key(key: str) -> str:
    """A client's identifier, its middle left out where it is long."""
    return key if len(key) <= 24 else f"{key[:10]}…{key[-10:]}"


def json_text(value: Any) -> str:
    """JSON, indented. A text that is JSON is set out where only white space changes by that:
    spellings such as 1.10, doubled keys and whatever else it says stay visible."""
    if isinstance(value, str):
        return set_out(value)
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except TypeError:  # deeper than it can write
        return json.dumps(value, ensure_ascii=False)


def set_out(text: str) -> str:
    """A JSON text indented if nothing but white space changes by that, else as it was."""
    try:
        spelled = orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).decode()
    except (orjson.JSONDecodeError, TypeError):
        return text
    return spelled if _WHITE.sub("", spelled) == _WHITE.sub("", text) else text


def json_line(value: Any) -> str:
    """JSON in one line; a text stands as it is."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # deeper than it can write
        return json.dumps(value, ensure_ascii=False)


def beyond_text(parts: Any) -> dict[str, Any]:
    """What a message holds beside its text: `reasoning`, `refusal`, and `others` by type and size.

    `others` are pairs of a word and a line: images and files, which are never loaded, and texts
    that are too long to stand in a row. Fields that are there and hold nothing, as OpenAI's
    `annotations` mostly do, are left to the step.
    """
    fields = parts if isinstance(parts, Mapping) else {"content": parts}
    found: dict[str, Any] = {"reasoning": None, "refusal": None, "others": []}
    for name, value in fields.items():
        word = {"reasoning_content": "reasoning"}.get(name, name)
        if word in ("reasoning", "refusal") and isinstance(value, str):
            found[word] = value
        elif name == "content" and isinstance(value, list):
            found["others"] += [_part_line(part) for part in value if not _is_text(part)]
        elif value is not None and value not in ("", [], {}):
            found["others"].append((word, _part_line(value)[1]))
    return found


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _part_line(part: Any) -> tuple[str, str]:
    if not isinstance(part, Mapping):
        return "part", title(json_line(part))
    if "payload" in part and "size" in part:
        return "long text", f"{spelling.size(part['size'])}, see the step"
    if named := wording.media_words(part):
        return named
    return str(part.get("type") or "part"), title(json_line(dict(part)))


def rfc3339(at: datetime.datetime) -> str:
    """For `datetime` attributes."""
    return clock.to_rfc3339(at)


def seconds_since(at: datetime.datetime, now: datetime.datetime) -> float:
    """How long ago; never negative, for clocks go back."""
    return max(0.0, (now - at).total_seconds())


def timer(ms: float) -> str:
    """A running time as a clock shows it: 00:41, 1:02:07."""
    minutes, seconds = divmod(int(ms // 1000), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes:02d}:{seconds:02d}"


def adds(progress: Mapping[str, Any] | None, *names: str) -> str:
    """What a call under way adds to a count of these tokens, "" where that is not known."""
    known = [progress[name] for name in names if progress[name]] if progress else []
    return f" + {spelling.count(sum(known), 'estimated')}" if known else ""


def percent(part: float | None, whole: float | None) -> str:
    """A share in percent, unknown where either is; only nothing is 0 %, and only all is 100 %."""
    if part is None or not whole:
        return spelling.UNKNOWN
    share = 100 * part / whole
    if 0 < share < 0.5:
        return "<1 %"
    return ">99 %" if 99.5 <= share < 100 else f"{share:.0f} %"


_VERDICTS = {"approve": "approved", "deny": "denied", "result": "answered by hand"}


def decided_words(decision: Mapping[str, Any] | None) -> str:
    """What a person decided about a tool's call, and who that was; "" where nothing was."""
    if not decision:
        return ""
    return f"{_VERDICTS.get(decision['decision'], decision['decision'])} by {decision['by']}"


FILTERS: Mapping[str, Callable[..., str | float | None]] = {
    "state_word": state_word,
    "standing": standing,
    "title_line": title,
    "sentence": sentence,
    "short_id": short_id,
    "short_key": short_key,
    "json_text": json_text,
    "json_line": json_line,
    "rfc3339": rfc3339,
    "timer": timer,
    "adds": adds,
    "nth": wording.nth,
    "error_label": wording.error_label,
    "count": spelling.count,
    "usd": spelling.usd,
    "duration": spelling.duration,
    "bytes": spelling.size,
    "moment": spelling.moment,
    "time_of_day": spelling.time_of_day,
    "compaction_words": wording.compaction_words,
    "served": wording.served_words,
    "counted": wording.counted,
    "state_of_request": wording.state_of_request,
    "status_words": wording.status_words,
    "error_words": wording.error_words,
    "pace": wording.pace_words,
    "client_words": wording.client_words,
    "decided_words": decided_words,
    "used": wording.usage_with_total,
}

GLOBALS: Mapping[str, Callable[..., Any]] = {
    "now": clock.now,
    "ago": spelling.ago,
    "seconds_since": seconds_since,
    "percent": percent,
    "joined": wording.joined,
    "beyond_text": beyond_text,
}
