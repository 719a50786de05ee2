"""The JSON API: agents, sessions and what is in them, events as they happen, statistics, health."""

from __future__ import annotations

from flask import Blueprint

from xgw.web.api import (
    agents,
    contexts,
    description,
    events,
    exports,
    health,
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
        exports,
        events,
        stats,
        health,
        description,
    )
    for noun in nouns:
        api.register_blueprint(noun.routes)
    return api
