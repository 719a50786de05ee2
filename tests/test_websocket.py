"""WS /ws: frames, subscriptions, errors, and how a socket ends, with a client of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from api_socket import ApiSocket, Frame, events, heard, key, shake_hands
from dashboard import Browser
from faults import running
from filled_store import at, selects, tell
from gateway_fixtures import Gate, a_test_of, gate_and_model
from scripted_model import DONE, chat, delta, finish, named, says, stream, usage
from servers import DEADLINE, eventually
from xgw import ids
from xgw.config import ClientKey, Server
from xgw.events import Envelope
from xgw.queries.events import list_events
from xgw.queries.filters import Filters
from xgw.queries.pages import Page
from xgw.recording.edits import Edits
from xgw.recording.facts import Scope
from xgw.store.transaction import Transaction
from xgw.values import Delta
from xgw.web import board, sockets
from xgw.web.api.rows import Rows
from xgw.web.api.subscriptions import MOST
from xgw.web.sockets import MAX_MESSAGE

TOKEN, TEAM = "token-that-sees-everything", "key-of-the-team-project"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("sockets")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served
    eventually(lambda: served.services.watchers.count == 0)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    tables: dict[str, Any] = {
        "server": Server(token=TOKEN),
        "keys": (ClientKey(key=TEAM, project="team"),),
    }
    with gate_and_model(tmp_path_factory.mktemp("keyed"), **tables) as gate:
        yield gate


def new_session(gate: Gate, session_key: str, **headers: str) -> str:
    reply = gate.post({"session_key": session_key}, path="/sessions", **headers)
    return str(reply.json["id"])


def a_turn(gate: Gate, session_key: str, text: str = "done") -> None:
    gate.model.will(says(text))
    gate.ended(gate.post(chat("go", **named(session_key))))


def stored(gate: Gate, session_id: str, after: int = 0) -> list[Frame]:
    """What the store has of a session, as it goes over the wire."""
    found = list_events(gate.store, after, 100_000, session_id=session_id)
    return [envelope.to_json() for envelope in found]


# -- frames ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["a1", 7, None])
def test_an_answer_has_the_id_and_the_action_of_its_request(gate: Gate, id: Any) -> None:
    with ApiSocket(gate) as client:
        frame = client.say(orjson.dumps({"id": id, "type": "request", "action": "ping"}).decode())
        assert frame == {"id": id, "type": "response", "action": "ping", "payload": {}}


@pytest.mark.parametrize(
    ("message", "id", "action", "code", "param"),
    [
        ("{", None, None, "invalid_json", None),
        ('{"id": 1, "x": NaN}', None, None, "invalid_json", None),
        ("[" * 300 + "]" * 300, None, None, "json_too_deep", None),
        ("[" * 300, None, None, "json_too_deep", None),
        ("[]", None, None, "invalid_frame", None),
        (b"\x00\x01", None, None, "invalid_frame", None),
        ('{"id": 1}', 1, None, "invalid_frame", "type"),
        ('{"id": 2, "type": "response", "action": "ping"}', 2, "ping", "invalid_frame", "type"),
        ('{"id": 3, "type": "request"}', 3, None, "invalid_frame", "action"),
        ('{"id": {}, "type": "request", "action": "ping"}', None, "ping", "invalid_frame", "id"),
        (
            '{"id": 4, "type": "request", "action": "ping", "payload": []}',
            4,
            "ping",
            "invalid_frame",
            "payload",
        ),
        (
            '{"id": 5, "type": "request", "action": "ping", "payloads": {}}',
            5,
            "ping",
            "invalid_frame",
            "payloads",
        ),
        ('{"id": 6, "type": "request", "action": "pong"}', 6, "pong", "unknown_action", "action"),
        (
            '{"id": 7, "type": "request", "action": "run.rename"}',
            7,
            "run.rename",
            "unknown_action",
            "action",
        ),
        (
            '{"id": 8, "type": "request", "action": "ping", "payload": {"x": 1}}',
            8,
            "ping",
            "invalid_value",
            "x",
        ),
    ],
)
def test_a_frame_that_is_no_request_is_an_error_and_the_socket_goes_on(
    gate: Gate,
    message: str | bytes,
    id: Any,
    action: str | None,
    code: str,
    param: str | None,
) -> None:
    with ApiSocket(gate) as client:
        frame = client.say(message)
        error = frame.pop("payload")
        assert frame == {"id": id, "type": "error", "action": action}
        assert (error["code"], error["param"]) == (code, param)
        assert error["type"] == "invalid_request_error"
        assert error["message"]
        assert client.ask("ping") == {}


@pytest.mark.parametrize(
    ("action", "payload", "code", "param"),
    [
        ("session.subscribe", {}, "invalid_value", "session_id"),
        ("session.subscribe", {"session_id": 1}, "invalid_value", "session_id"),
        ("session.subscribe", {"session_id": "nobody"}, "session_not_found", None),
        ("session.subscribe", {"session_id": "there", "after": "1"}, "invalid_value", "after"),
        ("session.subscribe", {"session_id": "there", "after": -1}, "invalid_value", "after"),
        ("session.subscribe", {"session_id": "there", "after": 1 << 62}, "cursor_ahead", None),
        ("session.subscribe", {"session_id": "there", "deltas": 1}, "invalid_value", "deltas"),
        ("session.subscribe", {"session_id": "there", "type": "x"}, "invalid_value", "type"),
        ("session.unsubscribe", {}, "invalid_value", "session_id"),
        ("session.unsubscribe", {"session_id": "nobody"}, "session_not_found", None),
        ("sessions.subscribe", {"colour": "red"}, "invalid_value", "colour"),
        ("sessions.subscribe", {"limit": "5"}, "invalid_value", "limit"),
        ("sessions.subscribe", {"q": "state:odd"}, "invalid_value", "q"),
        ("sessions.subscribe", {"model": True}, "invalid_value", "model"),
        ("sessions.subscribe", {"model": []}, "invalid_value", "model"),
        ("sessions.subscribe", {"model": None}, "invalid_value", "model"),
        ("turn.cancel", {}, "invalid_value", "turn_id"),
        ("turn.cancel", {"turn_id": "turn_x"}, "turn_not_found", None),
    ],
)
def test_a_request_that_cannot_be_done_says_why(
    gate: Gate, action: str, payload: Frame, code: str, param: str | None
) -> None:
    new_session(gate, "there")
    with ApiSocket(gate) as client:
        assert client.refused(action, **payload) == (code, param)
        assert client.ask("ping") == {}


def test_requests_are_answered_in_order_however_many_come_at_once(gate: Gate) -> None:
    with ApiSocket(gate) as client:
        for id in range(500):
            request = {"id": id, "type": "request", "action": "ping", "payload": {}}
            client.ws.send(orjson.dumps(request).decode())
        assert [client.answer()["id"] for _ in range(500)] == list(range(500))


# -- a session -------------------------------------------------------------------------------------


def test_a_session_is_told_of_from_now_on(gate: Gate) -> None:
    session_id = new_session(gate, "plain")
    a_turn(gate, "plain", "before")
    with ApiSocket(gate) as client:
        answer = client.ask("session.subscribe", session_id="plain")
        cursor = answer["cursor"]
        assert cursor == stored(gate, session_id)[-1]["seq"]
        assert answer == {"session": gate.get("/sessions/plain").json, "cursor": cursor}
        a_turn(gate, "plain")
        client.until("session.turn.completed")
        told = events(client.told)
        assert told == stored(gate, session_id, cursor)
        assert [f["action"] for f in client.told if f["payload"]["seq"]] == [
            "session.turn.started",
            "session.run.started",
            "session.message.added",
            "session.step.started",
            "session.step.completed",
            "session.message.added",
            "session.run.completed",
            "session.turn.completed",
        ]
        gate.send({"title": "named"}, f"/sessions/{session_id}", "PATCH").getresponse().read()
        assert client.until("session.updated")["payload"] == {"title": "named"}


def test_who_comes_in_the_middle_of_an_answer_gets_all_of_it(gate: Gate) -> None:
    session_id = new_session(gate, "late")
    half, whole = threading.Event(), threading.Event()
    pieces = (delta("Once upon "), half, delta("a time\n<é😀>"), whole, finish(), usage(7, 9), DONE)
    gate.model.will(stream(*pieces))
    with ApiSocket(gate) as first, ApiSocket(gate) as second:
        first.ask("session.subscribe", session_id=session_id)
        reading = gate.open(chat("tell", stream=True, **named("late")))
        first.until("session.step.delta")
        second.ask("session.subscribe", session_id=session_id, after=0)
        begun = second.until("session.step.delta")
        assert begun["payload"] == {
            "kind": "text",
            "index": 0,
            "text": "Once upon ",
            "text_length": 10,
            "replace": True,
        }
        assert events(second.told) == stored(gate, session_id)
        half.set()
        for client in (first, second):
            while "time" not in heard(client.told).get(begun["step_id"], ""):
                client.read()
        whole.set()
        reading.rest()
        for client in (first, second):
            client.until("session.turn.completed")
            assert heard(client.told) == {begun["step_id"]: "Once upon a time\n<é😀>"}
        assert events(second.told) == stored(gate, session_id)


def test_who_comes_back_misses_nothing_and_gets_nothing_twice(gate: Gate) -> None:
    session_id = new_session(gate, "back")
    first, second = threading.Event(), threading.Event()
    gate.model.will(
        stream(delta("one "), first, delta("two "), second, delta("three"), finish(), DONE)
    )
    with ApiSocket(gate) as client:
        client.ask("session.subscribe", session_id=session_id, after=0)
        reading = gate.open(chat("count", stream=True, **named("back")))
        client.until("session.step.delta")
        seen = client.told
    first.set()
    cursor = events(seen)[-1]["seq"]
    with ApiSocket(gate) as client:
        assert client.ask("session.subscribe", session_id="back", after=cursor)["cursor"] == cursor
        client.until("session.step.delta")
        second.set()
        client.until("session.turn.completed")
        reading.rest()
        assert list(heard(client.told).values()) == ["one two three"]
        assert events(seen) + events(client.told) == stored(gate, session_id)


def test_a_long_history_comes_page_by_page_with_the_other_session_in_between(gate: Gate) -> None:
    long, short = new_session(gate, "long"), new_session(gate, "short")
    emit(gate, [envelope(long, n=n) for n in range(1200)])
    with ApiSocket(gate) as client:
        client.ask("session.subscribe", session_id=short)
        client.ask("session.subscribe", session_id=long, after=0)
        emit(gate, [envelope(short, n=0)])
        emit(gate, [envelope(long, n=1200)])
        client.until("session.turn.updated", session_id=short)
        while len(events(client.told, long)) < 1202:
            client.read()
        assert events(client.told, long) == stored(gate, long)


def test_one_socket_follows_several_sessions(gate: Gate) -> None:
    one, two = new_session(gate, "one"), new_session(gate, "two")
    with ApiSocket(gate) as client:
        for session_id in (one, two):
            client.ask("session.subscribe", session_id=session_id)
        for name in ("one", "two", "other"):
            a_turn(gate, name)
        client.until("session.turn.completed", session_id=two)
        assert {e["session_id"] for e in events(client.told)} == {one, two}
        for session_id in (one, two):
            # But what told of its being opened.
            assert events(client.told, session_id) == stored(gate, session_id)[1:]
        assert client.ask("session.unsubscribe", session_id="one") == {}
        assert client.ask("session.unsubscribe", session_id="one") == {}
        client.told.clear()
        a_turn(gate, "one")
        a_turn(gate, "two")
        client.until("session.turn.completed", session_id=two)
        assert events(client.told, one) == []


def test_subscribing_again_begins_anew(gate: Gate) -> None:
    session_id = new_session(gate, "anew")
    a_turn(gate, "anew")
    with ApiSocket(gate) as client:
        for _ in range(2):
            client.told.clear()
            client.ask("session.subscribe", session_id=session_id, after=0)
            client.until("session.turn.completed")
            assert events(client.told) == stored(gate, session_id)
        a_turn(gate, "anew")
        while len(events(client.told)) < len(stored(gate, session_id)):
            client.read()
        assert client.ask("ping") == {}
        assert events(client.told) == stored(gate, session_id)


def test_without_deltas_there_is_everything_else(gate: Gate) -> None:
    session_id = new_session(gate, "facts")
    wait = threading.Event()
    gate.model.will(stream(delta("text"), wait, delta(" more"), finish(), DONE))
    with ApiSocket(gate) as client, ApiSocket(gate) as other:
        client.ask("session.subscribe", session_id=session_id, deltas=False)
        other.ask("session.subscribe", session_id=session_id)
        reading = gate.open(chat("go", stream=True, **named("facts")))
        other.until("session.step.delta")
        client.ask("session.subscribe", session_id=session_id, after=0, deltas=False)
        assert client.until("session.step.progress")["seq"] is None
        wait.set()
        reading.rest()
        client.until("session.turn.completed")
        assert "session.step.delta" not in {frame["action"] for frame in client.told}


def test_a_deleted_session_says_so_and_can_be_left(gate: Gate) -> None:
    session_id = new_session(gate, "gone")
    with ApiSocket(gate) as client:
        client.ask("session.subscribe", session_id=session_id)
        gate.send(None, f"/sessions/{session_id}", "DELETE").getresponse().read()
        assert client.until("session.deleted")["session_id"] == session_id
        assert client.ask("session.unsubscribe", session_id=session_id) == {}
        assert client.refused("session.unsubscribe", session_id=session_id) == (
            "session_not_found",
            None,
        )


def test_a_deleted_session_can_be_left_by_its_key(gate: Gate) -> None:
    first = new_session(gate, "again")
    with ApiSocket(gate) as client:
        client.ask("session.subscribe", session_id=first)
        gate.send(None, f"/sessions/{first}", "DELETE").getresponse().read()
        client.until("session.deleted")
        second = new_session(gate, "again")
        client.ask("session.subscribe", session_id="again")
        gate.send(None, f"/sessions/{second}", "DELETE").getresponse().read()
        client.until("session.deleted", session_id=second)
        assert client.ask("session.unsubscribe", session_id="again") == {}
        for refused in (first, second, "again"):
            assert client.refused("session.unsubscribe", session_id=refused) == (
                "session_not_found",
                None,
            )


def test_a_socket_follows_so_many_sessions_and_no_more(gate: Gate) -> None:
    sessions = [new_session(gate, f"many-{n}") for n in range(MOST + 1)]
    with ApiSocket(gate) as client:
        for session_id in sessions[:MOST]:
            client.ask("session.subscribe", session_id=session_id)
        assert client.refused("session.subscribe", session_id=sessions[MOST]) == (
            "too_many_subscriptions",
            None,
        )
        client.ask("session.subscribe", session_id=sessions[0])
        client.ask("session.unsubscribe", session_id=sessions[1])
        client.ask("session.subscribe", session_id=sessions[MOST])


# -- the list --------------------------------------------------------------------------------------


def test_rows_of_a_list_come_as_they_change(gate: Gate) -> None:
    session_id = new_session(gate, "row")
    wait = threading.Event()
    gate.model.will(stream(delta("text"), wait, finish(), usage(7, 9), DONE))
    with ApiSocket(gate) as client:
        assert client.ask("sessions.subscribe") == {}
        reading = gate.open(chat("What is\nit?", stream=True, **named("row")))
        row = running_row(client, session_id)
        now = row["standing"].pop("now")
        assert row["fits"] is True
        assert row["standing"] == {
            "state": "running",
            "cause": None,
            "waits_for": None,
            "turn_id": gate.turns("row")[0]["id"],
            "title": "What is\nit?",
            "served_by": None,
            "wasted": 0,
        }
        assert (now["object"], now["step_type"], now["model"]) == ("step", "llm_call", "m")
        wait.set()
        reading.rest()
        gate.ended(reading)
        while row["standing"]["state"] != "done":
            row = client.read()["payload"]
        assert row["standing"]["now"] is None
        whole = gate.get(f"/sessions/{session_id}").json
        left_out = {"tools", "metadata", "session_summary", "working_memory", "artifacts"}
        assert row["session"] == {n: v for n, v in whole.items() if n not in left_out}
        assert {frame["action"] for frame in client.told} == {"sessions.row"}


def running_row(client: ApiSocket, session_id: str) -> Frame:
    """The first row of a session in which a step is under way."""
    while True:
        row = client.read()["payload"]
        assert row["session_id"] == session_id
        if row["standing"]["now"] is not None:
            return dict(row)


def test_a_list_with_a_filter_says_once_that_a_session_does_not_fit(gate: Gate) -> None:
    fits, other = new_session(gate, "fits"), new_session(gate, "other-one")
    with ApiSocket(gate) as client:
        client.ask("sessions.subscribe", q="fits", status=["active", "closed"])
        for _ in range(2):
            change(gate, other, title="x")
            change(gate, other, title="y")
            change(gate, fits, title="z")
            row = client.until("sessions.row", session_id=fits)
            assert (row["fits"], row["session"]["title"]) == (True, "z")
        rows = [frame["payload"] for frame in client.told]
        assert [row["fits"] for row in rows if row["session_id"] == other] == [False]
        # It comes in, and leaves again.
        change(gate, other, title="now it fits")
        assert client.until("sessions.row", session_id=other, fits=True)
        client.told.clear()
        change(gate, other, status="archived")
        assert client.until("sessions.row", session_id=other)["fits"] is False
        gate.send(None, f"/sessions/{fits}", "DELETE").getresponse().read()
        gone = client.until("sessions.row", session_id=fits, fits=False)
        assert gone == {"session_id": fits, "fits": False, "session": None, "standing": None}


def change(gate: Gate, session_id: str, **fields: str) -> None:
    reply = gate.send(fields, f"/sessions/{session_id}", "PATCH").getresponse()
    assert reply.status == 200, reply.read()
    reply.read()


def test_another_list_takes_the_place_of_the_one_before(gate: Gate) -> None:
    one, two = new_session(gate, "list-one"), new_session(gate, "list-two")
    with ApiSocket(gate) as client:
        client.ask("sessions.subscribe", session_key="list-one")
        client.ask("sessions.subscribe", session_key=["list-two"], running=False)
        change(gate, one, title="x")
        change(gate, two, title="x")
        assert client.until("sessions.row", session_id=two)["fits"] is True
        rows = [frame["payload"] for frame in client.told]
        assert not [row for row in rows if row["session_id"] == one and row["fits"]]


def test_a_list_and_a_session_are_both_told_of(gate: Gate) -> None:
    session_id = new_session(gate, "both")
    with ApiSocket(gate) as client:
        client.ask("sessions.subscribe", session_key="both")
        client.ask("session.subscribe", session_id=session_id, after=0)
        for _ in range(3):
            a_turn(gate, "both")
        while len(events(client.told)) < len(stored(gate, session_id)):
            client.read()
        assert events(client.told) == stored(gate, session_id)
        assert client.until("sessions.row", session_id=session_id)["fits"] is True


def test_what_changes_often_is_told_twice_a_second(gate: Gate) -> None:
    session_id = new_session(gate, "often")
    rows = Rows(gate.services, None, Filters())
    rows.note([envelope(session_id)])
    assert rows.due_in() == 0
    with gate.app.app_context():
        assert [row["session_id"] for row in rows.read()] == [session_id]
    assert rows.due_in() is None
    rows.note([envelope(session_id), envelope(session_id)])
    waits = rows.due_in()
    assert waits is not None
    assert 0 <= waits <= 0.5
    with gate.app.app_context():
        assert len(rows.read()) == 1
        assert rows.read() == []


@pytest.mark.parametrize("reads", ["some", "all"])
def test_a_session_that_is_deleted_while_its_row_is_read_does_no_harm(
    gate: Gate, reads: str
) -> None:
    session_id = new_session(gate, f"read-{reads}")

    def delete() -> None:
        change = Edits(gate.services.writer).delete_session("default", session_id, lambda: None)
        assert change.wait(DEADLINE)

    with gate.app.app_context(), selects(delete):
        if reads == "some":
            found = board.find_sessions(gate.services, [session_id], Filters())
        else:
            found = board.list_sessions(gate.services, Filters(), Page(1)).rows
    assert [row.id for row in found] == [session_id]
    assert gate.get(f"/sessions/{session_id}").status == 404


# -- cancelling ------------------------------------------------------------------------------------


def test_a_turn_is_cancelled(gate: Gate) -> None:
    session_id = new_session(gate, "stops")
    never = threading.Event()
    gate.model.will(stream(delta("begun"), never))
    with ApiSocket(gate) as client:
        client.ask("session.subscribe", session_id=session_id)
        reading = gate.open(chat("go", stream=True, **named("stops")))
        turn_id = client.until("session.step.delta")["turn_id"]
        turn = client.ask("turn.cancel", turn_id=turn_id)
        assert (turn["object"], turn["id"]) == ("turn", turn_id)
        assert (turn["status"], turn["ended_by"]) == ("cancelled", "user_cancel")
        assert b"turn_cancelled" in reading.rest().body
        told = client.until("session.turn.completed", turn_id=turn_id)
        assert told["payload"]["status"] == "cancelled"
        assert client.refused("turn.cancel", turn_id=turn_id) == ("illegal_move", None)
    never.set()


# -- who may ---------------------------------------------------------------------------------------


def test_a_client_key_sees_its_own_project_alone(keyed: Gate) -> None:
    theirs = new_session(keyed, "shared", **key(TOKEN))
    own = new_session(keyed, "shared", **key(TEAM))
    keyed.model.start_over()
    keyed.model.will(says())
    turn = keyed.turn(keyed.post(chat("go", **named("shared")), **key(TOKEN)))
    with ApiSocket(keyed, **key(TEAM)) as client:
        assert client.refused("session.subscribe", session_id=theirs) == ("session_not_found", None)
        assert client.refused("turn.cancel", turn_id=turn["id"]) == ("turn_not_found", None)
        answer = client.ask("session.subscribe", session_id="shared", after=0)
        assert answer["session"]["id"] == own
        client.ask("sessions.subscribe")
        for secret in (TOKEN, TEAM):
            keyed.model.will(says())
            keyed.ended(keyed.post(chat("go", **named("shared")), **key(secret)))
        client.until("session.turn.completed")
        client.until("sessions.row")
        assert {frame["payload"]["session_id"] for frame in client.told} == {own}
    with ApiSocket(keyed, **key(TOKEN)) as client:
        for session_id in (own, theirs):
            answer = client.ask("session.subscribe", session_id=session_id)
            assert answer["session"]["id"] == session_id


def test_a_key_is_needed_and_the_dashboards_login_is_none(keyed: Gate) -> None:
    browser = Browser(keyed.url)
    browser.log_in(TOKEN)
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    assert keyed.get("/ui/", Cookie=cookie).status == 200
    for headers in ({}, {"Cookie": cookie}, key("another")):
        reply = shake_hands(keyed, "/ws", **headers)
        assert (reply.status, reply.error["code"]) == (401, "invalid_api_key")
    for header in ("X_Api_Key", "X_Xgw_Key"):
        with ApiSocket(keyed, **{header: TEAM}) as client:
            assert client.ask("ping") == {}


def test_a_foreign_page_opens_nothing(gate: Gate) -> None:
    port = gate.address[1]
    foreign = [
        "https://attacker.test",
        f"http://localhost:{port}.attacker.test",
        f"http://attacker-localhost:{port}",
        f"http://127.0.0.1:{port + 1}",
        "null",
    ]
    for origin in foreign:
        reply = shake_hands(gate, "/ws", Origin=origin)
        assert (reply.status, reply.error["code"]) == (403, "foreign_origin")
    with ApiSocket(gate, Origin=f"http://127.0.0.1:{port}") as client:
        assert client.ask("ping") == {}


def test_what_is_no_handshake_is_told_so(gate: Gate) -> None:
    reply = gate.get("/ws")
    assert (reply.status, reply.error["code"]) == (400, "websocket_needed")
    reply = shake_hands(gate, "/ws?after=1")
    assert (reply.status, reply.error["param"]) == (422, "after")
    reply = shake_hands(gate, "/sessions")
    assert (reply.status, reply.error["code"]) == (426, "websocket_not_supported")


@pytest.mark.parametrize("version", ["8", "99", "13, 8", ""])
def test_another_version_of_the_protocol_is_told_which_one_is_spoken(
    gate: Gate, version: str
) -> None:
    reply = shake_hands(gate, "/ws", Sec_WebSocket_Version=version)
    assert (reply.status, reply.error["code"]) == (426, "websocket_version")
    assert reply.headers["sec-websocket-version"] == "13"


@pytest.mark.parametrize("sent", ["", "YQ==", "!", "dGhlIHNhbXBsZSBub25jZQ==,x"])
def test_a_handshake_needs_a_key(gate: Gate, sent: str) -> None:
    reply = shake_hands(gate, "/ws", Sec_WebSocket_Key=sent)
    assert (reply.status, reply.error["code"]) == (400, "websocket_key")


def test_a_socket_takes_one_place_however_much_it_follows(tmp_path: Path) -> None:
    with gate_and_model(tmp_path, server=Server(max_watchers=1)) as gate:
        sessions = [new_session(gate, f"place-{n}") for n in range(2)]
        with ApiSocket(gate) as client:
            for session_id in sessions:
                client.ask("session.subscribe", session_id=session_id)
            client.ask("sessions.subscribe")
            reply = shake_hands(gate, "/ws")
            assert (reply.status, reply.error["type"]) == (503, "overloaded")
            assert int(reply.headers["retry-after"]) >= 1
        eventually(lambda: gate.services.watchers.count == 0)
        with ApiSocket(gate) as client:
            assert client.ask("ping") == {}


# -- the end ---------------------------------------------------------------------------------------


def ping_of(size: int, letter: str = " ") -> str:
    """A ping in a frame of so many bytes."""
    head, tail = '{"id": 1, "type": "request", "action": "ping", "timestamp": "', '"}'
    return head + letter * ((size - len(head + tail)) // len(letter.encode())) + tail


def test_a_message_may_have_a_mebibyte_and_no_more(gate: Gate) -> None:
    with ApiSocket(gate) as client:
        assert client.say(ping_of(MAX_MESSAGE))["type"] == "response"
        client.ws.send(ping_of(MAX_MESSAGE + 1))
        assert client.end() == 1009
    with ApiSocket(gate) as client:
        client.ws.send(ping_of(MAX_MESSAGE + 4, "é"))
        assert client.end() == 1009


def test_who_still_sends_sees_why_the_socket_was_closed(gate: Gate) -> None:
    with ApiSocket(gate) as client:
        with contextlib.suppress(OSError):  # it may be over before everything was sent
            client.ws.send(ping_of(8 * MAX_MESSAGE))
        assert client.end() == 1009


def test_a_socket_ends_with_the_server(tmp_path: Path) -> None:
    with gate_and_model(tmp_path) as gate:
        session_id = new_session(gate, "ends")
        with ApiSocket(gate) as idle, ApiSocket(gate) as client:
            client.ask("session.subscribe", session_id=session_id)
            a_turn(gate, "ends")
            idle.ask("ping")
            gate.services.drain(1)
            assert client.end() == 1012
            assert events(client.told) == stored(gate, session_id)[1:]
            assert idle.end() == 1012


@pytest.mark.slow
def test_a_restarted_server_says_so(tmp_path: Path) -> None:
    with running(tmp_path) as gate, ApiSocket(gate) as client:
        gate.post({"session_key": "stays"}, path="/sessions")
        client.ask("session.subscribe", session_id="stays")
        client.ask("sessions.subscribe")
        gate.model.will(says())
        gate.post(chat("go", **named("stays")))
        client.until("session.turn.completed")
        ending = threading.Thread(target=gate.server.stop)
        ending.start()
        assert client.end() == 1012
        ending.join(DEADLINE)


def test_a_silent_socket_is_pinged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sockets.PING_SECONDS == 25
    monkeypatch.setattr(sockets, "PING_SECONDS", 0.5)
    with (
        gate_and_model(tmp_path) as gate,
        socket.create_connection(gate.address, DEADLINE) as sock,
    ):
        sock.sendall(
            b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += sock.recv(1)
        assert sock.recv(2) == b"\x89\x00"


# -- slow clients ----------------------------------------------------------------------------------


MORE = 6000
"""So many times 4 KB are more than the buffers on the way and a mailbox hold."""


def envelope(session_id: str, type: str = "turn.updated", **payload: Any) -> Envelope:
    return Envelope(None, type, at(0), "default", session_id, None, None, None, payload)


def emit(gate: Gate, envelopes: list[Envelope]) -> None:
    """Commit them and tell everyone."""

    def work(tx: Transaction) -> None:
        for one in envelopes:
            tell(tx, one)

    assert gate.services.writer.submit(work).wait(DEADLINE)


def test_who_is_too_slow_is_told_where_to_resume(gate: Gate) -> None:
    sessions = [new_session(gate, f"slow-{n}") for n in range(2)]
    with ApiSocket(gate) as client:
        for session_id in sessions:
            client.ask("session.subscribe", session_id=session_id)
        client.reads.clear()
        for _ in range(MORE // 20):
            emit(gate, [envelope(sessions[n % 2], text="x" * 4000) for n in range(20)])
        client.reads.set()
        assert client.end() == 1013
        lagged = [f for f in client.told if f["action"] == "session.stream.lagged"]
        assert client.told[-2:] == lagged
        seen = {id: events(client.told, id) for id in sessions}
        for frame, session_id in zip(lagged, sessions, strict=True):
            assert (frame["payload"]["type"], frame["payload"]["seq"]) == ("stream.lagged", None)
            assert frame["payload"]["session_id"] == session_id
            resume_after = frame["payload"]["payload"]["resume_after"]
            assert resume_after == seen[session_id][-1]["seq"]
            with ApiSocket(gate) as again:
                again.ask("session.subscribe", session_id=session_id, after=resume_after)
                rest = stored(gate, session_id, resume_after)
                while len(events(again.told)) < min(len(rest), 500):
                    again.read()
                assert events(again.told)[:500] == rest[:500]


def test_who_lost_pieces_of_a_text_gets_all_of_it(gate: Gate) -> None:
    session_id = new_session(gate, "pieces")
    scope = Scope("default", session_id, ids.mint("turn"), ids.mint("run"), "0" * 32)
    step_id = ids.mint("step")
    live = gate.services.recorder.live
    step = live.start(scope, step_id)
    with ApiSocket(gate) as client:
        client.ask("session.subscribe", session_id=session_id)
        client.reads.clear()
        for n in range(MORE):
            step.add([Delta("text", 0, f"{n} " + "x" * 4000)])
            live.pulse(step.started)
        client.reads.set()
        whole = step.text()
        while client.read()["payload"]["payload"]["text_length"] < len(whole):
            pass
        assert heard(client.told) == {step_id: whole}
        assert [f for f in client.told if f["payload"]["payload"].get("replace")]
    live.drop(step_id)
