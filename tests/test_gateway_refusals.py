"""What xgw refuses by itself: the shape of the refusal, and which of them are turns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_fixtures import CHAT, PROVIDER_KEY, Gate, Reply, a_test_of, gate_and_model, provider
from scripted_model import DONE, Model, Row, chat, delta, finish, named, says, stream
from xgw.config import ClientKey, Server
from xgw.store.models import Session, Turn

LIMIT = 200_000
KEY = "client-key-0001-secret"
EMBEDDINGS = "/v1/embeddings"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    model = Model()
    tables = {
        "server": Server(max_body_bytes=LIMIT),
        "providers": (provider(model, endpoints=("chat.completions", "embeddings")),),
    }
    with gate_and_model(tmp_path_factory.mktemp("refusals"), model, **tables) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def refused(gate: Gate, reply: Reply, status: int, code: str | None) -> Row:
    """The turn of a refusal."""
    assert (reply.status, reply.error["code"]) == (status, code)
    assert set(reply.error) == {"message", "type", "param", "code"}
    assert reply.headers["content-type"] == "application/json"
    turn = gate.turn(reply)
    assert reply.headers["x-turn-id"] == turn["id"]
    assert reply.headers["x-trace-id"] == turn["trace_id"]
    assert (turn["status"], turn["ended_by"], turn["session_id"]) == ("error", "gateway", None)
    assert (turn["error_type"], turn["error_message"]) == (
        "invalid_request_error",
        reply.error["message"],
    )
    assert (turn["metadata"]["code"], turn["metadata"]["http_status"]) == (code, status)
    assert gate.story(turn) == [
        *["turn.started", "run.started", "run.completed error", "turn.completed error gateway"]
    ]
    assert (gate.steps(turn), gate.messages(turn), gate.requests(turn)) == ([], [], [])
    assert (turn["llm_calls"], turn["attempts"], turn["total_tokens"]) == (0, 0, None)
    return turn


def no_turn(gate: Gate, reply: Reply, status: int, code: str) -> None:
    assert (reply.status, reply.error["code"]) == (status, code)
    assert set(reply.error) == {"message", "type", "param", "code"}
    assert "x-turn-id" not in reply.headers


# -- turns -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"{not json", "invalid_json", None),
        (
            b'{"model":"m","messages":[{"role":"user","content":"hi"}],"x":NaN}',
            "invalid_json",
            None,
        ),
        (b'{"model":"m","messages":[],"x":Infinity}', "invalid_json", None),
        (b"[1]", "invalid_json", None),
        (b'"text"', "invalid_json", None),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "invalid_json", None),
        (b'{"messages":[]}', "missing_required_parameter", "model"),
        (b'{"model":7,"messages":[]}', "invalid_type", "model"),
        (b'{"model":"m"}', "missing_required_parameter", "messages"),
        (b'{"model":"m","messages":"hi"}', "invalid_type", "messages"),
        (b'{"model":"m","messages":[7]}', "invalid_type", "messages[0]"),
        (b'{"model":"m","messages":[],"stream":"yes"}', "invalid_type", "stream"),
        (b'{"model":"m","messages":[],"metadata":[]}', "invalid_type", "metadata"),
        (b"\xff\xfe", "invalid_json", None),
    ],
)
def test_a_request_that_cannot_be_read(
    gate: Gate, body: bytes, code: str, param: str | None
) -> None:
    reply = gate.post(body, x_session_id="never")
    turn = refused(gate, reply, 400, code)
    assert reply.error["param"] == param
    assert gate.payload(turn["input_payload"]) == body
    assert turn["endpoint"] == "chat.completions"
    assert gate.all(Session, Session.session_key == "never") == []


def test_a_body_that_begins_too_deep_is_told_so_whatever_its_end(gate: Gate) -> None:
    for body in (b"[" * 300, b'{"a":' * 300 + b"1" + b"}" * 300):
        assert "200 levels" in gate.post(body).error["message"]
    assert "200 levels" not in gate.post(b'["[' + b"[" * 300).error["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/sessions/x/fork"])
@pytest.mark.parametrize(
    ("body", "fault"), [(b" ", "empty"), (b'{"a":"\xff"}', "not UTF-8 (byte 6)")]
)
def test_what_is_wrong_with_a_body_is_told_in_words(
    gate: Gate, path: str, body: bytes, fault: str
) -> None:
    message = gate.post(body, path).error["message"]
    assert message == f"the body is not valid JSON: it is {fault}"


def test_nothing_at_all(gate: Gate) -> None:
    turn = refused(gate, gate.post(b""), 400, "invalid_json")
    assert turn["input_payload"] is None


@pytest.mark.parametrize("path", [CHAT, EMBEDDINGS, f"/s/somewhere{CHAT}"])
def test_a_model_that_nobody_has(gate: Gate, path: str) -> None:
    body = {"model": "unheard-of", "messages": [{"role": "user", "content": "asked"}], "input": "a"}
    reply = gate.post(body | named("nowhere"), path)
    turn = refused(gate, reply, 404, "model_not_found")
    assert reply.error["param"] == "model"
    assert "unheard-of" in reply.error["message"]
    assert turn["user_input"] == "asked"
    assert gate.model.asked == []
    assert gate.all(Session, Session.session_key << ["nowhere", "somewhere"]) == []


@pytest.mark.parametrize("streamed", [False, True])
def test_a_stream_is_refused_in_the_same_shape(gate: Gate, streamed: bool) -> None:
    refused(gate, gate.post(chat(model="none", stream=streamed)), 404, "model_not_found")


def test_a_body_above_the_limit(gate: Gate) -> None:
    reply = gate.post(chat("x" * LIMIT))
    turn = refused(gate, reply, 413, "request_too_large")
    assert str(LIMIT) in reply.error["message"]
    assert turn["metadata"]["input_bytes"] > LIMIT


def test_what_was_sent_is_kept_masked_and_cut(gate: Gate) -> None:
    long = {"role": "user", "content": f"use {PROVIDER_KEY} " + "é" * 50_000}
    body = {"api_key": "a-secret-of-mine", "model": "none", "messages": [long]}
    turn = refused(gate, gate.post(body), 404, "model_not_found")
    kept = gate.payload(turn["input_payload"])
    assert len(kept) == 65_536
    assert kept.startswith(b'{"api_key":"[masked]","model":"none"')
    assert PROVIDER_KEY.encode() not in kept
    assert turn["metadata"]["input_bytes"] > 100_000


@pytest.mark.parametrize("messages", [None, "x", [None, {"role": "user", "content": {}}], [{}]])
def test_odd_bodies_of_unknown_models(gate: Gate, messages: Any) -> None:
    body = {"model": "none", "input": messages, "messages": messages}
    assert refused(gate, gate.post(body, EMBEDDINGS), 404, "model_not_found")["user_input"] is None


@pytest.mark.parametrize(
    ("content", "more", "code", "text"),
    [
        (
            b'[{"type":"text","text":"what"},{"type":"text","text":"is it"}]',
            b"",
            404,
            "what\nis it",
        ),
        (b'"half \\ud83d"', b"", 404, "half \ufffd"),
        (b'"asked"', b',"temperature":NaN', 400, "asked"),
    ],
)
def test_what_was_asked_is_kept_of_a_refusal(
    gate: Gate, content: bytes, more: bytes, code: int, text: str
) -> None:
    body = b'{"model":"none","messages":[{"role":"user","content":%s}]%s}' % (content, more)
    named = "model_not_found" if code == 404 else "invalid_json"
    assert refused(gate, gate.post(body), code, named)["user_input"] == text


def test_a_body_that_is_not_all_there(gate: Gate) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    reply = gate.exchange(f"{head}Content-Length: 500\r\n\r\n".encode() + b'{"model"', ends=True)
    assert reply.status == 400


# -- who is let in ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    keys = (ClientKey(key=KEY, project="team"),)
    with gate_and_model(tmp_path_factory.mktemp("keyed"), keys=keys) as gate:
        yield gate


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong-key-0123456789"}])
def test_nobody_gets_in_without_a_key(keyed: Gate, headers: dict[str, str]) -> None:
    with a_test_of(keyed) as gate:
        reply = gate.post(chat("let me in"), **headers)
        turn = refused(gate, reply, 401, "invalid_api_key")
        assert (turn["project_id"], turn["user_input"]) == ("default", "let me in")
        assert "wrong-key" not in str(turn)
        assert gate.model.asked == []


def test_a_refusal_belongs_to_the_callers_project(keyed: Gate) -> None:
    with a_test_of(keyed) as gate:
        reply = gate.post(b"{", authorization=f"Bearer {KEY}")
        assert refused(gate, reply, 400, "invalid_json")["project_id"] == "team"


# -- no turns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", [CHAT, EMBEDDINGS])
def test_methods(gate: Gate, method: str, path: str) -> None:
    before = len(gate.all(Turn))
    reply = gate.get(path, method)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    if method == "HEAD":
        assert reply.body == b""
    else:
        no_turn(gate, reply, 405, "method_not_allowed")
    assert len(gate.all(Turn)) == before


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1", "/s/a/v1/nothing", "/v1/chat", f"{CHAT}/"])
def test_paths_that_are_not_there(gate: Gate, path: str) -> None:
    no_turn(gate, gate.post(chat(), path), 404, "unknown_url")


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/realtime", CHAT])
def test_a_websocket_is_answered_426(gate: Gate, path: str) -> None:
    headers = {"upgrade": "websocket", "connection": "Upgrade", "sec_websocket_version": "13"}
    reply = gate.get(path, **headers, sec_websocket_key="x")
    no_turn(gate, reply, 426, "websocket_not_supported")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_what_is_not_json_by_name(gate: Gate, kind: str) -> None:
    before = len(gate.all(Turn))
    no_turn(gate, gate.post(chat(), content_type=kind), 415, "unsupported_media_type")
    no_turn(gate, gate.post(chat(), content_encoding="gzip"), 415, "unsupported_media_type")
    assert len(gate.all(Turn)) == before


def test_foreign_hosts_and_pages_leave_no_turn(gate: Gate) -> None:
    before = len(gate.all(Turn))
    assert gate.post(chat(), host="evil.example").status == 421
    assert gate.post(chat(), origin="http://evil.example").status == 403
    assert len(gate.all(Turn)) == before


def test_too_many_calls_at_once(tmp_path: Path) -> None:
    go_on = threading.Event()
    with gate_and_model(tmp_path, server=Server(max_calls=2)) as gate:
        gate.model.will(*[stream(delta("a"), go_on, finish(), DONE)] * 2)
        readings = [gate.open(chat(stream=True)) for _ in range(2)]
        reply = gate.post(chat())
        assert (reply.status, reply.error["type"]) == (503, "overloaded")
        assert int(reply.headers["retry-after"]) >= 1
        assert "x-turn-id" not in reply.headers
        assert gate.get("/v1/models/m").status == 200
        assert gate.get("/health").status == 200
        assert len(gate.all(Turn)) == 2
        go_on.set()
        for reading in readings:
            assert reading.rest().body.endswith(DONE)
        gate.model.will(says())
        assert gate.post(chat()).status == 200
        refusals = [gate.post(b"{").status for _ in range(4)]
        assert refusals == [400] * 4
