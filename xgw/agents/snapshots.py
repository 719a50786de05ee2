"""The agent as it is when a turn of it begins: kept with the turn, never changed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from xgw.agents.definition import Definition
from xgw.agents.turns import Wanted
from xgw.exchange.means import Means
from xgw.store.payloads import Stored


def snapshot_of(means: Means, definition: Definition, wanted: Wanted) -> Stored:
    """Its model, parameters, instructions, tools and limits; those of `agents` that a task may be
    handed over to, too, but for their tools.

    Tools that a server has not told of yet are added once it has, before the model is asked.
    """
    table = definition.table
    kept: dict[str, Any] = {
        "agent": definition.name,
        "mode": wanted.mode,
        "model": wanted.model or table.model,
        "parameters": {**table.parameters, **wanted.parameters},
        "instructions": definition.instructions,
        "tools": [
            {
                "name": tool.name,
                **tool.told(),
                "timeout_seconds": tool.timeout_seconds,
                "max_output_bytes": tool.max_output_bytes,
                "retry_safe": tool.retry_safe,
                "approval": tool.approval,
            }
            for tool in definition.known().in_mode(wanted.mode).tools
        ],
        "handoffs": list(table.handoffs),
        "limits": {
            **table.limits.model_dump(),
            "max_iterations": table.max_iterations(wanted.mode),
        },
        "planner": table.plans(wanted.mode),
        "context": table.context.model_dump(),
        "agents": {name: _partner(other) for name, other in _reached_from(definition)},
    }
    return means.recorder.shelf.whole(means.masker.body(orjson.dumps(kept)))


def _partner(definition: Definition) -> dict[str, Any]:
    table = definition.table
    return {
        "model": table.model,
        "parameters": table.parameters,
        "instructions": definition.instructions,
        "limits": {**table.limits.model_dump(), "max_iterations": table.max_iterations("chat")},
        "context": table.context.model_dump(),
    }


def _reached_from(definition: Definition) -> Iterator[tuple[str, Definition]]:
    """The agents that a task may be handed over to, by this one or by one of those."""
    known, left = set(), list(definition.table.handoffs)
    while left:
        name = left.pop(0)
        if name not in known:
            known.add(name)
            other = definition.others[name]
            left += other.table.handoffs
            yield name, other
