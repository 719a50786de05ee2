"""The record of a request begins while its provider works, and no later than anyone needs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_fixtures import Gate, Reading, gate_and_model, provider
from scripted_model import Model, chat, named, says
from scripted_upstream import Peer, Upstream, upstream
from servers import DEADLINE, eventually
from xgw.config import Route


@pytest.fixture
def silent() -> Iterator[Upstream]:
    """A server with which no connection comes about."""
    ended = threading.Event()

    def script(_: Peer) -> None:
        assert ended.wait(DEADLINE)

    with upstream(script) as server:
        yield server
        ended.set()


@pytest.fixture
def gate(tmp_path: Path, silent: Upstream) -> Iterator[Gate]:
    """A gateway whose model `slow` is behind that."""
    model = Model()
    url = f"https://{silent.name}/v1"
    tables = {
        "providers": (provider(model), provider(model, "slow", base_url=url)),
        "routes": (
            Route(model="m", targets=("p1/m",)),
            Route(model="slow", targets=("slow/m",)),
        ),
    }
    with gate_and_model(tmp_path, model, **tables) as gate:
        yield gate


@pytest.mark.parametrize("streamed", [False, True])
def test_a_turn_that_waits_for_a_connection_can_be_cancelled(gate: Gate, streamed: bool) -> None:
    connection = gate.send(chat(model="slow", stream=streamed, **named("connecting")))
    eventually(lambda: any(gate.services.calls.cancel(t["id"]) for t in gate.turns("connecting")))
    reply = Reading(connection).rest()
    assert (reply.status, reply.error["code"]) == (409, "turn_cancelled")
    turn = gate.ended(reply)
    assert (turn["status"], turn["ended_by"]) == ("cancelled", "user_cancel")
    assert [step["status"] for step in gate.steps(turn)] == ["cancelled"]


def test_a_client_that_leaves_before_its_request_went_out(gate: Gate) -> None:
    connection = gate.send(chat(model="slow", **named("leaving")))
    eventually(lambda: gate.turns("leaving"))
    connection.close()
    turn = gate.only_turn()
    assert gate.story(turn)[1:] == [
        *["turn.started", "run.started", "message.added user", "step.started llm_call"],
        "step.completed cancelled",
        "run.completed cancelled",
        "turn.completed cancelled client_disconnect",
    ]
    assert gate.services.calls.count == 0


def test_a_long_request_is_told_of_as_any_other(gate: Gate) -> None:
    gate.model.will(says("read"), says("read"))
    long = gate.post(chat("so much. " * 150_000, **named("long")))
    short = gate.post(chat("so little.", **named("short")))
    assert gate.story(gate.ended(long)) == gate.story(gate.ended(short))
