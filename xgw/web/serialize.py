"""Each noun as JSON, once: its columns by name plus `object`, nested objects where they help.

Times are RFC 3339 in UTC. Null means unknown, never 0.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xgw import clock
from xgw.queries.overview import Overview
from xgw.queries.stats import Stats
from xgw.queries.steps import Changes

if TYPE_CHECKING:
    from xgw.upkeep.prune import Pruned

LEFT_OUT = frozenset({"metadata", "session_summary", "working_memory", "artifacts", "fits"})
TITLE_CHARACTERS = 200
NOW = (
    "id",
    "step_type",
    "step_index",
    "name",
    "provider_name",
    "model",
    "attempt",
    "started_at",
    "tool_call_id",
    "running",
)
"""What is told of the step under way: not its arguments."""

Row = Mapping[str, Any]
Json = dict[str, Any]

SESSION_TOTALS = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "total_tokens",
    "cost_usd",
)


@dataclass(frozen=True, slots=True)
class Payloads:
    """How payload columns are shown: as hash and size, or as the body where it is there.

    Of those that were `pruned` it is said.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    bodies: Mapping[str, Any] = field(default_factory=dict)
    pruned: Collection[str] = ()

    def show(self, key: str | None) -> Any:
        """One payload column's value."""
        if key is None:
            return None
        if key in self.bodies:
            return self.bodies[key]
        shown = {"hash": key, "size": self.sizes.get(key)}
        return {**shown, "pruned": True} if key in self.pruned else shown


NO_BODIES = Payloads()


def session(row: Row, window: int | None) -> Json:
    """A session; `window` is how many tokens the model of its last call takes."""
    shown = _columns("session", row)
    for name in SESSION_TOTALS:
        del shown[name]
    del shown["context_tokens"]
    shown["usage"] = {name: row[name] for name in SESSION_TOTALS}
    shown["context"] = _context(row, window)
    shown["budget"] = _budget(row)
    return shown


def session_summary(row: Row, window: int | None) -> Json:
    """A session without what may be large in it."""
    shown = session(row, window)
    return {name: value for name, value in shown.items() if name not in LEFT_OUT}


def standing(seen: Overview) -> Json:
    """How a session stands; `title` is its first input while it has none."""
    now = seen.now
    return {
        "state": seen.state,
        "cause": seen.cause,
        "waits_for": seen.waits_for,
        "turn_id": seen.turn_id,
        "title": seen.title[:TITLE_CHARACTERS],
        "served_by": seen.served_by,
        "wasted": seen.wasted,
        "now": None if now is None else _columns("step", {n: getattr(now, n) for n in NOW}),
    }


def tools(offered: Iterable[Any]) -> list[Json]:
    """The tools of a request in the one shape; `approval` is null for tools that are a client's."""
    return [_tool(tool) for tool in offered if isinstance(tool, dict)]


def turn(row: Row, payloads: Payloads = NO_BODIES) -> Json:
    """A turn, with `runs` where the row has them."""
    shown = _with_error("turn", row)
    shown["completed_at"] = shown["ended_at"]
    for name in ("input_payload", "config_snapshot"):
        shown[name] = payloads.show(row[name])
    if "runs" in row:
        shown["runs"] = [run(inner, payloads) for inner in row["runs"]]
    return shown


def run(row: Row, payloads: Payloads = NO_BODIES) -> Json:
    """A run, with `steps` where the row has them."""
    shown = _with_error("run", row)
    shown["checkpoint"] = checkpoint(row["checkpoint"])
    if "steps" in row:
        shown["steps"] = [step(inner, payloads) for inner in row["steps"]]
    return shown


def checkpoint(kept: Json | None) -> Json | None:
    """A checkpoint without the results in it: the steps that it names have them."""
    if kept is None:
        return None
    calls = [
        {name: _inside(name, value) for name, value in call.items() if name != "result"}
        for call in kept.get("pending_tool_calls") or ()
    ]
    return {**kept, "pending_tool_calls": calls}


def _inside(name: str, value: Any) -> Any:
    """A task that a call handed over has calls of its own."""
    return checkpoint(value) if name == "task" else value


def step(row: Row, payloads: Payloads = NO_BODIES) -> Json:
    """A step."""
    shown = _with_error("step", row)
    for name in ("input_payload", "output_payload"):
        shown[name] = payloads.show(row[name])
    return shown


def changes(found: Changes) -> Json:
    """What a model call sent compared with the one before it; all numbers are indexes."""
    return {
        "previous_step_id": found.previous_step_id,
        "common_prefix": found.common_prefix,
        "added": list(found.added),
        "changed": [{"previous_index": old, "index": new} for old, new in found.changed],
        "dropped": list(found.dropped),
    }


def message(row: Row) -> Json:
    """A message."""
    return _columns("message", row)


def request(row: Row, payloads: Payloads = NO_BODIES) -> Json:
    """A request log; lists leave `frames` out."""
    shown = _with_error("request", row)
    for name in ("request_payload", "response_body"):
        shown[name] = payloads.show(row[name])
    for name in ("stream", "truncated"):
        shown[name] = None if row[name] is None else bool(row[name])
    return shown


def stats(found: Stats) -> Json:
    """Statistics: sums in all, and by day, model, provider or agent."""
    return {
        "object": "stats",
        "group": found.group,
        "totals": found.totals,
        "data": found.rows,
    }


def pruned(done: Pruned) -> Json:
    """What went, or would go."""
    return {
        "object": "pruned",
        "sessions": done.sessions,
        "busy_sessions": done.busy,
        "turns": done.turns,
        "requests": done.requests,
        "row_bytes": done.row_bytes,
        "bodies": {"count": done.bodies.count, "bytes": done.bodies.bytes},
        "payloads": {"count": done.payloads.count, "bytes": done.payloads.bytes},
        "legacy": [
            {"table": table.name, "rows": table.rows, "bytes": table.bytes} for table in done.legacy
        ],
    }


def _columns(noun: str, row: Row) -> Json:
    shown: Json = {"object": noun}
    for name, value in row.items():
        is_time = isinstance(value, datetime.datetime)
        shown[name] = clock.to_rfc3339(value) if is_time else value
    return shown


def _with_error(noun: str, row: Row) -> Json:
    shown = _columns(noun, row)
    kind, text = row["error_type"], row["error_message"]
    shown["error"] = None if kind is None and text is None else {"type": kind, "message": text}
    return shown


def _context(row: Row, window: int | None) -> Json:
    used = row["context_tokens"]
    known = used is not None and window is not None
    return {
        "window": window,
        "used": used,
        "remaining": max(0, window - used) if known else None,
        "percent": round(100 * used / window, 1) if known and window else None,
        "source": None if used is None else row["usage_source"],
    }


def _budget(row: Row) -> Json:
    limits = row["budget"] or {}
    return {
        "tokens": _left(limits.get("tokens"), row["total_tokens"]),
        "cost_usd": _left(limits.get("cost_usd"), row["cost_usd"]),
    }


def _left(limit: float | None, used: float | None) -> Json:
    remaining = None if limit is None else max(0, limit - (used or 0))
    return {"limit": limit, "used": used, "remaining": remaining}


def _tool(tool: Json) -> Json:
    """Chat Completions nests a function; Responses and Messages have its fields at the top."""
    nested = tool.get("function")
    function: Json = nested if isinstance(nested, dict) else tool
    return {
        "name": function.get("name") or tool.get("type"),
        "description": function.get("description"),
        "parameters": function.get("parameters", function.get("input_schema")),
        "approval": None,
    }
