"""An agent's turn: what the model is asked, what its tools do, what the record tells of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent_gates import GATES, RUNS
from agents_fixtures import AgentGate, a_test_with, agent, agents, asks, requested, tools
from filled_store import selects
from scripted_model import (
    CUT,
    DONE,
    Row,
    delta,
    finish,
    result,
    says,
    stream,
    streams,
    user,
    whole,
)
from servers import DEADLINE
from xgw.config import Retry, Route
from xgw.web.api import agents as api
from xgw.web.security import EVERYONE

SYSTEM = {"role": "system", "content": "Be brief."}
BEGINS = ["session.created", "turn.started", "run.started", "message.added user"]
ASKED = ["step.started llm_call", "step.completed success"]
REQUESTED = [*ASKED, "tool.requested", "message.added assistant"]
ANSWERED = [
    *ASKED,
    "message.added assistant",
    "run.completed success",
    "turn.completed success finished",
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    limited = tools(flood={"max_output_bytes": 1000}, stuck={"timeout_seconds": 0.05})
    retrying = Route(model="twice", targets=("p1/m",), retry=Retry(max_attempts=2, base_delay_ms=1))
    routes = (Route(model="m", targets=("p1/m",)), retrying)
    folder = tmp_path_factory.mktemp("turns")
    parameters = {"temperature": 0.2, "stop": ["END"]}
    named = {"a": agent(), "bare": {"model": "m", "parameters": parameters}}
    with agents(folder, tools=limited, routes=routes, agents=named) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


# -- the ordinary way ------------------------------------------------------------------------------


def test_an_answer_is_published_as_it_is_described(gate: AgentGate) -> None:
    gate.model.will(streams("Hel", "lo"))
    answer = gate.say("hi")
    turn = gate.turn(answer)
    usage = {"input": 7, "output": 3, "cache": None, "reasoning": None, "total": 10}
    assert answer == {
        "sessionId": turn["session_id"],
        "turnId": turn["id"],
        "runId": gate.gate.run(turn)["id"],
        "message": {"role": "assistant", "content": "Hello"},
        "status": "success",
        "error": None,
        "timestamp": answer["timestamp"],
        "completedAt": answer["completedAt"],
        "iterations": 1,
        "durationMs": turn["latency_ms"],
        "tokenUsage": {**usage, "sessionTotal": 10},
        "costUsd": None,
        "toolCalls": [],
        "attempts": 1,
        "finishReason": "stop",
        "limitReached": None,
    }
    assert answer["timestamp"] <= answer["completedAt"]
    assert gate.story(answer) == [*BEGINS, *ANSWERED]
    assert (turn["agent_name"], turn["endpoint"], turn["exclusive_key"]) == ("a", None, None)


def test_the_model_is_asked_with_the_agents_parameters_and_no_tools_it_has_not(
    gate: AgentGate,
) -> None:
    gate.model.will(says())
    gate.say("hi", name="bare")
    assert gate.model.asked[0].json == {
        "model": "m",
        "messages": [user("hi")],
        "temperature": 0.2,
        "stop": ["END"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_message_may_ask_for_another_model_and_other_parameters(gate: AgentGate) -> None:
    gate.model.will(says())
    answer = gate.say("hi", name="bare", model="p1/other", parameters={"temperature": 1})
    sent = gate.model.asked[0].json
    assert (sent["model"], sent["temperature"], sent["stop"]) == ("other", 1, ["END"])
    kept = orjson.loads(gate.gate.payload(gate.turn(answer)["config_snapshot"]))
    assert (kept["model"], kept["parameters"]["temperature"]) == ("p1/other", 1)


def test_a_tool_is_run_and_its_result_goes_back(gate: AgentGate) -> None:
    called = ("c1", "look", '{"city": "Oslo"}')
    gate.model.will(asks(called), streams("21 it is"))
    answer = gate.say("weather?")
    returned = '{"city":"Oslo","degrees":21,"unit":"c"}'
    assert gate.sent(1) == [SYSTEM, user("weather?"), requested(called), result("c1", returned)]
    assert gate.story(answer) == [
        *BEGINS,
        *REQUESTED,
        "step.started tool_call",
        "step.completed success",
        "message.added tool",
        "tool.results_sent",
        *ANSWERED,
    ]
    (call,) = answer["toolCalls"]
    assert (call["id"], call["name"], call["arguments"]) == ("c1", "look", {"city": "Oslo"})
    assert (call["success"], call["error"]) == (True, None)
    asked, tool, _ = gate.steps(answer)
    assert (tool["parent_step_id"], tool["status"]) == (asked["id"], "success")
    assert gate.gate.payload(tool["output_payload"]) == returned.encode()
    assert (answer["iterations"], answer["tokenUsage"]["total"]) == (2, 25)


def test_what_a_model_is_offered_comes_from_hints_and_docstring(gate: AgentGate) -> None:
    gate.model.will(says())
    gate.say("hi")
    offered = {t["function"]["name"]: t["function"] for t in gate.model.asked[0].json["tools"]}
    assert offered["look"] == {
        "name": "look",
        "description": "Look at the weather.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The name of a city."},
                "unit": {
                    "type": "string",
                    "enum": ["c", "f"],
                    "default": "c",
                    "description": "Celsius or Fahrenheit.",
                },
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    }
    assert offered["anything"]["parameters"]["additionalProperties"] is True


def test_tools_asked_for_together_run_together_and_answer_in_order(gate: AgentGate) -> None:
    """Each of the two only returns once the other runs."""
    calls = (("c1", "first", ""), ("c2", "second", "{}"))
    gate.model.will(asks(*calls), says())
    answer = gate.say("both")
    assert gate.sent(1)[-2:] == [result("c1", "one"), result("c2", "two")]
    story = gate.story(answer)
    together = [line for line in story if "tool" in line and not line.startswith("tool.")]
    assert together == ["step.started tool_call"] * 2 + ["message.added tool"] * 2


def test_the_next_turn_gets_the_whole_history(gate: AgentGate) -> None:
    called = ("c1", "note", '{"text": "x"}')
    gate.model.will(asks(called), streams("done"), says())
    first = gate.say("keep x")
    gate.say("again", first["sessionId"])
    assert gate.sent(2) == [
        SYSTEM,
        user("keep x"),
        requested(called),
        result("c1", "kept: x"),
        {"role": "assistant", "content": "done"},
        user("again"),
    ]
    calls = gate.steps(first, "llm_call")
    assert [step["history"] for step in calls] == [None, "appended"]


def test_reasoning_goes_back_as_it_came(gate: AgentGate) -> None:
    details = [{"type": "reasoning.encrypted", "data": "b64=="}]
    thought = delta(reasoning="hm", reasoning_details=details)
    call = {"index": 0, "id": "c1", "type": "function"}
    call |= {"function": {"name": "note", "arguments": '{"text": "t"}'}}
    last: Row = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    gate.model.will(stream(thought, delta(tool_calls=[call]), last), says())
    gate.say("think")
    assert gate.sent(1)[2]["reasoning"] == "hm"
    assert gate.sent(1)[2]["reasoning_details"] == details


def test_ids_that_come_again_in_another_round_are_other_calls(gate: AgentGate) -> None:
    gate.model.will(
        asks(("call_0", "look", '{"city": "A"}')), asks(("call_0", "note", '{"text": "b"}')), says()
    )
    answer = gate.say("go")
    assert RUNS == ["look A", "note b"]
    assert [m["role"] for m in gate.sent(2)] == [
        *("system", "user", "assistant", "tool", "assistant", "tool")
    ]
    assert gate.sent(2)[-1] == result("call_0", "kept: b")
    one, other = gate.steps(answer, "tool_call")
    assert one["parent_step_id"] != other["parent_step_id"]


def test_calls_of_one_answer_with_the_same_id_are_told_apart(gate: AgentGate) -> None:
    calls = [
        {
            "id": "c",
            "type": "function",
            "function": {"name": "note", "arguments": f'{{"text":"{t}"}}'},
        }
        for t in "ab"
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    asked = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    gate.model.will(whole(asked), says())
    gate.say("go")
    assistant, one, other = gate.sent(1)[-3:]
    named = [call["id"] for call in assistant["tool_calls"]]
    assert named == [one["tool_call_id"], other["tool_call_id"]]
    assert len(set(named)) == 2
    assert (one["content"], other["content"]) == ("kept: a", "kept: b")


# -- what goes wrong with tools --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("loook", "{}", "there is no tool 'loook'; the tools are: look, note, boom"),
        ("look", '{"city": ', "the arguments are not a JSON object: it was not run"),
        ("look", '["Oslo"]', "the arguments are not a JSON object: it was not run"),
        ("look", "{}", "the arguments do not fit: city: Field required"),
        (
            "look",
            '{"city": "A", "planet": 1}',
            "do not fit: planet: Extra inputs are not permitted",
        ),
        ("boom", "{}", "RuntimeError: disk on fire"),
        ("quit", "{}", "SystemExit: 3"),
        ("mute", "{}", "Unspeakable"),
        ("garble", "{}", "RuntimeError: ?xxx"),
        ("garble", "{}", "xxx… (cut: it has 5015 characters)"),
        ("flood", "{}", "the result has 5000 bytes, more than the 1000 that are allowed"),
        ("stuck", "{}", "it took longer than 0.05 s"),
    ],
)
def test_a_call_that_fails_is_told_to_model_and_reader(
    gate: AgentGate, name: str, arguments: str, error: str
) -> None:
    gate.model.will(asks(("c1", name, arguments)), says("so be it"))
    answer = gate.say("go")
    back = gate.sent(1)[-1]
    assert back["tool_call_id"] == "c1"
    assert back["content"].startswith("Error: ")
    assert error in back["content"]
    assert gate.sent(1)[-2]["tool_calls"][0]["function"]["arguments"] == arguments
    assert RUNS == []
    (tool,) = gate.steps(answer, "tool_call")
    assert (tool["status"], tool["error_type"]) == ("error", "tool_error")
    assert error in tool["error_message"]
    assert answer["toolCalls"][0]["success"] is False
    assert (answer["status"], answer["message"]["content"]) == ("success", "so be it")
    GATES["free"].set()


def test_one_that_fails_takes_nothing_from_the_others(gate: AgentGate) -> None:
    calls = (("1", "look", '{"city":"A"}'), ("2", "boom", "{}"), ("3", "note", '{"text":"t"}'))
    gate.model.will(asks(*calls), says())
    gate.say("go")
    back = gate.sent(1)[-3:]
    assert [m["tool_call_id"] for m in back] == ["1", "2", "3"]
    assert back[1]["content"] == "Error: RuntimeError: disk on fire"
    assert back[2]["content"] == "kept: t"


def test_a_call_that_was_cut_off_is_never_run(gate: AgentGate) -> None:
    whole_one, half = ("c1", "note", '{"text": "whole"}'), ("c2", "note", '{"text": "half"}')
    gate.model.will(asks(whole_one, half, reason="length"), says())
    answer = gate.say("go")
    assert RUNS == ["note whole"]
    assert "was not run" in gate.sent(1)[-1]["content"]
    assert [call["success"] for call in answer["toolCalls"]] == [True, False]


def test_a_finish_reason_without_calls_ends_the_turn(gate: AgentGate) -> None:
    gate.model.will(streams("", reason="tool_calls"))
    answer = gate.say("go")
    assert (answer["status"], answer["iterations"]) == ("success", 1)


def test_asynchronous_functions_and_those_of_any_properties_are_tools(gate: AgentGate) -> None:
    calls = (("1", "later", '{"number": 4}'), ("2", "anything", '{"b": 1, "a": "x"}'))
    gate.model.will(asks(*calls), says())
    gate.say("go")
    assert [m["content"] for m in gate.sent(1)[-2:]] == ["5", "a=x, b=1"]


# -- what goes wrong upstream ----------------------------------------------------------------------


def test_an_upstream_that_fails_ends_the_turn_and_not_the_session(gate: AgentGate) -> None:
    gate.model.will(whole({"error": {"message": "no"}}, status="500 No"), says("back"))
    answer = gate.say("one")
    assert answer["status"] == "error"
    assert answer["error"] == {"type": "upstream_error", "message": "no"}
    assert gate.story(answer)[-5:] == [
        "step.started llm_call",
        "llm.error upstream_error give_up",
        "step.completed error",
        "run.completed error",
        "turn.completed error provider",
    ]
    again = gate.say("two", answer["sessionId"])
    assert again["message"]["content"] == "back"
    assert gate.sent(1)[1:] == [user("one"), user("two")]


def test_attempts_are_steps_of_one_iteration(gate: AgentGate) -> None:
    gate.model.will(whole({"error": {"message": "no"}}, status="503 No"), streams("ok"))
    answer = gate.say("hi", model="twice")
    assert (answer["attempts"], answer["iterations"]) == (2, 1)
    assert gate.story(answer)[4:9] == [
        "step.started llm_call",
        "llm.error upstream_error retry",
        "step.completed error",
        "step.started llm_call",
        "step.completed success",
    ]


def test_an_answer_that_breaks_off_is_kept_and_its_half_call_is_not_run(gate: AgentGate) -> None:
    call = {"index": 0, "id": "c1", "type": "function"}
    call |= {"function": {"name": "note", "arguments": '{"text": "x"}'}}
    gate.model.will(stream(delta("I wi"), delta(tool_calls=[call]), CUT), says())
    answer = gate.say("one")
    assert answer["error"]["type"] == "upstream_truncated"
    assert answer["message"]["content"] == "I wi"
    assert RUNS == []
    gate.say("two", answer["sessionId"])
    assert gate.sent(1)[1:] == [user("one"), {"role": "assistant", "content": "I wi"}, user("two")]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "message"),
        ({"message": " "}, "message"),
        ({"message": 5}, "message"),
        ({"message": "x", "mode": "chess"}, "mode"),
        ({"message": "x", "ifBusy": "maybe"}, "ifBusy"),
        ({"message": "x", "wait": -1}, "wait"),
        ({"message": "x", "parameters": {"stream": False}}, "parameters"),
        ({"message": "x", "session_id": "s"}, "session_id"),
    ],
)
def test_a_field_that_does_not_fit_is_named(gate: AgentGate, body: Any, param: str) -> None:
    reply = gate.post("/agents/a/chat", body)
    assert (reply.status, reply.error["param"]) == (422, param)


def test_no_agent_and_no_model_are_404(gate: AgentGate) -> None:
    gate.model.always(whole({"data": []}))
    before = len(gate.gate.sessions())
    assert gate.chat("x", name="nobody").error["code"] == "agent_not_found"
    assert gate.chat("x", model="unknown").error["code"] == "model_not_found"
    assert len(gate.gate.sessions()) == before


def test_files_that_tools_are_in_may_be_anywhere(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text('def hello(name: str):\n    return f"hello {name}"\n')
    table = {"hello": {"python": f"{tmp_path / 'mine.py'}:hello"}}
    named = {"a": {"model": "m", "tools": ("hello", "calculator")}}
    with agents(tmp_path, agents=named, tools=table) as gate:
        calls = (("1", "hello", '{"name":"Ada"}'), ("2", "calculator", '{"expression":"17*23"}'))
        gate.model.will(asks(*calls), says())
        gate.say("go")
        assert [m["content"] for m in gate.sent(1)[-2:]] == ["hello Ada", "391"]
        gate.model.check()


def test_a_turn_that_ends_while_its_answer_is_read_is_told_as_it_was(gate: AgentGate) -> None:
    app, over = gate.gate.app, threading.Event()
    gate.model.will(stream(delta("so far"), over, finish(), DONE))
    with app.test_request_context("/", environ_base={"xgw.caller": EVERYONE}):
        turn = api.ask(gate.gate.services.everyone["a"], {"message": "hi"})

        def end() -> None:
            over.set()
            assert turn.done.wait(DEADLINE)

        with selects(end):
            answer = api._answer(turn)
    assert (answer["status"], answer["runStatus"]) == ("running", "running")
