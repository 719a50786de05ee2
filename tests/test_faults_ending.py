"""A server that stops with calls under way, and clients that leave before the first byte."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import orjson
import pytest

from faults import assert_is_error, read_to_end, running, watch
from gateway_fixtures import Reading
from scripted_model import HANG, Asked, asks_for, chat, delta, named, stream
from scripted_upstream import Peer
from servers import DEADLINE, eventually
from xgw import clock

DRAIN_SECONDS = 10.0
NOTICED_SECONDS = 10 * 3.0
"""Many times the 3 s within which a client's leaving is noticed."""


class Hanging:
    """Says nothing until xgw hangs up."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.left = threading.Event()

    def __call__(self, peer: Peer, _: Asked) -> None:
        self.asked.set()
        peer.wait_for_end()
        peer.sock.close()
        self.left.set()


@pytest.mark.slow
def test_a_server_that_stops_ends_what_does_not_end_by_itself(tmp_path: Path) -> None:
    with running(tmp_path) as gate:
        gate.model.will(asks_for("c1"))
        waits = gate.turn(gate.post(chat(**named("waits"))))
        hanging = Hanging()
        gate.model.will(stream(delta("so far"), HANG))
        streamed = gate.open(chat(stream=True))
        streamed.until(b"so far")
        gate.model.will(hanging)
        plain = gate.send(chat())
        assert hanging.asked.wait(DEADLINE)
        watcher = watch(gate)
        began = clock.monotonic()
        gate.server.send(signal.SIGTERM)
        error = orjson.loads(streamed.rest().events[-1])["error"]
        assert (error["type"], error["code"]) == ("interrupted", "shutdown")
        assert b"[DONE]" not in streamed.body
        assert clock.monotonic() - began > DRAIN_SECONDS / 2
        refused = Reading(plain).rest()
        assert_is_error(refused, 503, "shutdown")
        assert read_to_end(watcher).count(b"event: turn.completed") == 2
        assert gate.server.wait() == 0
        for reply, text in ((streamed, "so far"), (refused, None)):
            turn = gate.turn(reply)
            assert (turn["status"], turn["ended_by"]) == ("error", "shutdown")
            assert turn["final_output"] == text
        assert gate.run(waits)["status"] == "waiting_tool"
        assert "Traceback" not in gate.server.stderr.text


def test_many_that_leave_before_the_first_byte(tmp_path: Path) -> None:
    """The upstream sees each of them go, and no place stays taken."""
    with running(tmp_path) as gate:
        answers = [Hanging() for _ in range(16)]
        gate.model.will(*answers)
        sent = [
            gate.send(chat(stream=bool(n % 2), **named(f"left-{n}"))) for n in range(len(answers))
        ]
        for answer in answers:
            assert answer.asked.wait(DEADLINE)
        for connection in sent:
            connection.close()
        for answer in answers:
            assert answer.left.wait(NOTICED_SECONDS)
        eventually(lambda: gate.health()["calls"] == 0)
        for n in range(len(answers)):
            eventually(lambda n=n: all(turn["ended_at"] for turn in gate.turns(f"left-{n}")))
            (turn,) = gate.turns(f"left-{n}")
            assert (turn["status"], turn["ended_by"]) == ("cancelled", "client_disconnect")
            assert [step["status"] for step in gate.steps(turn)] == ["cancelled"]
