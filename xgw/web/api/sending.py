"""A message to an agent, whichever way it comes: the API, the websocket, the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import request

from xgw.agents.definition import Definition
from xgw.agents.scheduler import IfBusy
from xgw.agents.turns import Turn, Wanted
from xgw.errors import unprocessable
from xgw.web.api import agent_sessions, edge


def send(definition: Definition, given: Mapping[str, Any]) -> Turn:
    """The turn of a message, which runs or waits; `given` has the fields of `fields.CHATTING`.

    ApiError 422 without a message; 404 for a session or model that there is none of; 409 if the
    session is another agent's, closed, or busy with `reject`; 503 if too many run or wait.
    """
    if "message" not in given:
        raise unprocessable("message is missing", param="message")
    running = edge.services()
    model = given.get("model") or definition.table.model
    running.router.find(model, "chat.completions")  # before a session is made for it
    mode = given.get("mode")
    session = agent_sessions.find_for(definition, given.get("sessionId"), mode)
    wanted = Wanted(
        message=running.masker.text(given["message"]),
        mode=mode or session["mode"] or "chat",
        model=given.get("model"),
        parameters=given.get("parameters") or {},
        metadata=given.get("metadata"),
        client=_client(),
    )
    busy: IfBusy = given.get("ifBusy") or "queue"
    return running.scheduler.submit(definition, session, wanted, busy)


def _client() -> dict[str, Any]:
    told = request.headers.get("User-Agent")
    return {
        "user_agent": told and edge.services().masker.text(told),
        "address": request.remote_addr,
        "key": edge.caller().alias,
    }
