"""Sessions opened, changed and deleted through the API, beside the gateway's own traffic."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway_fixtures import CHAT, Gate, Reading, Reply, a_test_of, gate_and_model
from scripted_model import HANG, Row, asks_for, chat, delta, named, says, stream, user
from servers import DEADLINE, eventually
from xgw.config import ClientKey, Server
from xgw.store.models import Event, Message, RequestLog, Run, Session, Step, Turn

TOKEN, TEAM = "token-of-the-test", "key-of-the-team"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("sessions")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def ask(gate: Gate, method: str, path: str, body: Any = None, **headers: str) -> Reply:
    return Reading(gate.send(body, path, method, **headers)).rest()


def opened(gate: Gate, **fields: Any) -> Row:
    reply = ask(gate, "POST", "/sessions", fields)
    assert reply.status == 201, reply.body
    shown: Row = reply.json
    return shown


def refusal(reply: Reply) -> tuple[int, str, str | None]:
    return reply.status, reply.error["code"], reply.error["param"]


def told(gate: Gate, session_id: str) -> list[Row]:
    return gate.all(Event, Event.session_id == session_id, by=Event.seq)


# -- opened ----------------------------------------------------------------------------------------


def test_a_session_is_opened_with_everything_it_may_have(gate: Gate) -> None:
    wanted = {
        "session_key": "trip/42",
        "title": "A trip",
        "model": "m",
        "metadata": {"plan": ["a", None]},
        "end_user_id": "ada",
        "task_id": "task-1",
    }
    budget = {"tokens": 1000, "cost_usd": 0.5}
    session = opened(gate, **wanted, budget=budget)
    assert {name: session[name] for name in wanted} == wanted
    assert session["budget"]["tokens"] == {"limit": 1000, "used": None, "remaining": 1000}
    assert session["budget"]["cost_usd"] == {"limit": 0.5, "used": None, "remaining": 0.5}
    kinds = (session["object"], session["kind"], session["status"], session["source"])
    assert kinds == ("session", "chat", "active", "api")
    assert (session["turn_count"], session["tools"], session["active_turn_id"]) == (0, [], None)
    (event,) = told(gate, session["id"])
    assert event["type"] == "session.created"
    payload = event["payload"]
    assert (payload["session_key"], payload["title"]) == ("trip/42", "A trip")
    assert (payload["model"], payload["budget"], payload["source"]) == ("m", budget, "api")


def test_a_session_without_a_body_has_its_id_as_key(gate: Gate) -> None:
    reply = ask(gate, "POST", "/sessions")
    assert reply.status == 201
    assert reply.json["session_key"] == reply.json["id"]
    assert gate.get(f"/sessions/{reply.json['id']}").json == reply.json


def test_a_known_key_brings_the_session_that_has_it(gate: Gate) -> None:
    gate.model.will(says())
    gate.post(chat(**named("known")))
    before = gate.session("known")
    reply = ask(gate, "POST", "/sessions", {"session_key": "known", "title": "not taken"})
    assert (reply.status, reply.json["id"]) == (200, before["id"])
    assert reply.json["title"] is None
    assert [e["type"] for e in told(gate, before["id"])].count("session.created") == 1


def test_what_the_gateway_gets_goes_into_an_opened_session(gate: Gate) -> None:
    session = opened(gate, session_key="prepared", task_id="task-9")
    gate.model.will(says("first"), says("second"))
    history = [user("before"), {"role": "assistant", "content": "long ago"}, user("now")]
    turn = gate.turn(gate.post(chat(*history, **named("prepared"))))
    assert (turn["session_id"], turn["task_id"]) == (session["id"], "task-9")
    told_of = [(m["content"], m["metadata"]) for m in gate.messages(turn)]
    mark = {"history": True}
    assert told_of == [("before", mark), ("long ago", mark), ("now", None), ("first", None)]
    again = gate.turn(gate.post(chat(*history, "and now", **named("prepared"))))
    assert [m["content"] for m in gate.messages(again)] == ["now", "and now", "second"]
    assert len(gate.all(Session, Session.session_key == "prepared")) == 1


def test_eight_that_open_one_key_at_once_get_one_session(gate: Gate) -> None:
    barrier, replies = threading.Barrier(8), list[Reply]()

    def open_it(number: int) -> None:
        barrier.wait(DEADLINE)
        if number % 2:
            replies.append(ask(gate, "POST", "/sessions", {"session_key": "crowd"}))
        else:
            replies.append(gate.post(chat(**named("crowd"))))

    gate.model.will(*[says()] * 4)
    threads = [threading.Thread(target=open_it, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert {reply.status for reply in replies} <= {200, 201}
    assert sum(reply.status == 201 for reply in replies) <= 1
    session = gate.session("crowd")
    assert session["turn_count"] == 4
    assert [e["type"] for e in told(gate, session["id"])].count("session.created") == 1


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"session_key": ""}, "session_key"),
        ({"session_key": "a\nb"}, "session_key"),
        ({"session_key": 5}, "session_key"),
        ({"session_key": "new"}, "session_key"),
        ({"session_key": "x" * 257}, "session_key"),
        ({"end_user_id": ["ada"]}, "end_user_id"),
        ({"task_id": True}, "task_id"),
        ({"title": ""}, "title"),
        ({"title": "x" * 501}, "title"),
        ({"title": "two\nlines"}, "title"),
        ({"title": "   "}, "title"),
        ({"title": "\u3000\u200b"}, "title"),
        ({"model": " "}, "model"),
        ({"agent": " "}, "agent"),
        ({"model": 4}, "model"),
        ({"metadata": [1]}, "metadata"),
        ({"metadata": {"x": "y" * 70_000}}, "metadata"),
        ({"budget": 5}, "budget"),
        ({"budget": {"tokens": 0}}, "budget"),
        ({"budget": {"tokens": 1.5}}, "budget"),
        ({"budget": {"tokens": True}}, "budget"),
        ({"budget": {"cost_usd": -1}}, "budget"),
        ({"budget": {"cost_usd": "1"}}, "budget"),
        ({"budget": {"money": 1}}, "budget"),
        ({"agent": "support"}, "agent"),
        ({"mode": "task"}, "mode"),
        ({"status": "closed"}, "status"),
        ({"tittle": "x"}, "tittle"),
    ],
)
def test_a_value_that_cannot_be_names_its_field(gate: Gate, body: Row, param: str) -> None:
    assert refusal(ask(gate, "POST", "/sessions", body)) == (422, "invalid_value", param)


def test_a_budget_that_is_too_large_is_told_the_most(gate: Gate) -> None:
    for budget, most in (({"tokens": 1e30}, f"{2**53:,}"), ({"cost_usd": 1e30}, "1,000,000,000")):
        error = ask(gate, "POST", "/sessions", {"budget": budget}).error
        assert error["message"].endswith(most)


def test_bodies_that_are_no_object(gate: Gate) -> None:
    for body in (b"[]", b"3", b'"x"', b"null"):
        assert ask(gate, "POST", "/sessions", body).status == 400
    for body in (b"{", b'{"title": NaN}', b'{"a":' * 300 + b"1" + b"}" * 300):
        assert ask(gate, "POST", "/sessions", body).status == 400
    for body in (b"[" * 300, b'{"a":[' * 150, b"[" * 5000):
        refused = ask(gate, "POST", "/sessions", body)
        assert refusal(refused) == (400, "json_too_deep", None)
    assert ask(gate, "POST", "/sessions", b"a=b", content_type="text/plain").status == 415
    assert ask(gate, "POST", "/sessions?dry=1").status == 422


# -- changed ---------------------------------------------------------------------------------------


def test_what_is_changed_is_told_and_nothing_else(gate: Gate) -> None:
    session = opened(gate, session_key="draft", title="Draft", metadata={"a": 1})
    path, budget = f"/sessions/{session['id']}", {"tokens": 10, "cost_usd": None}
    changes = {"title": "Final", "metadata": {"a": 1}, "budget": budget, "status": "archived"}
    reply = ask(gate, "PATCH", path, changes)
    assert reply.status == 200
    assert (reply.json["title"], reply.json["status"]) == ("Final", "archived")
    assert reply.json["budget"]["tokens"]["limit"] == 10
    assert reply.json["updated_at"] > session["updated_at"]
    _, event = told(gate, session["id"])
    assert (event["type"], event["turn_id"]) == ("session.updated", None)
    assert event["payload"] == {"title": "Final", "budget": budget, "status": "archived"}
    assert ask(gate, "PATCH", path, changes).json == reply.json
    assert ask(gate, "PATCH", path, {}).json == reply.json
    assert len(told(gate, session["id"])) == 2
    listed = gate.get("/sessions?limit=500").json["data"]
    assert session["id"] not in [row["id"] for row in listed]
    cleared = ask(gate, "PATCH", "/sessions/draft", {"title": None, "budget": None}).json
    assert (cleared["title"], cleared["budget"]["tokens"]["limit"]) == (None, None)


def test_traffic_makes_a_closed_session_active_again(gate: Gate) -> None:
    opened(gate, session_key="closed")
    assert ask(gate, "PATCH", "/sessions/closed", {"status": "closed"}).json["status"] == "closed"
    gate.model.will(says())
    gate.post(chat(**named("closed")))
    assert gate.get("/sessions/closed").json["status"] == "active"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"status": "deleted"}, "status"),
        ({"status": None}, "status"),
        ({"status": ["active"]}, "status"),
        ({"title": 1}, "title"),
        ({"title": " "}, "title"),
        ({"budget": {"tokens": "many"}}, "budget"),
        ({"model": "m"}, "model"),
        ({"session_key": "other"}, "session_key"),
        ({"id": "sess_1"}, "id"),
    ],
)
def test_what_cannot_be_changed(gate: Gate, body: Row, param: str) -> None:
    session = opened(gate)
    reply = ask(gate, "PATCH", f"/sessions/{session['id']}", body)
    assert refusal(reply) == (422, "invalid_value", param)
    assert gate.get(f"/sessions/{session['id']}").json == session


def test_changing_what_is_not_there(gate: Gate) -> None:
    assert ask(gate, "PATCH", "/sessions/nowhere", {"title": "x"}).status == 404
    session = opened(gate)
    assert ask(gate, "PATCH", f"/sessions/{session['id']}").status == 400


# -- deleted ---------------------------------------------------------------------------------------


def everything(gate: Gate, session_id: str) -> list[int]:
    """How many rows of each kind belong to a session."""
    turns = Turn.select(Turn.id).where(Turn.session_id == session_id)
    return [
        len(gate.all(Session, Session.id == session_id)),
        len(gate.all(Turn, Turn.session_id == session_id)),
        len(gate.all(Run, Run.turn_id << turns)),
        len(gate.all(Step, Step.session_id == session_id)),
        len(gate.all(Message, Message.session_id == session_id)),
        len(gate.all(RequestLog, RequestLog.session_id == session_id)),
    ]


def test_a_deleted_session_is_gone_with_everything_in_it(gate: Gate) -> None:
    gate.model.will(asks_for("c1"), says("kept"))
    reply = gate.post(chat(**named("gone")))
    kept = gate.turn(gate.post(chat(**named("stays"))))
    turn = gate.turn(reply)
    assert turn["status"] == "running"
    session_id = turn["session_id"]
    deleted = ask(gate, "DELETE", "/sessions/gone")
    assert (deleted.status, deleted.body) == (204, b"")
    assert everything(gate, session_id) == [0] * 6
    (event,) = told(gate, session_id)
    assert (event["type"], event["payload"]) == ("session.deleted", {})
    assert gate.all(Event, Event.turn_id == turn["id"]) == []
    for path in (f"/sessions/{session_id}", "/sessions/gone", f"/turns/{turn['id']}"):
        assert gate.get(path).status == 404
    assert ask(gate, "DELETE", f"/sessions/{session_id}").status == 404
    assert gate.story(kept)[-1] == "turn.completed success finished"


def test_its_key_names_a_new_session_afterwards(gate: Gate) -> None:
    gate.model.will(says("one"), says("two"), says("three"))
    first = gate.turn(gate.post(chat(**named("again", "k"))))
    ask(gate, "DELETE", "/sessions/again")
    second = gate.turn(gate.post(chat(**named("again", "k"))))
    assert second["session_id"] not in (None, first["session_id"])
    assert (second["turn_index"], second["id"] != first["id"]) == (0, True)
    # The old id is but a key that nothing has.
    third = gate.turn(gate.post(chat(**named(first["session_id"]))))
    assert third["session_id"] not in (first["session_id"], second["session_id"])
    assert gate.session(first["session_id"])["id"] == third["session_id"]


@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_under_way_is_cancelled_first(gate: Gate, streamed: bool) -> None:
    key = f"busy-{streamed}"
    gate.model.will(stream(delta("so far"), HANG))
    connection = gate.send(chat(stream=streamed, **named(key)))
    eventually(gate.model.was_asked)
    eventually(lambda: gate.all(Session, Session.session_key == key))
    if streamed:
        reading = Reading(connection)
        reading.until(b"so far")
    session_id = gate.session(key)["id"]
    with watching(gate, session_id) as types:
        assert ask(gate, "DELETE", f"/sessions/{session_id}").status == 204
        eventually(lambda: "session.deleted" in types)
        assert types[-3:] == ["run.completed", "turn.completed", "session.deleted"]
    reply = reading.rest() if streamed else Reading(connection).rest()
    error = orjson.loads(reply.events[-1])["error"] if streamed else reply.error
    assert error["code"] == "turn_cancelled"
    assert everything(gate, session_id) == [0] * 6
    assert [e["type"] for e in told(gate, session_id)] == ["session.deleted"]


def test_a_client_that_takes_nothing_does_not_keep_its_session(gate: Gate) -> None:
    gate.model.will(stream(*[delta("x" * 60_000)] * 400, HANG))
    connection = gate.send(chat(stream=True, **named("unread")))
    eventually(lambda: gate.all(Step, Step.partial_output.is_null(False)))
    session_id = gate.session("unread")["id"]
    assert ask(gate, "DELETE", "/sessions/unread").status == 204
    assert everything(gate, session_id) == [0] * 6
    connection.close()


def test_sessions_are_deleted_under_traffic_of_their_own_key(gate: Gate) -> None:
    """Nobody's request fails, and what remains of the last session is whole."""
    gate.model.always(says())
    done, replies = threading.Event(), list[Reply]()

    def talk() -> None:
        while not done.is_set():
            replies.append(gate.post(chat(**named("contested"))))

    threads = [threading.Thread(target=talk) for _ in range(3)]
    for thread in threads:
        thread.start()
    deleted = 0
    while deleted < 10:
        deleted += ask(gate, "DELETE", "/sessions/contested").status == 204
    done.set()
    for thread in threads:
        thread.join(DEADLINE)
    assert {(r.status, r.json.get("error", {}).get("code")) for r in replies} <= {
        (200, None),
        (409, "turn_cancelled"),
    }
    session = gate.all(Session, Session.session_key == "contested")
    turns = gate.all(Turn, Turn.session_id << [row["id"] for row in session], by=Turn.turn_index)
    assert [turn["turn_index"] for turn in turns] == list(range(len(turns)))
    assert {turn["status"] for turn in turns} <= {"success"}
    assert sum(row["turn_count"] for row in session) == len(turns)


