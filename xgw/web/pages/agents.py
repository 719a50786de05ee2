"""Pages of agents: what they are, their sessions, and where a new one is started."""

from __future__ import annotations

from flask import Blueprint, Response, request

from xgw.agents.definition import Definition
from xgw.errors import ApiError
from xgw.queries import events
from xgw.queries.agents import find_use
from xgw.queries.pages import Page
from xgw.queries.snapshot import snapshot
from xgw.web import agentrows, agents, board
from xgw.web.api import agent_sessions
from xgw.web.api.agents import ask
from xgw.web.composer import Refused, composer_of_agent, read_message
from xgw.web.pages import frame

routes = Blueprint("agents", __name__)

NEWEST = Page(10)


@routes.get("/ui/agents")
def list_agents() -> Response:
    """GET /ui/agents: every agent with how much it is used"""
    running = frame.services()
    with snapshot(running.store):
        cursor = events.newest(running.store)
        rows = agentrows.list_agents(running)
    return frame.page("agents/list.html", cursor=cursor, rows=rows)


@routes.get("/ui/agents/<name>")
def show_agent(name: str) -> Response:
    """GET /ui/agents/NAME: its configuration, its newest sessions, a form to start one"""
    return _answer(agent_sessions.looked_at(name))


@routes.post("/ui/agents/<name>/chat")
def start_chat(name: str) -> Response:
    """POST /ui/agents/NAME/chat: a session with its first message; then its page"""
    definition = agent_sessions.named(name)
    try:
        turn = ask(definition, read_message(request.form))
    except ApiError as refusal:
        refused = Refused(refusal.message, request.form.get("message", ""))
        return _answer(definition, refused, refusal.status)
    return frame.see_other(f"/ui/sessions/{turn.scope.session_id}")


def _answer(definition: Definition, refused: Refused | None = None, status: int = 200) -> Response:
    running = frame.services()
    with snapshot(running.store):
        use, cursor = find_use(running.store, definition.name)
        found = board.list_sessions(running, agentrows.sessions_of(definition.name), NEWEST)
    provider = agents.first_provider(running.router, definition)
    return frame.page(
        "agents/show.html",
        status=status,
        cursor=cursor,
        most_rows=NEWEST.limit,
        agent=agents.agent(definition, provider, running.masker),
        use=use,
        found=found,
        composer=composer_of_agent(definition, frame.csrf_token(), refused),
    )
