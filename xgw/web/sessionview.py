"""A session as a page shows it: its head, and the turns of a window with what was said in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw import spelling
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
class SessionView:
    """The head of a session; `window` is how many tokens its model takes."""

    session: Row
    overview: Overview
    title: str
    window: int | None
    csrf: str

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
            "forked_from_turn_id": "forked from",
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
