"""WS /ws: sessions and lists as they change, and what can be done about them, over one socket."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from xgw import errors
from xgw.errors import ApiError
from xgw.events import TYPES
from xgw.web.api import (
    agent_sessions,
    agents,
    edge,
    events,
    fields,
    frames,
    rows,
    runs,
    sessions,
    turns,
)
from xgw.web.api.feed import Wanted, Watch
from xgw.web.api.frames import BadFrame, Json, Request
from xgw.web.api.rows import Rows
from xgw.web.api.subscriptions import Subscriptions
from xgw.web.keys import Pass
from xgw.web.refusals import refusal_of
from xgw.web.sockets import (
    IDLE_SECONDS,
    MAX_MESSAGE,
    MESSAGE_TOO_BIG,
    POLICY_VIOLATION,
    Outcome,
    send,
)

WAITING = 8
"""Requests of one socket that wait to be answered; until then no more of them are read."""

WITHOUT_DELTAS = frozenset(TYPES) - {"step.delta"}

GIVEN_BY_ACTION = ("decision", "result")

Act = Callable[[Subscriptions, Json], Json]


@contextlib.contextmanager
def admit() -> Iterator[None]:
    """A watcher's place; ApiError 503 if there is none, 422 for a query."""
    edge.only()
    with edge.services().watchers.taken():
        yield


def converse(ws: Any) -> Outcome:
    """Answer requests and tell of what is subscribed to, until the socket is to be closed."""
    try:
        return _converse(ws, edge.watching())
    except ApiError as refusal:
        return POLICY_VIOLATION, refusal.message


def _converse(ws: Any, admitted: Pass) -> Outcome:
    """ApiError 401 once the key that opened the socket is revoked: nothing is sent from then on."""

    def tell(content: bytes) -> None:
        admitted.check()
        send(ws, content)

    inbox = Inbox(ws)
    with Subscriptions(edge.services(), tell) as told, inbox:
        inbox.open(told.nudge)
        while True:
            admitted.check()
            for message in inbox.take():
                if isinstance(message, str) and len(message.encode()) > MAX_MESSAGE:
                    return MESSAGE_TOO_BIG, "Message is too big"
                send(ws, answer(told, message))
            if (outcome := told.deliver(IDLE_SECONDS)) is not None:
                return outcome


class Inbox:
    """The messages of a socket: a few of them, the thread that reads them then stands still."""

    def __init__(self, ws: Any) -> None:
        self._ws = ws
        self._room = threading.Condition()
        self._closed = False

    def __enter__(self) -> Inbox:
        return self

    def __exit__(self, *_: object) -> None:
        with self._room:
            self._closed = True
            self._room.notify()

    def open(self, arrived: Callable[[], None]) -> None:
        """From now on `arrived` is called for each message, and at the end."""

        def ring() -> None:
            arrived()
            with self._room:
                self._room.wait_for(lambda: self._closed or not self._is_full)

        self._ws.event.ring = ring

    @property
    def _is_full(self) -> bool:
        return len(self._ws.input_buffer) > WAITING

    def take(self) -> Iterator[str | bytes]:
        """What is there; ConnectionClosed at the end."""
        for _ in range(WAITING):
            message = self._ws.receive(timeout=0)
            if message is None:
                return
            with self._room:
                self._room.notify()
            yield message


def answer(told: Subscriptions, message: str | bytes) -> bytes:
    """The frame that answers a message, a response or an error."""
    try:
        request = frames.parse(message)
    except BadFrame as bad:
        return frames.error(bad.refusal, bad.id, bad.action)
    try:
        return frames.response(request, _act(told, request))
    except ApiError as refusal:
        return frames.error(refusal, request.id, request.action)
    except Exception as fault:  # noqa: BLE001 - around one request: the others are none the worse
        return frames.error(refusal_of(fault, request.action), request.id, request.action)


def _act(told: Subscriptions, request: Request) -> Json:
    act = ACTIONS.get(request.action)
    if act is None:
        known = ", ".join(ACTIONS)
        message = f"there is no action {request.action[:64]!r} (there are {known})"
        raise errors.bad_request(message, code="unknown_action", param="action")
    return act(told, request.payload)


def _follow(told: Subscriptions, payload: Json) -> Json:
    asked = fields.checked(payload, fields.FOLLOWING)
    ref, after = fields.required(asked, "session_id"), asked.get("after")
    # The cursor first: what changes from then on is told, be it in the session already or not.
    newest = events.newest_seq()
    session = sessions.find(ref)
    cursor = newest if after is None else events.reached("after", after, newest)
    types = None if asked.get("deltas", True) else WITHOUT_DELTAS
    key = session["session_key"] if session["project_id"] == edge.own_project() else None
    told.follow(session["id"], key, Watch(Wanted(edge.project(), session["id"], types), cursor))
    return {"session": sessions.whole(session), "cursor": cursor}


def _leave(told: Subscriptions, payload: Json) -> Json:
    ref = fields.required(fields.checked(payload, fields.NAMING_SESSION), "session_id")
    for session_id in told.named(ref) or [sessions.find(ref)["id"]]:
        told.leave(session_id)
    return {}


def _list_rows(told: Subscriptions, payload: Json) -> Json:
    told.list_rows(Rows(edge.services(), edge.project(), rows.fitting(payload)))
    return {}


def _cancel(_: Subscriptions, payload: Json) -> Json:
    asked = fields.checked(payload, fields.NAMING_TURN)
    return turns.cancel(fields.required(asked, "turn_id"))


def _send_message(_: Subscriptions, payload: Json) -> Json:
    asked = fields.checked(payload, fields.SENDING)
    definition = agent_sessions.named(fields.required(asked, "agent"))
    names = {"session_id": "sessionId"}
    given = {names.get(name, name): value for name, value in asked.items() if name != "agent"}
    scope = agents.ask(definition, given).scope
    return {"session_id": scope.session_id, "turn_id": scope.turn_id, "run_id": scope.run_id}


def _approve(_: Subscriptions, payload: Json) -> Json:
    return _decide(payload, "approve")


def _deny(_: Subscriptions, payload: Json) -> Json:
    return _decide(payload, "deny")


def _decide(payload: Json, decision: str) -> Json:
    checks = {name: check for name, check in fields.DECIDING.items() if name not in GIVEN_BY_ACTION}
    asked = fields.checked(payload, {**fields.NAMING_RUN, **checks})
    run_id = fields.required(asked, "run_id")
    given = {name: value for name, value in asked.items() if name != "run_id"}
    return runs.shown_step(runs.decide(run_id, {**given, "decision": decision}))


def _resume(_: Subscriptions, payload: Json) -> Json:
    asked = fields.checked(payload, fields.NAMING_RUN)
    return runs.shown(runs.resume(fields.required(asked, "run_id")))


def _rerun(_: Subscriptions, payload: Json) -> Json:
    asked = fields.checked(payload, {**fields.NAMING_TURN, **fields.REPEATING})
    turn_id = fields.required(asked, "turn_id")
    given = {name: value for name, value in asked.items() if name != "turn_id"}
    return runs.shown(runs.rerun(turn_id, given))


def _ping(_: Subscriptions, payload: Json) -> Json:
    fields.checked(payload, {})
    return {}


ACTIONS: dict[str, Act] = {
    "session.subscribe": _follow,
    "session.unsubscribe": _leave,
    "sessions.subscribe": _list_rows,
    "session.message.send": _send_message,
    "turn.cancel": _cancel,
    "turn.rerun": _rerun,
    "run.resume": _resume,
    "tool.approve": _approve,
    "tool.deny": _deny,
    "ping": _ping,
}
