"""Messages to agents over WS /ws."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_gates import GATES, wait_for
from agents_fixtures import AgentGate, a_test_with, agent, agents, asks
from api_socket import ApiSocket, Frame, key
from gateway_fixtures import Gate
from scripted_model import says
from xgw.config import ClientKey, Server

STUCK = ("c1", "stuck", "{}")
SAY = "session.message.send"
TOKEN, TEAM = "token-that-sees-everything", "key-of-the-team-project"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    given = {"a": agent(), "b": agent()}
    with agents(tmp_path_factory.mktemp("said"), agents=given) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def test_a_message_is_answered_at_once_and_its_turn_is_told(gate: AgentGate) -> None:
    gate.model.will(asks(STUCK))
    session = gate.post("/sessions", {"agent": "a", "session_key": "told"}).json["id"]
    with ApiSocket(gate.gate) as client:
        client.ask("session.subscribe", session_id=session)
        first = client.ask(SAY, agent="a", session_id="told", message="go", mode="task")
        assert list(first) == ["session_id", "turn_id", "run_id"]
        assert first["session_id"] == session
        wait_for("stuck runs")
        second = client.ask(SAY, agent="a", session_id=session, message="then")
        queued = client.until("session.turn.queued", turn_id=second["turn_id"])
        assert queued["payload"]["user_input"] == "then"
        gate.model.will(says("one"), says("two"))
        GATES["free"].set()
        for answer in (first, second):
            client.until("session.turn.completed", turn_id=answer["turn_id"])
    ended = [gate.gate.turns("told")[n]["final_output"] for n in (0, 1)]
    assert ended == ["one", "two"]


def test_without_a_session_there_is_a_new_one(gate: AgentGate) -> None:
    gate.model.will(says("one"), says("two"))
    with ApiSocket(gate.gate) as client:
        said = [client.ask(SAY, agent="a", message="go") for _ in range(2)]
    assert len({answer["session_id"] for answer in said}) == 2
    for answer in said:
        gate.ended({"turnId": answer["turn_id"]})


@pytest.mark.parametrize(
    ("payload", "code", "param"),
    [
        ({"agent": "a"}, "invalid_value", "message"),
        ({"agent": "a", "message": " "}, "invalid_value", "message"),
        ({"message": "x"}, "invalid_value", "agent"),
        ({"agent": "a", "message": "x", "mode": "odd"}, "invalid_value", "mode"),
        ({"agent": "a", "message": "x", "wait": 1}, "invalid_value", "wait"),
        ({"agent": "nobody", "message": "x"}, "agent_not_found", None),
        ({"agent": "b", "message": "x", "session_id": "of-a"}, "agent_mismatch", None),
    ],
)
def test_a_message_that_cannot_be_sent_says_why(
    gate: AgentGate, payload: Frame, code: str, param: str | None
) -> None:
    gate.post("/sessions", {"agent": "a", "session_key": "of-a"})
    with ApiSocket(gate.gate) as client:
        assert client.refused(SAY, **payload) == (code, param)
        assert client.ask("ping") == {}
    assert gate.gate.turns("of-a") == []


def test_a_client_key_speaks_in_its_own_project(tmp_path: Path) -> None:
    tables = {"server": Server(token=TOKEN), "keys": (ClientKey(key=TEAM, project="team"),)}
    with agents(tmp_path, **tables) as gate:
        served: Gate = gate.gate
        headers = key(TOKEN)
        theirs = served.post({"agent": "a"}, "/sessions", **headers).json["id"]
        with ApiSocket(served, **key(TEAM)) as client:
            asked = {"agent": "a", "message": "x", "session_id": theirs}
            assert client.refused(SAY, **asked) == ("session_not_found", None)
            gate.model.will(says("mine"))
            said = client.ask(SAY, agent="a", message="x", session_id="own")
            turn = gate.ended({"turnId": said["turn_id"]})
        assert (turn["project_id"], turn["final_output"]) == ("team", "mine")
