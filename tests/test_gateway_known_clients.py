"""Identifiers of other tools' making, those that cannot be, and whose sessions they open."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_fixtures import CHAT, Client, Gate, a_test_of, gate_and_model
from scripted_model import Row, chat, named, says
from xgw import ids
from xgw.config import ClientKey, Gateway, Server
from xgw.gateway.sessions import KEPT
from xgw.gateway.state import SessionState
from xgw.store.models import Turn

TEAM_A, TEAM_B, TOKEN = "key-of-team-a-0001", "key-of-team-b-0002", "token-that-sees-all-0003"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("clients")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        served.model.always(says("ok"))
        yield served


# -- what known clients send -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"x_claude_code_session_id": "KEY"}, {}),
        ({"session_id": "KEY"}, {}),
        ({}, {"client_metadata": {"session_id": "KEY"}}),
        ({"x_litellm_session_id": "KEY"}, {}),
        ({"helicone_session_id": "KEY"}, {}),
        ({"x_bf_session_id": "KEY"}, {}),
        ({"x_thread_id": "KEY"}, {}),
        ({}, {"conversation": "KEY"}),
        ({}, {"conversation": {"id": "KEY"}}),
    ],
)
def test_sessions_of_known_clients(
    gate: Gate, headers: dict[str, str], fields: Row, request: pytest.FixtureRequest
) -> None:
    key = request.node.name
    fields = _with_key(fields, key)
    reply = gate.post(chat(**fields), **dict.fromkeys(headers, key))
    session = gate.session(key)
    assert (session["source"], session["turn_count"]) == ("client", 1)
    assert reply.headers["x-session-id"] == key
    asked = gate.model.asked[-1]
    assert fields.items() <= asked.json.items()
    assert {name.replace("_", "-") for name in headers} <= {name for name, _ in asked.headers}


def _with_key(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _with_key(part, key) for name, part in value.items()}
    return key if value == "KEY" else value


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"x_claude_code_prompt_id": "prompt-1"}, {}),
        ({}, {"client_metadata": {"turn_id": "prompt-1"}}),
        ({"x_codex_turn_metadata": '{"turn_id": "prompt-1", "other": [1]}'}, {}),
    ],
)
def test_turns_of_known_clients(gate: Gate, headers: dict[str, str], fields: Row) -> None:
    body = chat(**fields, metadata={"session_id": "new"})
    first = gate.post(body, **headers)
    key = first.headers["x-session-id"]
    again = gate.post(chat(**fields, **named(key)), **headers)
    assert [t["turn_key"] for t in gate.turns(key)] == ["prompt-1"]
    assert again.headers["x-turn-id"] == "prompt-1"


@pytest.mark.parametrize("broken", ["{", "[]", '"x"', '{"turn_id": 1}', '{"turn_id": ""}'])
def test_a_header_that_is_not_what_it_should_be_names_nothing(gate: Gate, broken: str) -> None:
    reply = gate.post(chat(**named("odd-header")), x_codex_turn_metadata=broken)
    assert reply.status == 200
    assert gate.turn(reply)["turn_key"] is None


def test_a_foreign_identifier_that_does_not_fit_is_noted(gate: Gate) -> None:
    long = "x" * 300
    body = chat(client_metadata={"session_id": "two\nlines"}, conversation=long)
    reply = gate.post(body, x_thread_id="fits")
    session = gate.session("fits")
    noted = {"body:client_metadata.session_id": "two\nlines", "body:conversation": long[:256]}
    assert session["metadata"]["identifiers"] == noted
    assert gate.turn(reply)["session_id"] == session["id"]


def test_a_foreign_identifier_alone_that_does_not_fit(gate: Gate) -> None:
    connection = gate.send(chat(), x_thread_id="of\x07bell")
    reply = Client.post(gate, chat(), session_id="x" * 257)
    connection.close()
    turn = gate.turn(reply)
    assert turn["session_id"] is None
    assert turn["metadata"]["identifiers"] == {"header:session-id": "x" * 256}


# -- what cannot be an identifier ------------------------------------------------------------------

IMPOSSIBLE: list[Any] = ["", "x" * 257, "a\nb", "a\x00b", "‮", 7, ["a"], {"id": "a"}, True]


@pytest.mark.parametrize("field", ["session_id", "turn_id", "task_id", "end_user_id"])
@pytest.mark.parametrize("value", IMPOSSIBLE, ids=lambda v: repr(v)[:12])
def test_metadata_that_cannot_be_is_refused(gate: Gate, field: str, value: Any) -> None:
    metadata = {"session_id": "fine", field: value}
    reply = gate.post(chat("kept", metadata=metadata))
    assert reply.status == 400
    assert (reply.error["code"], reply.error["param"]) == ("invalid_session_id", field)
    assert reply.error["type"] == "invalid_request_error"
    turn = gate.turn(reply)
    assert (turn["session_id"], turn["status"], turn["ended_by"]) == (None, "error", "gateway")
    assert turn["user_input"] == "kept"
    assert "x-session-id" not in reply.headers
    assert gate.model.asked == []


@pytest.mark.parametrize("name", ["x_session_id", "x_turn_id"])
@pytest.mark.parametrize("value", [b"", b"x" * 257, b"\xff\xfe", b"caf\xe9", b"\xc2\x85", b"a\tb"])
def test_headers_that_cannot_be_are_refused(gate: Gate, name: str, value: bytes) -> None:
    header = name.replace("_", "-").encode()
    reply = gate.write(header + b": " + value + b"\r\n", chat())
    assert (reply.status, reply.error["code"]) == (400, "invalid_session_id")
    assert reply.error["param"] == name.removeprefix("x_")
    assert gate.turn(reply)["session_id"] is None


@pytest.mark.parametrize("path", ["x%0Ay", "%FF", "y" * 257])
def test_base_urls_that_cannot_be_are_refused(gate: Gate, path: str) -> None:
    reply = gate.post(chat(), f"/s/{path}{CHAT}")
    assert (reply.status, reply.error["code"]) == (400, "invalid_session_id")


@pytest.mark.parametrize("key", ["x" * 256, "0", "null", "a b", "../..", "new ", "🙂" * 256])
def test_anything_printable_is_a_key(gate: Gate, key: str) -> None:
    assert gate.post(chat(**named(key))).status == 200
    assert gate.session(key)["turn_count"] == 1


# -- sessions that the gateway makes ---------------------------------------------------------------


def test_sessions_for_all_where_the_configuration_says_so(tmp_path: Path) -> None:
    with gate_and_model(tmp_path, gateway=Gateway(managed_sessions=True)) as gate:
        gate.model.always(says("ok"))
        first, second = gate.post(chat()), gate.post(chat())
        own = gate.post(chat(), x_session_id="own")
        again = gate.post(chat(), x_session_id=first.headers["x-session-id"])
        keys = [reply.headers["x-session-id"] for reply in (first, second, own, again)]
        assert keys[0] == keys[3]
        assert len(set(keys)) == 3
        assert ids.is_id(keys[0], "sess")
        assert [s["source"] for s in gate.sessions()] == ["managed", "managed", "header"]
        turns = gate.turns(keys[0])
        assert [t["turn_index"] for t in turns] == [0, 1]


def test_sessions_of_the_gateways_making_do_not_stay_in_memory(tmp_path: Path) -> None:
    with gate_and_model(tmp_path, gateway=Gateway(managed_sessions=True)) as gate:
        gate.model.always(says("ok"))
        first = gate.post(chat())
        sessions = gate.services.sessions
        for _ in range(4 * KEPT):
            sessions.release(sessions.take_new("default"))
        in_memory = sum(isinstance(one, SessionState) for one in gc.get_objects())
        assert in_memory < KEPT + 100
        again = gate.post(chat(), x_session_id=first.headers["x-session-id"])
        assert gate.turn(again)["turn_index"] == 1


# -- projects --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    keys = (
        ClientKey(key=TEAM_A, project="team-a", org="acme"),
        ClientKey(key=TEAM_B, project="team-b"),
    )
    tables: Row = {"keys": keys, "server": Server(token=TOKEN)}
    with gate_and_model(tmp_path_factory.mktemp("projects"), **tables) as gate:
        gate.model.always(says("ok"))
        yield gate


def test_a_session_key_is_one_per_project(shared: Gate) -> None:
    def turn(key: str, **headers: str) -> Row:
        return shared.turn(shared.post(chat(**named("same", "t")), authorization=f"Bearer {key}"))

    a, b, default = turn(TEAM_A), turn(TEAM_B), turn(TOKEN)
    assert len({t["id"] for t in (a, b, default)}) == 3
    assert len({t["session_id"] for t in (a, b, default)}) == 3
    assert [t["project_id"] for t in (a, b, default)] == ["team-a", "team-b", "default"]
    assert shared.session("same", "team-a")["org_id"] == "acme"
    assert turn(TEAM_A)["id"] == a["id"]


def test_nobody_enters_a_session_of_another_project_by_its_id(shared: Gate) -> None:
    owner = shared.post(chat("mine", **named("new")), x_api_key=TEAM_A)
    session = owner.headers["x-session-id"]
    other = shared.post(chat("theirs", **named(session)), x_api_key=TEAM_B)
    assert shared.turn(other)["session_id"] != session
    assert shared.session(session, "team-a")["turn_count"] == 1
    assert shared.session(session, "team-b")["source"] == "metadata"


def test_a_tool_call_of_another_project_continues_nothing(shared: Gate) -> None:
    reply = shared.post(chat(**named("keyed", "turn-key")), x_xgw_key=TEAM_A)
    turn_id = shared.turn(reply)["id"]
    other = shared.turn(shared.post(chat(**named("keyed", turn_id)), x_xgw_key=TEAM_B))
    assert (other["turn_key"], other["turn_index"]) == (turn_id, 0)
    assert len(shared.all(Turn, Turn.turn_key == "turn-key")) == 1
