"""A session as a page shows it: its head, and the turns of a window with what was said in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw import spelling
from xgw.queries import wording
from xgw.queries.overview import Overview
from xgw.web.conversation import Entry

Row = Mapping[str, Any]

_SOURCES = {
    "metadata": "named in metadata",
    "header": "named by a header",
    "url": "named in the URL",
    "client": "named by the client",
    "managed": "gateway-managed",
    "api": "made by the API",
    "import": "imported",
}


@dataclass(frozen=True, slots=True)
class PlanItem:
    """One item of a plan; `state` is pending, in_progress or done."""

    text: str
    state: str


def plan_of(kept: Any) -> list[PlanItem]:
    """The items of a plan as a run keeps it; [] where there is none."""
    items = kept.get("items") if isinstance(kept, dict) else None
    return [
        PlanItem(str(item.get("text") or ""), str(item.get("state") or "pending"))
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, dict)
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else wording.json_words(value)


@dataclass(frozen=True, slots=True)
class SessionView:
    """The head of a session; `window` is how many tokens its model takes, `planned` the plan of the
    turn that counts, as its run keeps it."""

    session: Row
    overview: Overview
    title: str
    window: int | None
    csrf: str
    planned: Any = None

    @property
    def plan(self) -> list[PlanItem]:
        """What an agent has planned, in order."""
        return plan_of(self.planned)

    @property
    def plan_words(self) -> str:
        """How far the plan is, and what is being done."""
        items = self.plan
        done = sum(1 for item in items if item.state == "done")
        doing = next((item.text for item in items if item.state == "in_progress"), None)
        return wording.joined(f"{done} of {len(items)} done", doing)

    @property
    def notes(self) -> list[tuple[str, str]]:
        """The agent's working memory: names and what they stand for."""
        memory = self.session["working_memory"]
        held = memory if isinstance(memory, dict) else {"": memory} if memory else {}
        return [(name, _text(value)) for name, value in held.items()]

    @property
    def can_compact(self) -> bool:
        """Whether its context can be made shorter now."""
        is_idle = self.session["active_turn_id"] is None and self.session["status"] != "closed"
        return self.session["kind"] == "agent" and is_idle and bool(self.session["turn_count"])

    @property
    def source_words(self) -> str:
        """Where its identity came from."""
        return _SOURCES.get(self.session["source"], str(self.session["source"]))

    @property
    def budget(self) -> str:
        """What is left of it, "" without one."""
        limits = self.session["budget"] or {}
        left = []
        if (tokens := limits.get("tokens")) is not None:
            left.append(f"{max(0, tokens - (self.session['total_tokens'] or 0)):,} tokens")
        if (cost := limits.get("cost_usd")) is not None:
            left.append(spelling.usd(max(0.0, cost - (self.session["cost_usd"] or 0.0))))
        return ", ".join(left)

    @property
    def fields(self) -> list[tuple[str, str]]:
        """What else is known of it."""
        names = {
            "agent_name": "agent",
            "mode": "mode",
            "task_id": "task",
            "end_user_id": "end user",
            "project_id": "project",
        }
        counts = (("turn_count", "turns"), ("request_count", "requests"))
        known = [
            (word, str(self.session[name])) for name, word in names.items() if self.session[name]
        ]
        return known + [(word, spelling.count(self.session[name])) for name, word in counts]


@dataclass(frozen=True, slots=True)
class Block:
    """One turn of the conversation: its line, and its entries in order."""

    line: Row
    entries: Sequence[Entry]
