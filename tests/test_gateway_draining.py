"""`on_disconnect = "drain"`: an answer comes to its end although its client has left."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import orjson
import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model, hang_up
from scripted_model import (
    DONE,
    Answer,
    Asked,
    Row,
    chat,
    completion,
    delta,
    finish,
    named,
    stream,
    usage,
    whole,
)
from scripted_upstream import Peer
from servers import DEADLINE, eventually
from xgw.config import Gateway


@pytest.fixture(scope="module")
def drains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    gateway = Gateway(on_disconnect="drain")
    with gate_and_model(tmp_path_factory.mktemp("drains"), gateway=gateway) as gate:
        yield gate


def go_on_later(go_on: threading.Event, end: list[Row | bytes | str]) -> Answer:
    return stream(delta("first "), go_on, *[delta("and more ")] * 200, delta("last"), *end)


ENDS: dict[str, tuple[list[Row | bytes | str], str, str | None]] = {
    "well": ([finish(), usage(7, 3), DONE], "success", None),
    "badly": ([{"error": {"message": "broke"}}], "error", "upstream_error"),
    "early": ([], "error", "upstream_truncated"),
}


@pytest.mark.parametrize("end", ENDS)
def test_an_answer_is_finished_without_its_client(drains: Gate, end: str) -> None:
    pieces, status, error_type = ENDS[end]
    go_on = threading.Event()
    with a_test_of(drains) as gate:
        gate.model.will(go_on_later(go_on, pieces))
        reading = gate.open(chat(stream=True, **named(f"drained-{end}")))
        reading.until(b"first")
        reading.leave()
        go_on.set()
        turn = gate.ended(reading)
        assert (turn["status"], turn["error_type"]) == (status, error_type)
        assert turn["final_output"] == f"first {'and more ' * 200}last"
        assert (turn["total_tokens"] == 10) is (end == "well")


def test_a_whole_answer_is_finished_without_its_client(drains: Gate) -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def answer(peer: Peer, _: Asked) -> None:
        arrived.set()
        assert go_on.wait(DEADLINE)
        peer.answer(orjson.dumps(completion("kept")))

    with a_test_of(drains) as gate:
        gate.model.will(answer)
        connection = gate.send(chat(**named("drained-json")))
        assert arrived.wait(DEADLINE)
        connection.close()
        go_on.set()
        eventually(lambda: any(t["ended_at"] for t in gate.turns("drained-json")))
        (turn,) = gate.turns("drained-json")
        assert (turn["status"], turn["final_output"]) == ("success", "kept")


def test_a_json_answer_that_became_a_stream_is_kept(drains: Gate) -> None:
    with a_test_of(drains) as gate:
        gate.model.will(whole(completion("y" * 8_000_000)))
        connection = gate.send(chat(stream=True, **named("drained-converted")))
        assert connection.sock.recv(1, 2)
        hang_up(connection.sock)
        connection.close()
        eventually(lambda: any(t["ended_at"] for t in gate.turns("drained-converted")))
        (turn,) = gate.turns("drained-converted")
        assert (turn["status"], len(turn["final_output"])) == ("success", 8_000_000)
