"""The agent as it is when a turn of it begins: kept with the turn, never changed afterwards."""

from __future__ import annotations

from typing import Any

import orjson

from xgw.agents.definition import Definition
from xgw.agents.turns import Wanted
from xgw.exchange.means import Means
from xgw.store.payloads import Stored


def snapshot_of(means: Means, definition: Definition, wanted: Wanted) -> Stored:
    """Its model, parameters, instructions, tools and limits.

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
    }
    return means.recorder.shelf.whole(means.masker.body(orjson.dumps(kept)))
