"""Answers of another kind than was asked for, and answers of several choices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from gateway_fixtures import CHAT, Gate, a_test_of, gate_and_model
from scripted_model import (
    CUT,
    DONE,
    HANG,
    RESET,
    Piece,
    call,
    chat,
    chunk,
    completion,
    delta,
    finish,
    stream,
    usage,
    whole,
)
from servers import DEADLINE
from xgw.config import Gateway
from xgw.config.schema import Timeouts


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    gateway = Gateway(timeouts=Timeouts(connect=DEADLINE, first_byte=DEADLINE, idle=1))
    with gate_and_model(tmp_path_factory.mktemp("conversions"), gateway=gateway) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def test_a_json_answer_becomes_a_stream(gate: Gate) -> None:
    gate.model.will(whole(completion("hello", x_unknown=1)))
    reply = gate.post(chat(stream=True, stream_options={"include_usage": True}))
    events = [orjson.loads(data) for data in reply.events[:-1]]
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]) == "hello"
    assert events[-1]["usage"]["total_tokens"] == 10
    assert events[0]["x_unknown"] == 1
    assert reply.body.endswith(DONE)
    turn = gate.turn(reply)
    assert (turn["status"], turn["final_output"], turn["total_tokens"]) == ("success", "hello", 10)
    assert turn["finish_reason"] == "stop"


def test_the_calls_of_a_json_answer_are_readable_as_a_stream(gate: Gate) -> None:
    odd = {"type": "function", "function": {"name": "look", "arguments": {"at": 1.0}}}
    gate.model.will(whole(completion("", odd, call("c2"))))
    reply = gate.post(chat(stream=True), f"/s/odd-calls{CHAT}")
    first = orjson.loads(reply.events[0])["choices"][0]["delta"]["tool_calls"]
    assert [(c["index"], c["function"]["arguments"]) for c in first] == [
        (0, '{"at":1.0}'),
        (1, "{}"),
    ]
    assert first[0]["id"].startswith("call_")
    (step, *tools) = gate.steps(gate.turn(reply))
    ids = [c["id"] for c in first]
    assert [c["tool_call_id"] for c in step["tool_calls"]] == ids
    assert [tool["tool_call_id"] for tool in tools] == ids
    output = orjson.loads(gate.payload(step["output_payload"]))
    assert [c["id"] for c in output["choices"][0]["message"]["tool_calls"]] == ids
    assert output["usage"]["total_tokens"] == 10


@pytest.mark.parametrize(
    ("calls", "sent"),
    [
        (["x", call("c1"), None, call("c2")], ["x", 0, None, 1]),
        ("nope", "nope"),
        ({"id": "c1"}, {"id": "c1"}),
        (False, False),
    ],
)
def test_calls_that_are_none_are_passed_on_as_they_are(gate: Gate, calls: Any, sent: Any) -> None:
    """`sent` has the index of each element that is a call."""
    message = {"role": "assistant", "content": "hm", "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    gate.model.will(whole(completion() | {"choices": [choice]}))
    reply = gate.post(chat(stream=True))
    assert reply.status == 200
    got = orjson.loads(reply.events[0])["choices"][0]["delta"]["tool_calls"]
    if isinstance(got, list):
        got = [one["index"] if isinstance(one, dict) else one for one in got]
    assert got == sent
    assert reply.body.endswith(DONE)
    turn = gate.turn(reply)
    assert (turn["status"], turn["final_output"]) == ("success", "hm")
    asked_for = gate.steps(turn)[0]["tool_calls"] or []
    known = [one["id"] for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
    assert [one["tool_call_id"] for one in asked_for] == known


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("message", "text"), [("hello", "hello"), (None, None), (5, None), (["hello"], None)]
)
def test_a_message_that_is_no_object_is_what_was_said(
    gate: Gate, message: Any, text: str | None, streamed: bool
) -> None:
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    gate.model.will(whole(completion() | {"choices": [choice]}))
    reply = gate.post(chat(stream=streamed))
    assert reply.status == 200
    if streamed:
        delta = orjson.loads(reply.events[0])["choices"][0]["delta"]
        assert (delta["role"], delta.get("content")) == ("assistant", message)
    else:
        assert reply.json["choices"] == [choice]
    turn = gate.turn(reply)
    assert (turn["status"], turn["finish_reason"]) == ("success", "stop")
    assert turn["final_output"] == text


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"detail":"the model is busy"}', "the answer has no choices: the model is busy"),
        (b'{"choices":["a"],"detail":"no"}', "a choice of the answer is no object: no"),
        (b"upstream connect error", "the answer is not JSON: upstream connect error"),
        (b"<html>198.51.100.7</html>", "the answer is not JSON: p answered {} with an HTML page"),
        (b"", "the answer is not JSON: p answered {} without a body"),
    ],
)
def test_what_is_no_answer_is_told_in_the_upstreams_words(
    gate: Gate, body: bytes, message: str, streamed: bool
) -> None:
    status = 201 if streamed else 200
    gate.model.will(whole(body, status=f"{status} X"))
    reply = gate.post(chat(stream=streamed))
    provider = gate.steps(gate.turn(reply))[0]["provider_name"]
    told = message.replace("p answered {}", f"{provider} answered {status}")
    assert (reply.status, reply.error["type"]) == (502, "upstream_protocol_error")
    assert reply.error["message"] == told
    turn = gate.turn(reply)
    assert (turn["error_type"], turn["error_message"]) == ("upstream_protocol_error", told)
    assert gate.steps(turn)[0]["http_status"] == status


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_whose_only_choice_is_an_error(gate: Gate, streamed: bool) -> None:
    error = {"code": 429, "message": "the provider is full"}
    choice = {"index": 0, "message": {"content": ""}, "finish_reason": "error", "error": error}
    gate.model.will(whole(completion() | {"choices": [choice]}))
    reply = gate.post(chat(stream=streamed))
    assert (reply.status, reply.error["message"]) == (429, "the provider is full")
    turn = gate.turn(reply)
    assert (turn["status"], turn["error_type"]) == ("error", "upstream_rate_limit")


def test_a_stream_whose_only_choice_ends_in_an_error(gate: Gate) -> None:
    failed = {"index": 0, "delta": {}, "finish_reason": "error", "error": {"message": "it broke"}}
    gate.model.will(stream(delta("half"), chunk(failed), DONE))
    reply = gate.post(chat(stream=True))
    assert orjson.loads(reply.events[-1])["error"]["message"] == "it broke"
    assert len(reply.events) == 2
    turn = gate.turn(reply)
    assert (turn["status"], turn["final_output"], turn["finish_reason"]) == ("error", "half", None)
    assert turn["error_message"] == "it broke"


def test_an_error_between_two_events(gate: Gate) -> None:
    gate.model.will(stream(delta("half"), b'{"error":{"message":"it broke","code":503}}\n\n', DONE))
    reply = gate.post(chat(stream=True))
    assert orjson.loads(reply.events[-1])["error"]["message"] == "it broke"
    turn = gate.turn(reply)
    assert (turn["status"], turn["final_output"]) == ("error", "half")
    assert turn["error_message"] == "it broke"


@pytest.mark.parametrize("label", ["text/event-stream", "application/json", ""])
def test_a_stream_becomes_a_json_answer(gate: Gate, label: str) -> None:
    said = delta("he"), delta("llo", extra=1)
    pieces: list[Piece] = [b": hi\n\n", *said, finish(), usage(7, 3), DONE]
    gate.model.will(stream(*pieces, label=label))
    reply = gate.post(chat())
    assert reply.headers["content-type"] == "application/json"
    assert (reply.text, reply.json["object"]) == ("hello", "chat.completion")
    assert reply.json["usage"]["total_tokens"] == 10
    turn = gate.turn(reply)
    assert (turn["status"], turn["final_output"], turn["total_tokens"]) == ("success", "hello", 10)


@pytest.mark.parametrize(
    ("end", "status", "kind"),
    [
        ([CUT], 502, "upstream_truncated"),
        ([RESET], 502, "upstream_connection"),
        ([HANG], 504, "upstream_timeout"),
        ([], 502, "upstream_truncated"),
        ([DONE], 502, "upstream_truncated"),
        ([{"error": {"message": "no", "code": 503}}], 503, "upstream_error"),
    ],
)
def test_a_stream_that_breaks_is_no_json_answer(
    gate: Gate, end: list[Piece], status: int, kind: str
) -> None:
    gate.model.will(stream(delta("half"), *end))
    reply = gate.post(chat(), f"/s/json-{status}-{kind}{CHAT}")
    assert (reply.status, reply.error["type"]) == (status, kind)
    turn = gate.turn(reply)
    assert (turn["status"], turn["error_type"]) == ("error", kind)
    assert gate.steps(turn)[0]["partial_output"] == "half"


def test_several_choices_are_kept_apart(gate: Gate) -> None:
    gate.model.will(
        stream(
            *[delta(text, index) for text, index in [("a", 0), ("x", 1), ("b", 0), ("y", 1)]],
            chunk({"index": 1, "delta": {}, "finish_reason": "length"}),
            finish(),
            DONE,
        )
    )
    turn = gate.turn(gate.post(chat(stream=True, n=2)))
    assert turn["final_output"] == "ab"
    output = orjson.loads(gate.payload(gate.steps(turn)[0]["output_payload"]))
    contents = [(c["message"]["content"], c["finish_reason"]) for c in output["choices"]]
    assert contents == [("ab", "stop"), ("xy", "length")]
