"""Messages to agents over the websocket, and what is told of their turns there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_gates import wait_for
from agents_fixtures import AgentGate, a_test_with, agents, asks
from api_socket import ApiSocket
from scripted_model import says, streams


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    with agents(tmp_path_factory.mktemp("sockets")) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def test_a_message_is_answered_at_once_and_its_turn_told(gate: AgentGate) -> None:
    gate.model.will(asks(("c1", "look", '{"city": "Oslo"}')), streams("21"))
    session = gate.post("/sessions", {"agent": "a"}).json
    with ApiSocket(gate.gate) as client:
        shown = client.ask("session.subscribe", session_id=session["id"])["session"]
        assert shown["tools"][0]["name"] == "look"
        message = {"agent": "a", "session_id": session["id"], "message": "hi"}
        answer = client.ask("session.message.send", **message)
        assert answer["session_id"] == session["id"]
        done = client.until("session.turn.completed", turn_id=answer["turn_id"])
        assert done["payload"]["final_output"] == "21"
    turn = gate.turn({"turnId": answer["turn_id"]})
    assert gate.gate.run(turn)["id"] == answer["run_id"]


def test_what_cannot_be_sent_is_refused_and_the_socket_stays(gate: AgentGate) -> None:
    with ApiSocket(gate.gate) as client:
        for payload, refusal in (
            ({"agent": "a"}, ("invalid_value", "message")),
            ({"message": "x"}, ("invalid_value", "agent")),
            ({"agent": "nobody", "message": "x"}, ("agent_not_found", None)),
            ({"agent": "a", "message": "x", "wait": 1}, ("invalid_value", "wait")),
        ):
            assert client.refused("session.message.send", **payload) == refusal
        assert client.ask("ping") == {}


def test_a_turn_can_be_cancelled_there_whether_it_runs_or_waits(gate: AgentGate) -> None:
    gate.model.will(asks(("c1", "stuck", "{}")))
    message = {"agent": "a", "session_id": "stops", "message": "hi"}
    with ApiSocket(gate.gate) as client:
        first = client.ask("session.message.send", **message)
        wait_for("stuck runs")
        second = client.ask("session.message.send", **message)
        for turn in (second, first):
            assert client.ask("turn.cancel", turn_id=turn["turn_id"])["status"] == "cancelled"
        gate.model.will(says("on"))
        third = client.ask("session.message.send", **message)
        assert gate.ended({"turnId": third["turn_id"]})["final_output"] == "on"
