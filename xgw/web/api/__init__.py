"""The JSON API: agents, sessions and what is in them, events, statistics, pruning, health."""

from __future__ import annotations

from flask import Blueprint

from xgw.web.api import (
    agents,
    contexts,
    description,
    events,
    health,
    prune,
    requests,
    runs,
    sessions,
    stats,
    turns,
)


def create_api() -> Blueprint:
    """All routes of the JSON API."""
    api = Blueprint("api", __name__)
    nouns = (
        agents,
        sessions,
        contexts,
        turns,
        runs,
        requests,
        events,
        stats,
        prune,
        health,
        description,
    )
    for noun in nouns:
        api.register_blueprint(noun.routes)
    return api
