"""Answers that are not read to their end: the client leaves, the turn is cancelled, xgw ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from gateway_fixtures import CHAT, Gate, Reading, a_test_of, gate_and_model, hang_up
from scripted_model import (
    DONE,
    HANG,
    Asked,
    Row,
    asks_for,
    chat,
    completion,
    delta,
    event,
    finish,
    named,
    says,
    stream,
    whole,
)
from scripted_upstream import Peer
from servers import DEADLINE, eventually
from xgw.config import Gateway, Retry


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    patient = Retry(max_attempts=2, base_delay_ms=600_000)
    gateway = Gateway(retry=patient)
    with gate_and_model(tmp_path_factory.mktemp("leaving"), gateway=gateway) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


class Hanging:
    """Answers with these bytes, then says nothing until xgw hangs up."""

    def __init__(self, *blocks: bytes) -> None:
        self._blocks = blocks
        self.asked = threading.Event()
        self.left = threading.Event()

    def __call__(self, peer: Peer, _: Asked) -> None:
        for block in self._blocks:
            peer.send(block)
        self.asked.set()
        peer.wait_for_end()
        peer.sock.close()
        self.left.set()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
WAITS: dict[str, tuple[bytes, ...]] = {
    "before the head": (),
    "before the body": (HEAD,),
    "before content": (HEAD, event(delta(role="assistant"))),
}


def cancelled(gate: Gate, session: str) -> Row:
    """The one turn of a session, cancelled because its client left."""
    eventually(lambda: any(t["ended_at"] for t in gate.turns(session)))
    (turn,) = gate.turns(session)
    assert (turn["status"], turn["ended_by"]) == ("cancelled", "client_disconnect")
    assert (turn["error_type"], turn["finish_reason"]) == (None, None)
    assert gate.run(turn)["status"] == "cancelled"
    return turn


# -- the client leaves -----------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("waiting", WAITS)
def test_a_client_that_leaves_while_it_waits(gate: Gate, waiting: str, streamed: bool) -> None:
    answer, session = Hanging(*WAITS[waiting]), f"{waiting}-{streamed}"
    gate.model.will(answer)
    connection = gate.send(chat(stream=streamed, **named(session)))
    assert answer.asked.wait(DEADLINE)
    connection.close()
    assert answer.left.wait(DEADLINE)
    turn = cancelled(gate, session)
    assert gate.story(turn)[1:] == [
        *["turn.started", "run.started", "message.added user", "step.started llm_call"],
        "step.completed cancelled",
        "run.completed cancelled",
        "turn.completed cancelled client_disconnect",
    ]
    assert (turn["final_output"], turn["total_tokens"]) == (None, None)
    assert [r["ended_at"] is None for r in gate.requests(turn)] == [False]


@pytest.mark.parametrize("way", [Reading.leave, Reading.close])
def test_a_client_that_leaves_in_the_middle(gate: Gate, way: object, request: Row) -> None:
    answer = Hanging(HEAD, event(delta("half an ")), event(delta("answer")))
    session = request.node.name  # type: ignore[attr-defined]
    gate.model.will(answer)
    reading = gate.open(chat(stream=True, **named(session)))
    reading.until(b"answer")
    way(reading)  # type: ignore[operator]
    assert answer.left.wait(DEADLINE)
    turn = cancelled(gate, session)
    assert turn["final_output"] == "half an answer"
    (step,) = gate.steps(turn)
    assert (step["status"], step["partial_output"]) == ("cancelled", "half an answer")
    assert (step["usage_source"], turn["usage_source"]) == ("estimated", "estimated")
    said = gate.messages(turn)[-1]
    assert (said["role"], said["content"], said["metadata"]) == (
        "assistant",
        "half an answer",
        {"partial": True},
    )
    (request_log,) = gate.requests(turn)
    assert request_log["bytes_received"] > 0


def test_usage_that_had_come_is_kept(gate: Gate) -> None:
    so_far = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
    answer = Hanging(HEAD, event(delta("a") | {"usage": so_far}))
    gate.model.will(answer)
    reading = gate.open(chat(stream=True, **named("counted")))
    reading.until(b"content")
    reading.leave()
    turn = cancelled(gate, "counted")
    assert (turn["total_tokens"], turn["usage_source"]) == (10, "provider")


def test_leaving_after_the_finish_reason_is_a_success(gate: Gate) -> None:
    seen = threading.Event()
    gate.model.will(stream(delta("whole"), finish(), seen, b": and then\n\n", HANG))
    reading = gate.open(chat(stream=True))
    reading.until(b'"finish_reason":"stop"')
    seen.set()
    reading.until(b": and then\n\n")
    reading.leave()
    turn = gate.ended(reading)
    assert (turn["status"], turn["ended_by"], turn["finish_reason"]) == (
        "success",
        "finished",
        "stop",
    )


@pytest.mark.parametrize("kind", ["stream", "json"])
def test_leaving_before_the_finish_reason_was_passed_on(gate: Gate, kind: str) -> None:
    """The whole answer is here, but the client never read it: too much for any buffer."""
    text = "x" * 8_000_000
    in_events = stream(delta("a"), *[delta(text[:1_000_000])] * 8, finish(), DONE)
    gate.model.will(in_events if kind == "stream" else whole(completion(text)))
    session = f"unread-{kind}"
    connection = gate.send(chat(stream=True, **named(session)))
    sock = connection.sock
    assert sock.recv(1, 2)  # MSG_PEEK: the answer has begun
    hang_up(sock)
    connection.close()
    turn = cancelled(gate, session)
    assert turn["final_output"].startswith("a" if kind == "stream" else "x")
    assert gate.messages(turn)[-1]["metadata"] == {"partial": True}


def test_a_client_that_leaves_between_two_tries(gate: Gate) -> None:
    down = whole({"error": {"message": "down"}}, status="503 Down")
    gate.model.will(down)
    connection = gate.send(chat(**named("between")))
    eventually(
        lambda: any(gate.story(t)[-1].startswith("step.completed") for t in gate.turns("between"))
    )
    connection.close()
    turn = cancelled(gate, "between")
    assert gate.story(turn)[5:] == [
        "llm.error upstream_error retry",
        "step.completed error",
        "run.completed cancelled",
        "turn.completed cancelled client_disconnect",
    ]
    assert [s["status"] for s in gate.steps(turn)] == ["error"]
    assert turn["attempts"] == 1


def test_the_next_request_on_the_thread_is_not_mixed_up(gate: Gate) -> None:
    answers = [Hanging(HEAD, event(delta("old"))) for _ in range(3)]
    for number, answer in enumerate(answers):
        gate.model.will(answer)
        reading = gate.open(chat(stream=True, **named("old-session", f"k{number}")))
        reading.until(b"old")
        reading.leave()
        gate.model.will(says("new"))
        assert gate.turn(gate.post(chat("new")))["session_id"] is None
        assert answer.left.wait(DEADLINE)
    eventually(lambda: all(t["ended_at"] for t in gate.turns("old-session")))
    assert [t["final_output"] for t in gate.turns("old-session")] == ["old"] * 3
    assert gate.services.calls.count == 0


def test_a_stream_that_is_never_read(gate: Gate) -> None:
    gate.model.will(stream(delta("unread"), HANG))
    response = gate.app.test_client().post(CHAT, json=chat(stream=True, **named("never-read")))
    response.close()
    assert cancelled(gate, "never-read")["final_output"] == "unread"


# -- cancelled, shut down --------------------------------------------------------------------------


def test_cancelling_a_turn_ends_its_stream_with_an_error_event(gate: Gate) -> None:
    answer = Hanging(HEAD, event(delta("so far")))
    gate.model.will(answer)
    reading = gate.open(chat(stream=True, **named("stopped")))
    reading.until(b"so far")
    assert len(gate.services.calls.cancel(gate.turn(reading)["id"])) == 1
    reply = reading.rest()
    error = orjson.loads(reply.events[-1])["error"]
    assert error == {
        "message": "The turn was cancelled.",
        "type": "invalid_request_error",
        "param": None,
        "code": "turn_cancelled",
    }
    assert answer.left.wait(DEADLINE)
    turn = gate.turn(reply)
    assert (turn["status"], turn["ended_by"], turn["final_output"]) == (
        "cancelled",
        "user_cancel",
        "so far",
    )


@pytest.mark.parametrize("streamed", [False, True])
def test_cancelling_a_turn_that_waits_answers_409(gate: Gate, streamed: bool) -> None:
    answer = Hanging()
    gate.model.will(answer)
    session = f"stopped-{streamed}"
    connection = gate.send(chat(stream=streamed, **named(session)))
    assert answer.asked.wait(DEADLINE)
    eventually(lambda: any(gate.services.calls.cancel(t["id"]) for t in gate.turns(session)))
    reply = Reading(connection).rest()
    assert (reply.status, reply.error["code"]) == (409, "turn_cancelled")
    turn = gate.turn(reply)
    assert (turn["status"], turn["ended_by"]) == ("cancelled", "user_cancel")
    assert len(gate.turns(session)) == 1


def test_cancelling_drops_what_the_turn_waits_for(gate: Gate) -> None:
    answer = Hanging(HEAD, event(delta("busy")))
    gate.model.will(asks_for("c1"), answer)
    gate.post(chat(**named("dropped", "k")))
    reading = gate.open(chat("more", stream=True, **named("dropped", "k")))
    reading.until(b"busy")
    turn = gate.turn(reading)
    gate.services.calls.cancel(turn["id"])
    reading.rest()
    (tool,) = gate.steps(turn, "tool_call")
    assert (tool["status"], tool["error_type"]) == ("cancelled", "no_result")
    assert gate.turn(reading)["ended_by"] == "user_cancel"


def test_a_server_that_ends_says_so(tmp_path: Path) -> None:
    streaming, waiting = Hanging(HEAD, event(delta("so far"))), Hanging()
    with gate_and_model(tmp_path) as gate:
        gate.model.will(streaming)
        reading = gate.open(chat(stream=True))
        reading.until(b"so far")
        gate.model.will(waiting)
        connection = gate.send(chat())
        assert waiting.asked.wait(DEADLINE)
        gate.services.drain(0.1)
        streamed, whole_answer = reading.rest(), Reading(connection).rest()
        error = orjson.loads(streamed.events[-1])["error"]
        assert (error["type"], error["code"]) == ("interrupted", "shutdown")
        assert (whole_answer.status, whole_answer.error["code"]) == (503, "shutdown")
        for reply, text in ((streamed, "so far"), (whole_answer, None)):
            turn = gate.turn(reply)
            assert (turn["status"], turn["ended_by"]) == ("error", "shutdown")
            assert (turn["error_type"], turn["final_output"]) == ("interrupted", text)
