"""The JSON API: agents, sessions and what is in them, events, statistics, pruning, health."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from flask import Blueprint

from xgw.web.api import (
    agents,
    contexts,
    description,
    events,
    exports,
    health,
    imports,
    prune,
    requests,
    runs,
    sessions,
    stats,
    turns,
)

OF_IMPORTS = (sessions, contexts, turns, runs, requests, exports, events, stats)
"""What there is of an import: all but what is the server's own."""

NOUNS = (*OF_IMPORTS, agents, prune, health, imports, description)


def create_api(nouns: Sequence[ModuleType] = NOUNS) -> Blueprint:
    """The routes of these nouns of the JSON API."""
    api = Blueprint("api", __name__)
    for noun in nouns:
        api.register_blueprint(noun.routes)
    return api
