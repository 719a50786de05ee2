"""How many tokens fit into the context of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xgw.agents.definition import Definition
from xgw.errors import ApiError

if TYPE_CHECKING:
    from xgw.web.app import Services

Row = Mapping[str, Any]


def window_of_session(services: Services, session: Row) -> int | None:
    """As its agent says, else as is known of the model of its last call; None if nobody knows.

    Before its first call that is the model which its agent would ask.
    """
    definition = services.agents.get(session["agent_name"] or "")
    if definition is not None and definition.table.context.window is not None:
        return definition.table.context.window
    if definition is not None and session["provider_name"] is None:
        return _window_of_agent(services, definition)
    return window_of_model(services, session["provider_name"], session["model"])


def window_of_model(services: Services, provider_name: str | None, model: str | None) -> int | None:
    """How many tokens a model takes, as far as that is known."""
    named = (p for p in services.config.config.providers if p.name == provider_name)
    return services.prices.context_window(model, next(named, None)) if model else None


def _window_of_agent(services: Services, definition: Definition) -> int | None:
    try:
        way = services.router.find(definition.table.model, "chat.completions")
    except ApiError:
        return None
    target = way.targets[0]
    return services.prices.context_window(target.model, target.provider)
