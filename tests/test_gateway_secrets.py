"""Keys: who gets which, and that none of them is ever in the store, whatever echoes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from gateway_fixtures import CHAT, PROVIDER_KEY, Gate, a_test_of, gate_and_model, provider
from scripted_model import (
    CUT,
    DONE,
    HANG,
    Answer,
    Model,
    Row,
    call,
    chat,
    completion,
    counts,
    delta,
    finish,
    named,
    result,
    said,
    stream,
    user,
    whole,
)
from servers import eventually
from xgw.config import ClientKey, Route
from xgw.store.rows import opened

CLIENT_KEY = "xk-client-of-the-team-0001"
OWN_KEY = "sk-the-clients-own-key-0002"
ISSUED = "what-the-provider-issues-0003"
HIDDEN = PROVIDER_KEY.replace("-SECRET-", "***")[:6] + "********" + PROVIDER_KEY[-4:]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    model = Model()
    tables = {
        "keys": (ClientKey(key=CLIENT_KEY, project="default"),),
        "providers": (
            provider(model, headers={"X-Secret-Token": "header-value-77"}),
            provider(model, "own", api_key="passthrough"),
        ),
        "routes": (
            Route(model="m", targets=("p1/m",)),
            Route(model="own", targets=("own/m",)),
        ),
    }
    with gate_and_model(tmp_path_factory.mktemp("secrets"), model, **tables) as gate:
        yield gate
        check_store(gate, CLIENT_KEY, "header-value-77", ISSUED)


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def check_store(gate: Gate, *secrets: str) -> None:
    """None of them is anywhere in the file, nor in what it holds compressed."""
    folder = gate.store.path.parent
    content = b"".join(file.read_bytes() for file in sorted(folder.iterdir()))
    for codec, packed in gate.store.sql("SELECT codec, data FROM payloads"):
        content += opened(codec, packed)
    assert b"turn.completed" in content
    for secret in secrets:
        assert secret.encode() not in content


def body(text: str) -> Row:
    return completion(text, call("c1", arguments=orjson.dumps({"key": text}).decode()))


NOT_QUITE_JSON = b',"x":NaN,' + orjson.dumps(completion())[1:]

ECHOES: dict[str, Answer] = {
    "error": whole({"error": {"message": f"no such key: {PROVIDER_KEY}"}}, status="401 No"),
    "error, partly": whole({"error": {"message": f"bad key {HIDDEN}"}}, status="401 No"),
    "page": whole(f"<html>{PROVIDER_KEY}".encode(), status="502 Bad", kind="html"),
    "no answer": whole(PROVIDER_KEY.encode()),
    "error in a 200": whole({"error": {"message": PROVIDER_KEY}}),
    "header": whole(completion(), headers=f"X-Echo: Bearer {PROVIDER_KEY}\r\n"),
    "header of an error": whole(
        {"error": {"message": "no"}},
        status="401 No",
        headers=f"X-Echo: {PROVIDER_KEY}\r\nWWW-Authenticate: Bearer realm={PROVIDER_KEY}\r\n",
    ),
    "text": whole(body(f"your key is {PROVIDER_KEY}, keep it")),
    "field": whole(completion() | {"access_token": ISSUED}),
    "field, not quite JSON": whole(orjson.dumps({"access_token": ISSUED})[:-1] + NOT_QUITE_JSON),
    "stream": stream(delta("it is "), delta(PROVIDER_KEY), finish(), DONE),
    "stream in pieces": stream(delta(PROVIDER_KEY[:9]), delta(PROVIDER_KEY[9:]), finish(), DONE),
    "reasoning": stream(delta(None, reasoning_content=PROVIDER_KEY), finish(), DONE),
    "tool arguments": stream(
        delta(None, tool_calls=[{"index": 0} | call("c1", arguments=f'"{PROVIDER_KEY}"')]),
        finish("tool_calls"),
        DONE,
    ),
    "broken stream": stream(delta(f"it is {PROVIDER_KEY}"), CUT),
    "error event": stream(delta("a"), {"error": {"message": PROVIDER_KEY}}),
    "garbage": stream(delta("a"), f"data: {PROVIDER_KEY}\n\n".encode()),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("echo", ECHOES)
def test_a_provider_that_quotes_its_key(gate: Gate, echo: str, streamed: bool) -> None:
    gate.model.will(ECHOES[echo])
    body = chat(stream=streamed, **named(f"echo-{echo}-{streamed}"))
    reply = gate.post(body, authorization=f"Bearer {CLIENT_KEY}")
    turn = gate.turn(reply)
    assert PROVIDER_KEY not in str(reply.headers)
    if turn["status"] == "error":
        told = reply.events[-1] if reply.status == 200 else reply.body
        assert PROVIDER_KEY.encode() not in told
        assert HIDDEN.encode() not in told
    check_store(gate, PROVIDER_KEY, HIDDEN)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_provider_that_refuses_its_key_in_a_header(gate: Gate, streamed: bool) -> None:
    said = f'X-Why: bad key "{PROVIDER_KEY}"\r\nX-Hint: h\r\n'
    gate.model.will(whole({"error": "no"}, status="401 No", headers=said))
    reply = gate.post(chat(stream=streamed), authorization=f"Bearer {CLIENT_KEY}")
    assert reply.status == 401
    assert (reply.headers["x-why"], reply.headers["x-hint"]) == ('bad key "[masked]"', "h")
    gate.turn(reply)
    check_store(gate, PROVIDER_KEY)


def test_the_text_so_far_of_a_stream_holds_no_key(gate: Gate) -> None:
    gate.model.will(stream(delta(f"it is {PROVIDER_KEY}"), HANG))
    reading = gate.open(chat(stream=True), authorization=f"Bearer {CLIENT_KEY}")
    reading.until(b"it is")
    turn = gate.turn(reading)
    eventually(lambda: gate.steps(turn)[0]["partial_output"])
    assert gate.steps(turn)[0]["partial_output"] == "it is [masked]"
    reading.leave()
    assert gate.ended(reading)["final_output"] == "it is [masked]"
    check_store(gate, PROVIDER_KEY)


def test_a_client_that_quotes_a_key(gate: Gate) -> None:
    gate.model.will(whole(completion()), whole({"data": [], "usage": counts(1, 0)}))
    history = [user(f"my key is {PROVIDER_KEY}"), said(PROVIDER_KEY), result("c", PROVIDER_KEY)]
    fields: Row = {"user": PROVIDER_KEY, "metadata": {"note": PROVIDER_KEY}, "stop": [PROVIDER_KEY]}
    headers = {"x_api_key": CLIENT_KEY, "user_agent": f"me {PROVIDER_KEY}", "x_own": PROVIDER_KEY}
    reply = gate.post(chat(*history, **fields), f"{CHAT}?token={OWN_KEY}&a=1", **headers)
    assert reply.status == 200
    asked = gate.model.asked[-1]
    assert asked.json["messages"] == history
    assert asked.line == "POST /v1/chat/completions?a=1 HTTP/1.1"
    turn = gate.turn(reply)
    assert turn["user_input"] == "my key is [masked]"
    gate.post({"model": "m", "input": PROVIDER_KEY}, "/v1/embeddings", x_api_key=CLIENT_KEY)
    check_store(gate, PROVIDER_KEY, OWN_KEY)


def test_labels_that_hold_a_key(gate: Gate) -> None:
    gate.model.will(*[whole(completion())] * 2)
    headers = {"x_api_key": CLIENT_KEY, "x_task_id": f"task {CLIENT_KEY}", "session_id": CLIENT_KEY}
    reply = gate.post(chat(**named("labelled"), user=CLIENT_KEY), **headers)
    assert reply.status == 200
    assert gate.model.asked[-1].json["user"] == CLIENT_KEY
    session = gate.session("labelled")
    assert (session["task_id"], session["end_user_id"]) == ("task [masked]", "[masked]")
    assert gate.turn(reply)["metadata"]["identifiers"] == {"header:session-id": "[masked]"}
    unnamed = gate.post(chat(), x_api_key=CLIENT_KEY, session_id=CLIENT_KEY)
    assert gate.turn(unnamed)["session_id"] is None
    check_store(gate, CLIENT_KEY)


@pytest.mark.parametrize(
    ("body", "path", "headers"),
    [
        ({}, CHAT, {"x_session_id": CLIENT_KEY}),
        ({}, CHAT, {"x_session_id": "s", "x_turn_id": f"t-{CLIENT_KEY}"}),
        ({}, f"/s/{CLIENT_KEY}{CHAT}", {}),
        (named(CLIENT_KEY), CHAT, {}),
        (named(CLIENT_KEY), "/v1/embeddings", {}),
    ],
)
def test_an_identifier_that_holds_a_key_is_refused(
    gate: Gate, body: Row, path: str, headers: dict[str, str]
) -> None:
    before, fields = gate.sessions(), chat(**body, input="x")
    refused = gate.post(fields, path, x_api_key=CLIENT_KEY, **headers)
    assert (refused.status, refused.error["code"]) == (400, "invalid_session_id")
    assert CLIENT_KEY.encode() not in refused.body
    assert not gate.model.asked
    assert gate.sessions() == before
    check_store(gate, CLIENT_KEY)


def test_an_identifier_like_a_shortened_key_names_one_session_everywhere(gate: Gate) -> None:
    gate.model.will(*[whole(completion())] * 2)
    alike = CLIENT_KEY.replace("-0001", "-xxxx")
    gate.post(chat(**named(alike)), x_api_key=CLIENT_KEY)
    reply = gate.post(chat(), x_api_key=CLIENT_KEY, x_session_id=alike)
    assert reply.headers["x-session-id"] == alike
    assert gate.session(alike)["turn_count"] == 2


def test_what_is_said_of_a_session_is_kept_without_keys(gate: Gate) -> None:
    said = {"title": f"of {CLIENT_KEY}", "metadata": {"a": [CLIENT_KEY]}}
    labels = {"task_id": CLIENT_KEY, "end_user_id": CLIENT_KEY}
    opened = gate.post({**said, **labels}, "/sessions", x_api_key=CLIENT_KEY).json
    masked = {"title": "of [masked]", "metadata": {"a": ["[masked]"]}}
    assert masked.items() <= opened.items()
    assert (opened["task_id"], opened["end_user_id"]) == ("[masked]", "[masked]")
    path = f"/sessions/{opened['id']}"
    changed = gate.send(said, path, "PATCH", x_api_key=CLIENT_KEY).getresponse()
    assert masked.items() <= orjson.loads(changed.read()).items()
    refused = gate.post({"session_key": CLIENT_KEY}, "/sessions", x_api_key=CLIENT_KEY)
    assert (refused.status, refused.error["param"]) == (422, "session_key")
    check_store(gate, CLIENT_KEY)


def test_credentials_of_a_body(gate: Gate) -> None:
    gate.model.will(whole(completion()))
    reply = gate.post(chat(api_key=OWN_KEY, temperature=0), x_xgw_key=CLIENT_KEY)
    turn = gate.turn(reply)
    assert gate.model.asked[-1].json["api_key"] == OWN_KEY
    snapshot = orjson.loads(gate.payload(turn["config_snapshot"]))
    assert snapshot == {"model": "m", "api_key": "[masked]", "temperature": 0}
    check_store(gate, OWN_KEY)


# -- who gets which key ----------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["authorization", "x_api_key", "x_xgw_key"])
def test_the_provider_gets_its_own_key_and_no_other(gate: Gate, header: str) -> None:
    gate.model.will(whole(completion()))
    shown = f"Bearer {CLIENT_KEY}" if header == "authorization" else CLIENT_KEY
    reply = gate.post(chat(), **{header: shown})
    asked = gate.model.asked[-1]
    assert dict(asked.headers)["authorization"] == f"Bearer {PROVIDER_KEY}"
    assert dict(asked.headers)["x-secret-token"] == "header-value-77"
    assert CLIENT_KEY.encode() not in asked.head
    (request,) = gate.requests(gate.turn(reply))
    assert request["url"] == f"{gate.model.url}/chat/completions"
    masked = {name for name, value in request["request_headers"] if value == "[masked]"}
    assert {"authorization", "X-Secret-Token"} <= masked


@pytest.mark.parametrize("header", ["authorization", "x_api_key", "api_key"])
def test_a_key_of_xgws_passes_through_to_nobody(gate: Gate, header: str) -> None:
    gate.model.will(whole(completion()))
    shown = f"Bearer {CLIENT_KEY}" if header == "authorization" else CLIENT_KEY
    beside = {"x_xgw_key": CLIENT_KEY} if header == "api_key" else {}
    gate.post(chat(model="own"), **{header: shown}, **beside)
    assert CLIENT_KEY.encode() not in gate.model.asked[-1].head
    if header != "authorization":
        gate.model.will(whole(completion()))
        gate.post(chat(model="own"), authorization=f"Bearer {OWN_KEY}", **{header: shown}, **beside)
        asked = gate.model.asked[-1]
        assert dict(asked.headers)["authorization"] == f"Bearer {OWN_KEY}"
        assert CLIENT_KEY.encode() not in asked.head


@pytest.mark.parametrize("streamed", [False, True])
def test_a_key_that_passes_through(gate: Gate, streamed: bool) -> None:
    quoted = f"Bearer {OWN_KEY} of yours"
    answer = stream(delta(quoted), finish(), DONE) if streamed else whole(completion(quoted))
    gate.model.will(answer)
    sent = chat(f"I am {OWN_KEY}", model="own", stream=streamed, **named(f"own-{streamed}"))
    reply = gate.post(sent, x_xgw_key=CLIENT_KEY, authorization=f"Bearer {OWN_KEY}")
    assert OWN_KEY.encode() in reply.body
    asked = gate.model.asked[-1]
    assert dict(asked.headers)["authorization"] == f"Bearer {OWN_KEY}"
    assert CLIENT_KEY.encode() not in asked.head
    turn = gate.turn(reply)
    assert turn["user_input"] == "I am [masked]"
    assert OWN_KEY not in turn["final_output"]
    check_store(gate, OWN_KEY)


def test_a_key_that_passes_through_and_is_refused(gate: Gate) -> None:
    gate.model.will(whole({"error": {"message": f"{OWN_KEY} is no key"}}, status="401 No"))
    headers = {"x_xgw_key": CLIENT_KEY, "authorization": f"Bearer {OWN_KEY}"}
    reply = gate.post(chat(model="own"), **headers)
    assert (reply.status, OWN_KEY.encode() in reply.body) == (401, False)
    gate.post(b'{"broken": "' + OWN_KEY.encode(), **headers)
    check_store(gate, OWN_KEY)


def test_a_wrong_key_is_not_kept(gate: Gate) -> None:
    assert gate.post(chat(), authorization="Bearer sk-wrong-key-0003").status == 401
    check_store(gate, "sk-wrong-key-0003")


def test_without_a_key_none_is_sent(tmp_path: Path) -> None:
    model = Model()
    with gate_and_model(tmp_path, model, providers=(provider(model, api_key=None),)) as gate:
        gate.model.will(whole(completion()))
        assert gate.post(chat(), authorization="Bearer of-nobody").status == 200
        assert "authorization" not in dict(gate.model.asked[-1].headers)
