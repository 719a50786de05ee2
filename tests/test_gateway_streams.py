"""Streamed answers: the very bytes that pass, when they pass, and how faults in the middle end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model
from scripted_model import (
    CUT,
    DONE,
    HANG,
    RESET,
    Answer,
    Asked,
    Piece,
    Row,
    chat,
    chunk,
    delta,
    event,
    finish,
    named,
    stream,
    usage,
)
from scripted_upstream import Peer
from servers import DEADLINE
from xgw.config import Gateway, Server
from xgw.config.schema import Timeouts
from xgw.exchange import relay

LIMIT = 20_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    gateway = Gateway(
        max_event_bytes=LIMIT, timeouts=Timeouts(connect=DEADLINE, first_byte=DEADLINE, idle=1)
    )
    with gate_and_model(tmp_path_factory.mktemp("streams"), gateway=gateway) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def asked(**fields: Any) -> Row:
    return chat(stream=True, **fields)


WITH_USAGE = {"stream_options": {"include_usage": True}}

# -- bytes -----------------------------------------------------------------------------------------


def test_events_pass_byte_for_byte(gate: Gate) -> None:
    odd = (
        b": a comment\n\n"
        b'data:{"choices":[{"delta":{"role":"assistant","content":""},"index":0}],"z":1.00,"a":1e2}\r\n\r\n'
        b"event: message\nid: 7\n"
        b'data: {"choices": [{"index":0,"delta":{"content":"\\u0041\xc3\xa9"}}],\n'
        b'data:  "x_unknown": {"deep": [null]}}\n\n'
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
        b"data: [DONE]\n\n"
    )
    gate.model.will(stream(*[odd[at : at + 7] for at in range(0, len(odd), 7)]))
    reply = gate.post(asked(**WITH_USAGE))
    assert reply.body == odd
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["cache-control"] == "no-cache, no-transform"
    assert reply.headers["x-accel-buffering"] == "no"
    turn = gate.turn(reply)
    assert (turn["final_output"], turn["status"]) == ("Aé", "success")
    (request,) = gate.requests(turn)
    assert gate.payload(request["response_body"]) == odd


def test_usage_is_asked_for_and_kept_from_those_who_did_not_ask(gate: Gate) -> None:
    gate.model.will(stream(delta("a"), finish(), usage(7, 3), DONE))
    reply = gate.post(asked(temperature=1))
    assert gate.model.asked[-1].json["stream_options"] == {"include_usage": True}
    assert reply.body == event(delta("a")) + event(finish()) + DONE
    turn = gate.turn(reply)
    assert (turn["total_tokens"], turn["usage_source"]) == (10, "provider")


@pytest.mark.parametrize("options", [{"include_usage": True, "x": 1}, {"include_usage": True}])
def test_who_asked_for_usage_gets_it(gate: Gate, options: Row) -> None:
    gate.model.will(stream(delta("a"), finish(), usage(7, 3), DONE))
    reply = gate.post(asked(stream_options=options))
    assert gate.model.asked[-1].json["stream_options"] == options
    assert reply.events[-2] == orjson.dumps(usage(7, 3))


def test_other_stream_options_stay(gate: Gate) -> None:
    gate.model.will(stream(delta("a"), finish(), DONE))
    gate.post(asked(stream_options={"x": 1, "include_usage": False}))
    assert gate.model.asked[-1].json["stream_options"] == {"x": 1, "include_usage": True}


def test_usage_on_the_last_chunk_is_the_clients_too(gate: Gate) -> None:
    last = finish(usage={"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6})
    gate.model.will(stream(delta("a"), last, DONE))
    reply = gate.post(asked())
    assert reply.body == event(delta("a")) + event(last) + DONE
    assert gate.turn(reply)["total_tokens"] == 6


# -- time ------------------------------------------------------------------------------------------


def test_every_event_passes_on_as_it_arrives(gate: Gate) -> None:
    steps = [threading.Event() for _ in range(4)]
    pieces: list[Piece] = [delta(role="assistant")]
    for number, step in enumerate(steps):
        pieces += [step, delta(f"part-{number}")]
    gate.model.will(stream(*pieces, finish(), DONE))
    steps[0].set()
    reading = gate.open(asked())
    for number in range(len(steps)):
        seen = reading.until(f"part-{number}".encode())
        assert b"part-%d" % (number + 1) not in seen
        if number + 1 < len(steps):
            steps[number + 1].set()
    assert reading.rest().body.endswith(DONE)


@pytest.mark.parametrize("begin", [[], [delta(role="assistant")], [b": waking up\n\n"]])
def test_nothing_leaves_before_there_is_something_to_say(gate: Gate, begin: list[Piece]) -> None:
    """Held back until a fault shows: the client gets a proper status."""
    fault: Row = {"error": {"message": "no capacity", "type": "server_error", "code": 529}}
    gate.model.will(stream(*begin, fault))
    reply = gate.post(asked())
    assert (reply.status, reply.error["message"]) == (529, "no capacity")
    assert gate.turn(reply)["status"] == "error"


def test_the_head_is_held_back_for_two_seconds_at_most(gate: Gate) -> None:
    go_on, alive = threading.Event(), b": alive\n\n"
    beats: list[Piece] = [alive, lambda: go_on.wait(0.1)] * 40
    gate.model.will(stream(delta(role="assistant"), *beats, go_on, delta("late"), finish(), DONE))
    reading = gate.open(asked())
    assert reading.status == 200
    assert b"late" not in reading.until(alive)
    go_on.set()
    reply = reading.rest()
    assert reply.body.endswith(event(delta("late")) + event(finish()) + DONE)
    assert reply.body.startswith(event(delta(role="assistant")))


def test_heartbeats_are_comments_between_whole_events(tmp_path: Path) -> None:
    go_on = threading.Event()
    half, rest = event(delta("second"))[:20], event(delta("second"))[20:]
    with gate_and_model(tmp_path, server=Server(heartbeat_seconds=0.1)) as gate:
        gate.model.will(stream(delta("first"), half, go_on, rest, finish(), DONE))
        reading = gate.open(asked())
        reading.until(b": heartbeat\n\n: heartbeat\n\n")
        go_on.set()
        body = reading.rest().body
        assert body.replace(b": heartbeat\n\n", b"") == b"".join(
            [event(delta("first")), event(delta("second")), event(finish()), DONE]
        )
        turn = gate.turn(reading)
        assert gate.requests(turn)[0]["frames"][0][0] == 0


def test_a_heartbeat_that_fell_due_goes_out_with_the_first_bytes(tmp_path: Path) -> None:
    with gate_and_model(tmp_path, server=Server(heartbeat_seconds=0.05)) as gate:
        wait = threading.Event()
        gate.model.will(stream(lambda: wait.wait(0.2), delta("a"), finish(), DONE))
        body = gate.post(asked()).body
        assert body.startswith(event(delta("a")))
        assert body.count(b": heartbeat\n\n") >= 1


def test_heartbeats_among_events_with_ids_end_no_event(tmp_path: Path) -> None:
    numbered, go_on = b"id: 1\n" + event(delta("a")), threading.Event()
    with gate_and_model(tmp_path, server=Server(heartbeat_seconds=0.1)) as gate:
        pieces: list[Piece] = [numbered, go_on, finish(), DONE]
        gate.model.will(stream(*pieces), stream(*pieces))
        reading = gate.open(asked())
        reading.until(b": heartbeat\n")
        go_on.set()
        body = reading.rest().body
        written = b"".join([numbered, event(finish()), DONE])
        assert body.replace(b": heartbeat\n", b"") == written
        client = openai.OpenAI(base_url=f"{gate.url}/v1", api_key="unused", max_retries=0)
        with client.chat.completions.create(**asked()) as chunks:
            assert [chunk.choices[0].delta.content for chunk in chunks] == ["a", None]
        client.close()


# -- faults in the middle --------------------------------------------------------------------------

PART = [delta("par"), delta("tial")]
FAULTS: dict[str, tuple[Answer, str, str]] = {
    "error": (
        stream(*PART, {"error": {"message": "gone wrong", "type": "server_error", "code": None}}),
        "server_error",
        "upstream_error",
    ),
    "error without a type": (
        stream(*PART, {"error": {"message": "gone wrong"}}),
        "upstream_error",
        "upstream_error",
    ),
    "end": (stream(*PART), "upstream_truncated", "upstream_truncated"),
    "done without an end": (stream(*PART, DONE), "upstream_truncated", "upstream_truncated"),
    "cut": (stream(*PART, CUT), "upstream_truncated", "upstream_truncated"),
    "cut in an event": (
        stream(*PART, b'data: {"choices":[{"ind', CUT),
        "upstream_truncated",
        "upstream_truncated",
    ),
    "reset": (stream(*PART, RESET), "upstream_connection", "upstream_connection"),
    "silence": (stream(*PART, HANG), "upstream_timeout", "upstream_timeout"),
    "garbage": (
        stream(*PART, b"data: <html>\n\n", HANG),
        "upstream_protocol_error",
        "upstream_protocol_error",
    ),
    "endless line": (
        stream(*PART, b"data: " + b"x" * LIMIT, HANG),
        "upstream_protocol_error",
        "upstream_protocol_error",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_after_content_is_one_error_event(gate: Gate, fault: str) -> None:
    answer, told, recorded = FAULTS[fault]
    gate.model.will(answer)
    reply = gate.post(asked(**named(f"fault-{fault}")))
    assert reply.status == 200
    *parts, last = [orjson.loads(data) for data in reply.events]
    assert "".join(part["choices"][0]["delta"]["content"] for part in parts) == "partial"
    error = last["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    assert error["type"] == told
    assert error["message"]
    assert b"[DONE]" not in reply.body
    assert b'finish_reason":"' not in reply.body
    turn = gate.turn(reply)
    assert (turn["status"], turn["ended_by"], turn["error_type"]) == ("error", "provider", recorded)
    assert (turn["final_output"], turn["finish_reason"]) == ("partial", None)
    (step,) = gate.steps(turn)
    assert (step["status"], step["partial_output"]) == ("error", "partial")
    assert gate.messages(turn)[-1]["content"] == "partial"
    assert gate.messages(turn)[-1]["metadata"] == {"partial": True}
    assert gate.story(turn)[5:] == [
        f"llm.error {recorded} give_up",
        "step.completed error",
        "message.added assistant",
        "run.completed error",
        "turn.completed error provider",
    ]
    assert (step["usage_source"], turn["usage_source"]) == ("estimated", "estimated")


@pytest.mark.parametrize("end", [[], [CUT], [RESET], [HANG], [b'data: {"cho', CUT]])
def test_a_fault_after_the_finish_reason_takes_nothing(gate: Gate, end: list[Piece]) -> None:
    gate.model.will(stream(delta("whole"), finish(), *end))
    reply = gate.post(asked())
    assert reply.body.startswith(event(delta("whole")) + event(finish()))
    assert b"error" not in reply.body
    turn = gate.turn(reply)
    assert (turn["status"], turn["finish_reason"], turn["final_output"]) == (
        "success",
        "stop",
        "whole",
    )


@pytest.mark.parametrize(
    ("reason", "normal"),
    [
        *[("length", "length"), ("content_filter", "content_filter")],
        *[("max_tokens", "length"), ("brand_new", "brand_new")],
    ],
)
def test_other_finish_reasons_are_successes(gate: Gate, reason: str, normal: str) -> None:
    gate.model.will(stream(delta("a"), finish(reason), DONE))
    turn = gate.turn(gate.post(asked()))
    assert (turn["status"], turn["finish_reason"]) == ("success", normal)
    (step,) = gate.steps(turn)
    assert (step["finish_reason"], step["finish_reason_raw"]) == (normal, reason)


NULLS = ["null", "NULL", "None", ""]


@pytest.mark.parametrize("nothing", NULLS)
def test_a_null_in_words_is_no_finish_reason(gate: Gate, nothing: str) -> None:
    parts = [chunk({"index": 0, "delta": {"content": c}, "finish_reason": nothing}) for c in "ab"]
    gate.model.will(stream(*parts, finish(), DONE), stream(*parts), stream(*parts, finish(), DONE))
    reply = gate.post(asked())
    assert reply.body == b"".join([*map(event, parts), event(finish()), DONE])
    turn = gate.turn(reply)
    assert (turn["status"], turn["finish_reason"]) == ("success", "stop")
    broken = gate.post(asked())
    assert orjson.loads(broken.events[-1])["error"]["type"] == "upstream_truncated"
    turn = gate.turn(broken)
    assert (turn["error_type"], turn["finish_reason"]) == ("upstream_truncated", None)
    assert gate.post(chat()).json["choices"][0]["finish_reason"] == "stop"


def test_what_goes_on_after_a_finish_reason_is_waited_for(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A choice may begin when the one before it has ended."""
    monkeypatch.setattr(relay, "FINISH_GRACE", 1.0)
    seen, wait = threading.Event(), threading.Event()
    pieces = [delta("red"), finish(), delta("gr", 1), delta("een", 1), finish(index=1)]
    begin, end = pieces[:2], pieces[2:]
    alive: list[Piece] = [lambda: wait.wait(0.7), b": alive\n\n", lambda: wait.wait(0.7)]
    gate.model.will(stream(*begin, seen, end[0], *alive, *end[1:], DONE))
    reading = gate.open(asked(n=2))
    reading.until(event(finish()))
    seen.set()
    reply = reading.rest()
    assert reply.body.replace(b": alive\n\n", b"") == b"".join([*map(event, pieces), DONE])
    turn = gate.turn(reply)
    assert (turn["status"], turn["final_output"]) == ("success", "red")


