"""JSON that is legal, or nearly, and strange: it passes, and is recorded as well as it can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from gateway_fixtures import Gate, a_test_of, gate_and_model
from scripted_model import DONE, chat, says, stream, whole
from xgw.cli import main
from xgw.store.models import Message, Step, Turn

BIG = b"12345678901234567890123456789012"
DEEP = b"[" * 150 + b"]" * 150
ODD: dict[str, bytes] = {
    "big": BIG,
    "not a number": b"[NaN," + BIG + b"]",
    "half a character": b'["\\ud800",' + BIG + b",1e999]",
    "deep": DEEP,
    "null character": b'"\\u0000"',
    "an object": b'{"a":{"b":[1.0]}}',
}
ANSWERED: dict[str, bytes] = {
    **ODD,
    "deeper": b'{"a":NaN,"b":' + b"[" * 400 + b"]" * 400 + b"}",
    "no UTF-8": b'"\xff"',
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("odd")) as gate:
        yield gate
        assert gate.all(Turn, Turn.status == "running") == []
        assert len(gate.all(Step)) == len(gate.all(Turn))
        assert len(gate.all(Message)) > len(gate.all(Turn))


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def counts(odd: bytes) -> bytes:
    return b'{"prompt_tokens":1,"completion_tokens":%s,"total_tokens":2,"x":%s}' % (BIG, odd)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("odd", ANSWERED)
def test_odd_answers(gate: Gate, odd: str, streamed: bool) -> None:
    value = ANSWERED[odd]
    message = b'{"role":"assistant","content":"a","deep":%s,"tool_calls":%s}' % (value, value)
    choice = b'{"index":0,"message":%s,"finish_reason":"stop","more":%s}' % (message, value)
    gate.model.will(whole(b'{"id":"c","choices":[%s],"usage":%s}' % (choice, counts(value))))
    reply = gate.post(chat(stream=streamed))
    turn = gate.turn(reply)
    assert (reply.status, turn["status"], turn["final_output"]) == (200, "success", "a")
    assert (turn["input_tokens"], turn["output_tokens"]) == (1, None)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("odd", ANSWERED)
def test_odd_events(gate: Gate, odd: str, streamed: bool) -> None:
    value = ANSWERED[odd]
    said = b'{"content":"a","odd":%s,"tool_calls":%s}' % (value, value)
    choice = b'{"index":0,"delta":%s,"finish_reason":"stop","more":%s}' % (said, value)
    event = b'data: {"id":"c","choices":[%s],"usage":%s}\n\n' % (choice, counts(value))
    gate.model.will(stream(event, DONE))
    reply = gate.post(chat(stream=streamed))
    turn = gate.turn(reply)
    assert (reply.status, turn["status"], turn["final_output"]) == (200, "success", "a")


@pytest.mark.parametrize("odd", [name for name in ODD if name != "not a number"])
def test_odd_requests(gate: Gate, odd: str) -> None:
    value = ODD[odd]
    tool = b'{"type":"function","function":{"name":"f","x":%s}}' % value
    strange = b'{"role":"user","content":[%s],"tool_calls":%s,"name":%s}' % ((value,) * 3)
    body = (
        b'{"model":"m","x":%s,"metadata":{"m":%s},"tools":[%s,%s],"user":%s,'
        b'"messages":[{"role":"user","content":"a","odd":%s},%s]}'
    ) % (value, value, tool, value, value, value, strange)
    gate.model.will(says())
    reply = gate.post(body)
    turn = gate.turn(reply)
    assert (reply.status, turn["status"]) == (200, "success")
    assert gate.model.asked[-1].body == body
    assert gate.payload(turn["input_payload"]) == body
    assert len(gate.messages(turn)) == 3


@pytest.mark.parametrize("odd", [5, True, {"a": 5}, [5], [[]]])
def test_what_is_of_another_kind_is_shown_all_the_same(gate: Gate, odd: Any) -> None:
    answers = {"role": "tool", "tool_call_id": odd, "name": odd, "content": odd}
    tool = {"type": odd, "function": {"name": odd, "description": odd, "parameters": odd}}
    choice = {"index": odd, "message": {"role": "assistant", "content": "a"}, "finish_reason": odd}
    for tools in (odd, [odd, tool]):
        gate.model.will(whole({"choices": [choice, choice]}))
        turn = gate.turn(gate.post({**chat("a"), "messages": [answers], "tools": tools}))
        for format in ("markdown", "html", "openai", "curl", "python"):
            assert gate.get(f"/export/turns/{turn['id']}?format={format}").status == 200
        (step,) = gate.all(Step, Step.turn_id == turn["id"])
        for ref in (turn["id"], step["id"]):
            arguments = ["show", ref, "--full", "--db", str(gate.store.path)]
            shown = CliRunner().invoke(main, arguments)
            assert (shown.exit_code, shown.exception) == (0, None)
