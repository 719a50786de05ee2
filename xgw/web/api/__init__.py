"""The JSON API: agents, sessions and what is in them, events as they happen, statistics, health."""

from __future__ import annotations

from flask import Blueprint

from xgw.web.api import (
    agents,
    description,
    events,
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
    for noun in (agents, sessions, turns, runs, requests, events, stats, health, description):
        api.register_blueprint(noun.routes)
    return api
