"""A plan made of a prompt: what it asks for, part by part, for the tool of an agent's planner."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MOST_ITEMS = 8
MOST_TEXT = 200

_PARTS = re.compile(r"(?<=[.!?;])\s+|\n+|,?\s+(?:and|then)\s+")
_AROUND = " \t,;.!?"


def is_planner(name: str, properties: Iterable[str]) -> bool:
    """Whether a tool keeps plans as that of xgw's agents does."""
    return name == "plan" and {"action", "items", "number", "state"} <= set(properties)


def plan_of(prompt: str) -> dict[str, Any]:
    """The arguments that set the plan; whatever the prompt is, there is something to do."""
    parts = [part.strip(_AROUND)[:MOST_TEXT] for part in _PARTS.split(prompt)]
    items = [part for part in dict.fromkeys(parts) if part][:MOST_ITEMS]
    return {"action": "set", "items": [{"text": item} for item in items or ["Answer"]]}
