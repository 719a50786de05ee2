"""The gateway as it is run: a process of its own, its signals, restarts, and its HTTP server."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from faults import Running
from gateway_fixtures import CHAT, PROVIDER_KEY, Reading
from scripted_model import (
    DONE,
    HANG,
    Asked,
    Model,
    asks_for,
    call,
    chat,
    completion,
    delta,
    finish,
    named,
    result,
    said,
    says,
    stream,
    user,
)
from scripted_upstream import Peer
from servers import DEADLINE, XGW, Installation, eventually, installed

CONFIG = """
[server]
heartbeat_seconds = 0.2
[[providers]]
name = "p1"
base_url = "{url}"
api_key = "{key}"
[[routes]]
model = "m"
targets = ["p1/m"]
"""


@contextlib.contextmanager
def running(installation: Installation, model: Model) -> Iterator[Running]:
    gate = Running(installation.serve(), model, installation.store)
    try:
        yield gate
    finally:
        gate.store.close()


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.check()
    model.close()


@pytest.fixture
def installation(tmp_path: Path, model: Model) -> Iterator[Installation]:
    with installed(tmp_path, CONFIG.format(url=model.url, key=PROVIDER_KEY), XGW) as one:
        yield one


def test_a_restart_between_a_tool_call_and_its_result(
    installation: Installation, model: Model
) -> None:
    """Killed, not stopped: the turn goes on waiting, and goes on when the result comes."""
    model.will(asks_for("c1"), stream(delta("half"), HANG), says("found it"), says("late"))
    with running(installation, model) as gate:
        waiting = gate.turn(gate.post(chat("look", **named("kept"))))
        cut = gate.open(chat("cut off", stream=True, **named("cut")))
        cut.until(b"half")
        eventually(lambda: gate.steps(gate.turn(cut))[0]["partial_output"] == "half")
        gate.server.send_all(signal.SIGKILL)
        gate.server.wait()
        cut.close()
    with running(installation, model) as gate:
        crashed = gate.turn(cut)
        assert (crashed["status"], crashed["ended_by"]) == ("error", "crash")
        assert (crashed["error_type"], crashed["final_output"]) == ("interrupted", "half")
        assert [s["status"] for s in gate.steps(crashed)] == ["error"]
        assert gate.run(gate.turn(gate.run(waiting)["id"]))["status"] == "waiting_tool"
        history = [user("look"), said(None, call("c1")), result("c1", "it")]
        turn = gate.turn(gate.post(chat(*history, **named("kept"))))
        assert turn["id"] == waiting["id"]
        assert (turn["status"], turn["final_output"], turn["llm_calls"]) == (
            "success",
            "found it",
            2,
        )
        (tool,) = gate.steps(turn, "tool_call")
        assert (tool["status"], gate.payload(tool["output_payload"])) == ("success", b"it")
        assert tool["latency_ms"] > 0
        roles = [m["role"] for m in gate.messages(turn)]
        assert roles == ["user", "assistant", "tool", "assistant"]
        again = gate.turn(gate.post(chat("more", **named("cut"))))
        assert (again["turn_index"], again["session_id"]) == (1, crashed["session_id"])
        assert gate.store.sql("PRAGMA integrity_check") == [("ok",)]


def test_a_server_that_is_stopped_lets_answers_end(
    installation: Installation, model: Model
) -> None:
    go_on = threading.Event()
    model.will(stream(delta("first "), go_on, delta("last"), finish(), DONE))
    with running(installation, model) as gate:
        reading = gate.open(chat(stream=True))
        reading.until(b"first")
        gate.server.send(signal.SIGTERM)
        eventually(lambda: _refuses(gate.address))
        go_on.set()
        assert reading.rest().body.endswith(DONE)
        assert gate.server.wait() == 0
        turn = gate.turn(reading)
        assert (turn["status"], turn["final_output"]) == ("success", "first last")


def _refuses(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, DEADLINE).close()
    except ConnectionError:
        return True
    return False


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    model = Model()
    config = CONFIG.format(url=model.url, key=PROVIDER_KEY)
    with (
        installed(tmp_path_factory.mktemp("shared"), config, XGW) as one,
        running(one, model) as gate,
    ):
        yield gate
    model.close()


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_leaves_is_noticed_while_it_waits(shared: Running, streamed: bool) -> None:
    asked, left = threading.Event(), threading.Event()

    def hang(peer: Peer, _: Asked) -> None:
        asked.set()
        peer.wait_for_end()
        peer.sock.close()
        left.set()

    shared.model.will(hang)
    connection = shared.send(chat(stream=streamed, **named(f"left-{streamed}")))
    assert asked.wait(DEADLINE)
    connection.close()
    assert left.wait(DEADLINE)
    eventually(lambda: any(t["ended_at"] for t in shared.turns(f"left-{streamed}")))
    (turn,) = shared.turns(f"left-{streamed}")
    assert (turn["status"], turn["ended_by"]) == ("cancelled", "client_disconnect")


def test_a_client_that_leaves_a_stream(shared: Running) -> None:
    shared.model.will(stream(delta("so far"), HANG))
    reading = shared.open(chat(stream=True))
    reading.until(b"so far")
    reading.leave()
    eventually(lambda: shared.turn(reading)["ended_at"])
    turn = shared.turn(reading)
    assert (turn["status"], turn["final_output"]) == ("cancelled", "so far")


def test_a_stream_on_the_wire(shared: Running) -> None:
    """Chunked, alive between events, and the connection serves the next request."""
    go_on = threading.Event()
    shared.model.will(stream(delta("a"), go_on, finish(), DONE), says("next"))
    connection = http.client.HTTPConnection(*shared.address, timeout=DEADLINE)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", CHAT, orjson.dumps(chat(stream=True)), headers)
    reading = Reading(connection)
    assert reading.headers["transfer-encoding"] == "chunked"
    reading.until(b": heartbeat\n\n: heartbeat\n\n")
    go_on.set()
    assert reading.until(DONE)
    assert reading.until_end().endswith(DONE)
    connection.request("POST", CHAT, orjson.dumps(chat()), headers)
    assert Reading(connection).rest().text == "next"


@pytest.mark.parametrize("expects", [False, True])
def test_a_request_in_chunks(shared: Running, expects: bool) -> None:
    shared.model.will(says("read"))
    content = orjson.dumps(chat("in chunks"))
    blocks = b"".join(b"1\r\n%c\r\n" % byte for byte in content) + b"0\r\n\r\n"
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n" + ("Expect: 100-continue\r\n" if expects else "") + "\r\n"
    )
    with socket.create_connection(shared.address, DEADLINE) as sock:
        sock.sendall(head.encode())
        if expects:
            assert sock.recv(25, socket.MSG_WAITALL) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(blocks)
        response = http.client.HTTPResponse(sock)
        response.begin()
        with response:
            assert orjson.loads(response.read()) == completion("read")
    asked = shared.model.asked[-1]
    assert asked.body == content
    assert not {"expect", "transfer-encoding"} & {name for name, _ in asked.headers}


def test_an_underscore_names_nothing(shared: Running) -> None:
    shared.model.will(says())
    reply = shared.write(b"X_Session_Id: evil\r\n", chat())
    assert (reply.status, reply.headers.get("x-session-id")) == (200, None)


@pytest.mark.parametrize("key", ["caf%C3%A9/a%2Fb", "a%20b"])
def test_a_session_in_the_base_url(shared: Running, key: str) -> None:
    shared.model.will(says())
    encoded = key.replace("/", "%2F")
    reply = shared.post(chat(), f"/s/{encoded}{CHAT}")
    assert shared.turn(reply)["session_id"] is not None
    assert reply.status == 200