def test_a_finish_reason_in_every_chunk_cuts_no_answer_short(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "FINISH_GRACE", 1.5)
    wait = threading.Event()
    parts = [chunk({"index": 0, "delta": {"content": c}, "finish_reason": "stop"}) for c in "abcd"]
    pieces: list[Piece] = []
    for part in parts:
        pieces += [part, lambda: wait.wait(0.6)]
    gate.model.will(stream(*pieces, DONE))
    reply = gate.post(asked())
    assert reply.body == b"".join([*map(event, parts), DONE])
    assert gate.turn(reply)["final_output"] == "abcd"


def test_an_error_in_a_field_of_its_own_name_is_told(gate: Gate) -> None:
    fault = b'error: {"code":500,"message":"no slot is free","type":"server_error"}\n\n'
    gate.model.will(stream(*PART, fault), stream(fault))
    reply = gate.post(asked())
    assert orjson.loads(reply.events[-1])["error"]["message"] == "no slot is free"
    assert gate.turn(reply)["error_message"] == "no slot is free"
    reply = gate.post(asked())
    assert (reply.status, reply.error["message"]) == (500, "no slot is free")


def test_bytes_that_are_no_http_after_content(gate: Gate) -> None:
    shown = threading.Event()

    def answer(peer: Peer, _: Asked) -> None:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        content = event(delta("so far"))
        peer.send(head + b"%x\r\n" % len(content) + content + b"\r\n")
        assert shown.wait(DEADLINE)
        peer.send(b"zz\r\n")
        peer.wait_for_end()

    gate.model.will(answer)
    reading = gate.open(asked())
    reading.until(b"so far")
    shown.set()
    assert orjson.loads(reading.rest().events[-1])["error"]["type"] == "upstream_protocol_error"
    assert gate.turn(reading)["final_output"] == "so far"
