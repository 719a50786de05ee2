"""Agents, and messages to them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import orjson
from flask import Blueprint, Response, request

from xgw import clock
from xgw.agents.definition import Definition
from xgw.agents.scheduler import IfBusy
from xgw.agents.turns import Turn, Wanted
from xgw.errors import ApiError, overloaded
from xgw.events import Envelope
from xgw.hub import Batch
from xgw.providers.transport.watching import is_quiet
from xgw.queries import sessions, turns
from xgw.recording.agents import session_gone
from xgw.web import agents
from xgw.web.api import agent_sessions, edge, events, fields
from xgw.web.api.feed import Feed, Watch
from xgw.web.api.feed import Wanted as WantedEvents
from xgw.web.serialize import Json

routes = Blueprint("agents", __name__)

WAIT_SECONDS = 600.0
LOOK_SECONDS = 1.0
PEEK = socket.MSG_PEEK | getattr(socket, "MSG_DONTWAIT", 0)


@routes.get("/agents")
def list_agents() -> Response:
    """GET /agents"""
    edge.only()
    shown = [_show(definition) for definition in edge.services().agents.values()]
    return edge.answer({"object": "list", "data": shown, "has_more": False, "next_cursor": None})


@routes.get("/agents/<name>")
def get_agent(name: str) -> Response:
    """GET /agents/{name}"""
    edge.only()
    return edge.answer(_show(agent_sessions.looked_at(name)))


@routes.post("/agents/<name>/chat")
def chat(name: str) -> Response:
    """POST /agents/{name}/chat: 200 once the turn has ended, 202 if it takes longer than `wait`, or
    waits for a person"""
    edge.only()
    running = edge.services()
    with running.watchers.taken():
        turn, wait = _submit(name)
        _wait(turn, wait)
    answer = _answer(turn)
    return edge.answer(answer, 202 if "runStatus" in answer else 200)


@routes.post("/agents/<name>/chat/stream")
def stream_chat(name: str) -> Response:
    """POST /agents/{name}/chat/stream: the turn's events as they happen, last the answer"""
    edge.only()
    running = edge.services()
    running.watchers.take()
    try:
        after = running.hub.newest
        turn, wait = _submit(name)
    except BaseException:
        running.watchers.leave()
        raise
    watch = Watch(WantedEvents(session_id=turn.scope.session_id, turn_id=turn.scope.turn_id), after)
    feed = Feed(running.store, running.hub, running.recorder.live, watch)
    frames = _frames(feed, turn, clock.monotonic() + wait, lambda: _answer(turn, running))
    response = Response(frames, mimetype="text/event-stream", headers=events.HEADERS)
    response.call_on_close(running.watchers.leave)
    return response


def _wait(turn: Turn, seconds: float) -> None:
    """Wait for the end of a turn, but not on behalf of a client that has gone."""
    deadline = clock.monotonic() + seconds
    client = request.environ.get("gunicorn.socket") or request.environ.get("werkzeug.socket")
    while (left := deadline - clock.monotonic()) > 0:
        if turn.done.wait(min(left, LOOK_SECONDS)) or _has_gone(client):
            return


def _has_gone(client: socket.socket | None) -> bool:
    """Whether the client has closed its connection; one that sends ahead is taken to be there."""
    if client is None or client.fileno() < 0 or is_quiet(client):
        return False
    try:
        # Past any TLS layer, where a peek is refused.
        return not socket.socket.recv(client, 1, PEEK)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


def _submit(name: str) -> tuple[Turn, float]:
    """The turn of the message in the request, and how long its answer is waited for."""
    definition = agent_sessions.named(name)
    given = fields.read(fields.CHATTING, needed=True)
    return ask(definition, given), given.get("wait", WAIT_SECONDS)


def ask(definition: Definition, given: Json) -> Turn:
    """A message to an agent, of fields as `fields.CHATTING` checks them; its turn runs or waits."""
    message = fields.required(given, "message")
    model = given.get("model") or definition.table.model
    edge.services().router.find(model, "chat.completions")  # before a session is made for it
    mode = given.get("mode")
    session = agent_sessions.find_for(definition, given.get("sessionId"), mode)
    masker = edge.services().masker
    wanted = Wanted(
        message=masker.text(message),
        mode=mode or session["mode"] or "chat",
        model=given.get("model"),
        parameters=given.get("parameters") or {},
        metadata=given.get("metadata"),
        client=edge.client(),
    )
    busy: IfBusy = given.get("ifBusy") or "queue"
    return edge.services().scheduler.submit(definition, session, wanted, busy)


def _answer(turn: Turn, running: Any = None) -> Json:
    """The published answer, of what the store has by now; ApiError 404 if it was deleted, 503."""
    running = running or edge.services()
    is_over = turn.done.is_set()  # before its row is read: it may end just then
    row = turns.find_turn_with_runs(running.store, turn.scope.turn_id)
    session_id, project_id = turn.scope.session_id, turn.scope.project_id
    if row is None and sessions.find_session(running.store, str(session_id), project_id) is None:
        raise session_gone(session_id)
    if row is None or (is_over and row["ended_at"] is None and not turn.waits):
        message = "the store cannot be written at the moment: the answer will be in it later"
        raise overloaded(message, retry_after=1)
    session = sessions.find_session(running.store, row["session_id"], row["project_id"])
    return agents.chat_response(row, session, running.scheduler.position(turn))


def _frames(feed: Feed, turn: Turn, until: float, answer: Any) -> Iterator[bytes]:
    """The turn's envelopes, then `chat.response`; an error where there is no answer."""
    yield b": connected\n\n"
    was_done = False
    for batches in feed.batches(1.0):
        yield b"".join(batch.encoded(events.frame) for batch in batches) or b": waiting\n\n"
        is_late = clock.monotonic() >= until
        if is_late or _has_ended(batches, turn) or (not batches and was_done):
            break
        was_done = turn.done.is_set()  # its last events may still be on their way
    turn.done.wait(0 if clock.monotonic() >= until else 2.0)
    try:
        name, body = b"chat.response", answer()
    except ApiError as error:
        name, body = b"error", error.body()
    yield b"event: %b\ndata: %b\n\n" % (name, orjson.dumps(body))


def _has_ended(batches: list[Batch], turn: Turn) -> bool:
    """Whether the turn is over, or waits for a person."""
    told = (envelope for batch in batches for envelope in batch.envelopes)
    return any(_is_end(e) for e in told if e.turn_id == turn.scope.turn_id)


def _is_end(envelope: Envelope) -> bool:
    waits = envelope.type == "run.updated" and envelope.payload["status"] == "waiting_tool"
    return waits or envelope.type == "turn.completed"


def _show(definition: Definition) -> Json:
    running = edge.services()
    provider = agents.first_provider(running.router, definition)
    return agents.agent(definition, provider, running.masker)
