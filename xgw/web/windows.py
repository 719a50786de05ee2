"""How many tokens fit into the context of a session, or of a turn.

A provider may answer with another name than it was asked by, of which nobody knows: then the model
that an agent asks is known by that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xgw.agents.definition import Definition
from xgw.agents.plain import ANY_MODEL
from xgw.errors import ApiError
from xgw.queries import steps

if TYPE_CHECKING:
    from xgw.web.app import Services

Row = Mapping[str, Any]


def window_of_session(services: Services, session: Row) -> int | None:
    """As its agent says, else as is known of the model of its last call; None if nobody knows.

    Before its first call that is the model which its agent would ask. One statement where a model
    of unknown name answered an agent that is asked for any.
    """
    definition = services.agents.get(session["agent_name"] or "")
    if definition is not None and definition.table.context.window is not None:
        return definition.table.context.window
    provider_name = session["provider_name"]
    found = window_of_model(services, provider_name, session["model"]) if provider_name else None
    if found is not None or definition is None:
        return found
    return _window_of_asked(services, provider_name, _asked(services, session, definition))


def window_of_call(services: Services, call: Row) -> int | None:
    """As is known of the model that answers an agent's call, else of the one that is asked.

    What is configured here says nothing of what was asked in another's store.
    """
    found = window_of_model(services, call["provider_name"], call["model"])
    if found is not None or call["provider_name"] is None or services.imported is not None:
        return found
    return _window_of_asked(services, call["provider_name"], call["model_requested"])


def window_of_model(services: Services, provider_name: str | None, model: str | None) -> int | None:
    """How many tokens a model takes, as far as that is known."""
    named = (p for p in services.config.config.providers if p.name == provider_name)
    return services.prices.context_window(model, next(named, None)) if model else None


def _asked(services: Services, session: Row, definition: Definition) -> str | None:
    if definition.table.model != ANY_MODEL:
        return definition.table.model
    call = steps.last_call(services.store, session["id"]) if session["provider_name"] else None
    return call["model_requested"] if call is not None else None


def _window_of_asked(
    services: Services, provider_name: str | None, model: str | None
) -> int | None:
    """Of a model by the name that it is asked by, at the provider that answers, if one does.

    Providers are asked what they have only before the first answer.
    """
    router = services.router
    find = router.find if provider_name is None else router.find_configured
    try:
        way = find(model or "", "chat.completions")
    except ApiError:
        return None
    if way is None:
        return window_of_model(services, provider_name, model)
    there = (target for target in way.targets if target.provider.name == provider_name)
    target = next(there, way.targets[0])
    return services.prices.context_window(target.model, target.provider)
