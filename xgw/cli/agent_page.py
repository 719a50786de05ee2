"""What `xgw show` tells of an agent's own steps: how a context was compacted, how a plan stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xgw.cli.pages import Page
from xgw.queries import payloads
from xgw.queries.pages import Row
from xgw.queries.wording import compaction_words, joined
from xgw.store.database import Store

COMPACTION = "compaction"
_MARKS = {"done": "✓", "in_progress": "▸", "pending": "·"}


def find_compaction(store: Store, step: Row) -> Mapping[str, Any] | None:
    """What a compaction came to; None of any other step, and of one that came to nothing."""
    key = step["output_payload"]
    if step["step_type"] != "memory_write" or step["name"] != COMPACTION or not key:
        return None
    found = payloads.bodies(store, [key]).get(key)
    return found if isinstance(found, Mapping) else None


def render_compaction(page: Page, step: Row, told: Mapping[str, Any], indent: int) -> None:
    """A compaction in words: how much, why, and what stands there instead."""
    trigger = (step["metadata"] or {}).get("trigger")
    page.line(joined(compaction_words(told), trigger), indent)
    if told.get("reason"):
        page.text(str(told["reason"]), indent, "bad", most=4, mark="no summary: ")
    if told.get("summary"):
        page.text(str(told["summary"]), indent, mark="summary   ")


def render_plan(page: Page, plan: Any) -> None:
    """The plan that a run kept, an item a line; nothing where there is none."""
    items = plan.get("items") if isinstance(plan, Mapping) else None
    if not isinstance(items, list) or not items:
        return
    page.section("Plan")
    for item in items:
        if isinstance(item, Mapping):
            mark = _MARKS.get(str(item.get("state")), "?")
            page.text(str(item.get("text")), 2, most=4, mark=f"{mark} ")
