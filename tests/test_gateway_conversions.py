"""Answers of another kind than was asked for, and answers of several choices."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest

from gateway_fixtures import CHAT, Gate, a_test_of, gate_and_model
from scripted_model import (
    CUT,
    DONE,
    HANG,
    RESET,
    Piece,
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