@contextlib.contextmanager
def watching(gate: Gate, session_id: str) -> Iterator[list[str]]:
    """The types of a session's events as they come."""
    types: list[str] = []
    wanted = gate.services.hub.subscribe(lambda e: e.session_id == session_id, live=False)

    def read() -> None:
        while not wanted.closed:
            types.extend(envelope.type for envelope in wanted.get(DEADLINE))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield types
    finally:
        wanted.close()
        thread.join(DEADLINE)


# -- projects --------------------------------------------------------------------------------------


def test_a_key_reaches_the_sessions_of_its_project_alone(tmp_path: Path) -> None:
    keys = (ClientKey(key=TEAM, project="team", org="acme"),)
    with gate_and_model(tmp_path, server=Server(token=TOKEN), keys=keys) as gate:
        team, token = f"Bearer {TEAM}", f"Bearer {TOKEN}"
        mine = ask(gate, "POST", "/sessions", {"session_key": "same"}, authorization=team).json
        own = ask(gate, "POST", "/sessions", {"session_key": "same"}, authorization=token).json
        assert (mine["project_id"], mine["org_id"]) == ("team", "acme")
        assert (own["project_id"], mine["id"] != own["id"]) == ("default", True)
        path = f"/sessions/{own['id']}"
        assert ask(gate, "PATCH", path, {"title": "x"}, authorization=team).status == 404
        assert ask(gate, "DELETE", path, authorization=team).status == 404
        assert ask(gate, "DELETE", "/sessions/same", authorization=team).status == 204
        gate.model.will(says())
        reply = gate.post(chat(**named("same")), CHAT, authorization=team)
        assert gate.turn(reply)["session_id"] not in (mine["id"], own["id"])
        assert ask(gate, "DELETE", path, authorization=token).status == 204
        assert ask(gate, "POST", "/sessions").status == 401


