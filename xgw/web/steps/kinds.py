"""What an agent's own kinds of steps did, in words: searched, planned, noted, compacted, handed on.

Read from what the step was given and what it brought; what does not look as it should is shown as
it is, by whoever asks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from xgw.queries import wording
from xgw.queries.runs import COMPACTION
from xgw.web.conversation import partner_of
from xgw.web.sessionview import PlanItem

Row = Mapping[str, Any]

_LISTED = re.compile(r"\d+\. \[(\w+)\] (.*)")


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that was found; `score` as spelled, "" where there is none."""

    path: str
    line: str
    score: str
    text: str


@dataclass(frozen=True, slots=True)
class Told:
    """What a step did. `kind`: retrieval, planner, memory, compaction or handoff.

    `head` says it in a line, `text` is what belongs to it: the query, the note, the summary, the
    task. `answer` is what a handoff brought.
    """

    kind: str
    head: str
    text: str = ""
    hits: tuple[Hit, ...] = ()
    items: tuple[PlanItem, ...] = ()
    answer: str = ""


def told_of(step: Row, given: str, brought: str) -> Told | None:
    """What a step tells, of the texts that it was given and brought; None where nothing does."""
    arguments = _object(given)
    if step["step_type"] == "retrieval":
        return _retrieval(arguments, brought)
    if step["step_type"] == "planner":
        return _planner(brought)
    if step["step_type"] == "handoff":
        partner = partner_of(step)
        return Told("handoff", partner, str(arguments.get("message") or ""), answer=brought)
    if step["step_type"] != "memory_write":
        return None
    if step["name"] == COMPACTION:
        return _compaction(arguments, _object(brought))
    return _memory(step, arguments)


def _retrieval(arguments: Row, brought: str) -> Told:
    found = _object(brought).get("hits")
    hits = tuple(
        Hit(*(_spelled(hit.get(name)) for name in ("path", "line", "score", "text")))
        for hit in (found if isinstance(found, list) else [])
        if isinstance(hit, dict)
    )
    count = wording.counted(len(hits), "passage") if brought else "Nothing yet"
    return Told("retrieval", count, str(arguments.get("query") or ""), hits)


def _planner(brought: str) -> Told | None:
    listed = (_LISTED.fullmatch(line) for line in brought.splitlines())
    items = tuple(PlanItem(found[2], found[1]) for found in listed if found is not None)
    if not items:
        return None
    done = sum(1 for item in items if item.state == "done")
    return Told("planner", f"{done} of {len(items)} done", items=items)


def _memory(step: Row, arguments: Row) -> Told | None:
    key = arguments.get("key")
    if not isinstance(key, str):
        return None
    verb = {"remember": "Remembered", "forget": "Forgotten"}.get(step["name"] or "", "Noted")
    if step["status"] != "success":
        verb = "To be kept" if step["name"] == "remember" else "To be forgotten"
    return Told("memory", f"{verb}: {key}", str(arguments.get("value") or ""))


def _compaction(given: Row, brought: Row) -> Told:
    if not brought:
        messages = wording.counted(len(given.get("compacted_message_ids") or ()), "message")
        return Told("compaction", f"{messages} to be taken out of the context")
    why = f"The model gave no summary: {brought['reason']}\n\n" if brought.get("reason") else ""
    head = wording.compaction_words(brought)
    return Told("compaction", head, f"{why}{brought.get('summary') or ''}")


def _spelled(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _object(text: str) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