def test_a_key_that_is_spelled_as_the_id_of_anothers_session(tmp_path: Path) -> None:
    keys = (ClientKey(key=TEAM, project="team"),)
    with gate_and_model(tmp_path, server=Server(token=TOKEN), keys=keys) as gate:
        team, token = f"Bearer {TEAM}", f"Bearer {TOKEN}"
        other = ask(gate, "POST", "/sessions", {}, authorization=token).json["id"]
        gate.model.will(says())
        mine = gate.turn(gate.post(chat(**named(other)), CHAT, authorization=team))
        assert mine["session_id"] != other
        found = ask(gate, "GET", f"/sessions/{other}", authorization=team)
        assert (found.status, found.json["id"]) == (200, mine["session_id"])
        for noun in ("turns", "requests"):
            page = ask(gate, "GET", f"/{noun}?session_id={other}", authorization=team)
            assert [row["session_id"] for row in page.json["data"]] == [mine["session_id"]]
        assert ask(gate, "GET", f"/sessions/{other}", authorization=token).json["id"] == other
        page = ask(gate, "GET", f"/turns?session_id={other}", authorization=token)
        assert page.json["data"] == []


@pytest.mark.parametrize(
    "path", ["/sessions", "/turns/x/cancel", "/health", "/openapi.json", "/ui/"]
)
def test_nothing_has_no_type(gate: Gate, path: str) -> None:
    reply = gate.get(path, "OPTIONS")
    assert (reply.status, reply.body, reply.headers["content-length"]) == (200, b"", "0")
    assert "OPTIONS" in reply.headers["allow"]
    assert "content-type" not in reply.headers
    assert reply.headers["cache-control"] == "no-store"
    assert not [name for name in reply.headers if name.startswith("access-control")]
    moved = gate.get("/")
    assert (moved.status, moved.body, "content-type" in moved.headers) == (303, b"", False)
    assert gate.get("/sessions", "HEAD").headers["content-type"] == "application/json"
