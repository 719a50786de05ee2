"""Tools that the client runs: how their results find the turn that waits, and its steps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model
from scripted_model import (
    CUT,
    DONE,
    HANG,
    Row,
    asks_for,
    call,
    chat,
    chunk,
    completion,
    delta,
    event,
    finish,
    named,
    result,
    said,
    says,
    stream,
    streams,
    user,
    whole,
)
from xgw.config import Gateway

WAITS = ["step.completed success", "tool.requested", "message.added assistant"]
GOES_ON = ["run.updated running", "step.completed success", "message.added tool"]
ENDED = [
    "step.completed success",
    "message.added assistant",
    "run.completed success",
    "turn.completed success finished",
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("tools")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def asked(*call_ids: str) -> list[Row]:
    """The conversation up to the answer that asks for these tools."""
    return [user("look"), said(None, *map(call, call_ids))]


# -- the ordinary way ------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_and_its_result_are_one_turn(gate: Gate, streamed: bool) -> None:
    session = f"tool-{streamed}"
    fields: Row = {"stream": streamed}
    piece = {"index": 0} | call("c1", "look", '{"at": 1}')
    in_pieces = stream(delta(None, tool_calls=[piece]), finish("tool_calls"), b"data: [DONE]\n\n")
    gate.model.will(
        in_pieces if streamed else whole(completion(None, call("c1", "look", '{"at": 1}'))),
        streams("found it") if streamed else says("found it"),
    )
    first = gate.turn(gate.post(chat("look", **fields, **named(session))))
    assert (first["status"], first["ended_at"]) == ("running", None)
    assert gate.run(first)["status"] == "waiting_tool"
    history = [user("look"), said(None, call("c1", "look", '{"at": 1}')), result("c1", "it")]
    turn = gate.turn(gate.post(chat(*history, **fields, **named(session))))
    assert turn["id"] == first["id"]
    assert gate.story(turn) == [
        "session.created",
        "turn.started",
        "run.started",
        "message.added user",
        "step.started llm_call",
        *WAITS,
        "step.started tool_call",
        "run.updated waiting_tool",
        *GOES_ON,
        "tool.results_sent",
        "step.started llm_call",
        *ENDED,
    ]
    assert (turn["status"], turn["finish_reason"]) == ("success", "stop")
    assert (turn["llm_calls"], turn["tool_calls"], turn["attempts"]) == (2, 1, 2)
    assert turn["busy_ms"] <= turn["latency_ms"]
    model, tool, answer = gate.steps(turn)
    assert [s["step_type"] for s in (model, tool, answer)] == ["llm_call", "tool_call", "llm_call"]
    assert (tool["name"], tool["tool_call_id"], tool["status"]) == ("look", "c1", "success")
    assert tool["parent_step_id"] == model["id"]
    assert tool["started_at"] == model["ended_at"]
    assert tool["ended_at"] == answer["started_at"]
    assert gate.payload(tool["output_payload"]) == b"it"
    assert model["tool_calls"] == [
        {
            "tool_call_id": "c1",
            "name": "look",
            "arguments": '{"at": 1}',
            "arguments_json_valid": True,
            "incomplete": False,
        }
    ]
    kinds = [(m["role"], m["kind"]) for m in gate.messages(turn)]
    assert kinds == [
        ("user", "message"),
        ("assistant", "message"),
        ("tool", "tool_result"),
        ("assistant", "message"),
    ]


def test_what_the_tool_events_tell(gate: Gate) -> None:
    gate.model.will(whole(completion(None, call("t1", "look", "{bad"))), says())
    gate.post(chat("look", **named("tool-told")))
    turn = gate.turn(gate.post(chat(*asked("t1"), result("t1", "it"), **named("tool-told"))))
    told = {event["type"]: event["payload"] for event in gate.events(turn)[:-4]}
    assert told["tool.requested"]["calls"] == [
        {
            "tool_call_id": "t1",
            "name": "look",
            "arguments": "{bad",
            "arguments_json_valid": False,
        }
    ]
    assert told["tool.results_sent"]["tool_call_ids"] == ["t1"]
    tool = next(
        e["payload"] for e in gate.events(turn) if e["payload"].get("step_type") == "tool_call"
    )
    assert (tool["tool_call_id"], tool["arguments"]) == ("t1", "{bad")
    ended = next(e["payload"] for e in gate.events(turn) if e["payload"].get("output"))
    assert (ended["success"], ended["output"], ended["error"]) == (True, "it", None)


def test_rounds_of_tools_are_one_turn(gate: Gate) -> None:
    gate.model.will(asks_for("r1"), asks_for("r2"), says("done"))
    history = [user("look")]
    for call_id in ("r1", "r2", None):
        gate.post(chat(*history, **named("rounds")))
        if call_id:
            history += [said(None, call(call_id)), result(call_id)]
    (turn,) = gate.turns("rounds")
    assert (turn["llm_calls"], turn["tool_calls"], turn["status"]) == (3, 2, "success")
    assert [m["role"] for m in gate.messages(turn)] == [
        *["user", "assistant", "tool", "assistant", "tool", "assistant"]
    ]
    assert [s["history"] for s in gate.steps(turn, "llm_call")] == [None, "appended", "appended"]


# -- several tools ---------------------------------------------------------------------------------


def test_parallel_tools_answered_one_after_the_other(gate: Gate) -> None:
    gate.model.will(asks_for("p1", "p2"), says("so far"), says("all"))
    gate.post(chat("look", **named("partly")))
    history = [*asked("p1", "p2"), result("p2", "second")]
    turn = gate.turn(gate.post(chat(*history, **named("partly"))))
    assert gate.run(turn)["status"] == "waiting_tool"
    status = {s["tool_call_id"]: s["status"] for s in gate.steps(turn, "tool_call")}
    assert status == {"p1": "running", "p2": "success"}
    history += [said("so far"), result("p1", "first")]
    turn = gate.turn(gate.post(chat(*history, **named("partly"))))
    assert gate.story(turn)[5:] == [
        *WAITS,
        *["step.started tool_call"] * 2,
        "run.updated waiting_tool",
        *[*GOES_ON, "tool.results_sent", "step.started llm_call"],
        *["step.completed success", "message.added assistant", "run.updated waiting_tool"],
        *[*GOES_ON, "tool.results_sent", "step.started llm_call"],
        *ENDED,
    ]
    assert [len(gate.turns("partly")), turn["tool_calls"], turn["llm_calls"]] == [1, 2, 3]


def test_calls_of_one_answer_that_come_back_one_after_the_other(gate: Gate) -> None:
    gate.model.will(asks_for("o1", "o2"), asks_for("o3", "o4"), says("done"))
    place = named("one by one")
    history: list[Row] = [user("look")]
    gate.post(chat(*history, **place))
    for pair in (("o1", "o2"), ("o3", "o4")):
        for call_id in pair:
            history += [said(None, call(call_id)), result(call_id, f"by {call_id}")]
        turn = gate.turn(gate.post(chat(*history, **place)))
    assert (turn["status"], turn["llm_calls"], turn["tool_calls"]) == ("success", 3, 4)
    tools = gate.steps(turn, "tool_call")
    assert [(s["tool_call_id"], s["status"]) for s in tools] == [
        (f"o{n}", "success") for n in range(1, 5)
    ]
    assert [m["content"] for m in gate.messages(turn) if m["role"] == "tool"] == [
        f"by o{n}" for n in range(1, 5)
    ]


def test_results_of_several_tools_in_one_request(gate: Gate) -> None:
    gate.model.will(asks_for("q1", "q2"), says())
    gate.post(chat("look", **named("both")))
    history = [*asked("q1", "q2"), result("q2"), result("q1")]
    turn = gate.turn(gate.post(chat(*history, **named("both"))))
    assert gate.story(turn)[11:] == [
        "run.updated running",
        *["step.completed success", "message.added tool"] * 2,
        "tool.results_sent",
        "step.started llm_call",
        *ENDED,
    ]
    assert [m["tool_call_id"] for m in gate.messages(turn) if m["role"] == "tool"] == ["q2", "q1"]


def test_results_with_a_user_message_continue(gate: Gate) -> None:
    gate.model.will(asks_for("u1"), says())
    gate.post(chat("look", **named("with-user")))
    gate.post(chat(*asked("u1"), result("u1"), user("and hurry"), **named("with-user")))
    (turn,) = gate.turns("with-user")
    roles = [m["role"] for m in gate.messages(turn)]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]
    assert turn["user_input"] == "look"


# -- late, unknown, repeated -----------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_calls_of_one_answer_that_share_an_id_are_a_step_each(gate: Gate, streamed: bool) -> None:
    calls = [call("look", "look", f'{{"at": {n}}}') for n in range(2)]
    pieces = [{"index": n} | each for n, each in enumerate(calls)]
    in_pieces = stream(delta(None, tool_calls=pieces), finish("tool_calls"), DONE)
    gate.model.will(in_pieces if streamed else whole(completion(None, *calls)), says("done"))
    place = named(f"alike-{streamed}")
    first = gate.turn(gate.post(chat("look", stream=streamed, **place)))
    awaited = gate.steps(first, "tool_call")
    assert [s["metadata"]["arguments"] for s in awaited] == ['{"at": 0}', '{"at": 1}']
    history = [user("look"), said(None, *calls), result("look", "same"), result("look", "same")]
    turn = gate.turn(gate.post(chat(*history, **place)))
    assert (turn["status"], turn["tool_calls"], turn["llm_calls"]) == ("success", 2, 2)
    tools = gate.steps(turn, "tool_call")
    assert [s["id"] for s in tools] == [s["id"] for s in awaited]
    assert [s["status"] for s in tools] == ["success"] * 2
    assert [m["role"] for m in gate.messages(turn)] == [
        *("user", "assistant", "tool", "tool", "assistant")
    ]


def test_calls_that_say_index_0_and_one_id_are_told_apart(gate: Gate) -> None:
    calls = [call("c1", "look", '{"at":1}') | {"index": 0}, call("c1", "find") | {"index": 0}]
    deltas = [delta(tool_calls=[one]) for one in calls]
    gate.model.will(stream(*deltas, finish("tool_calls"), DONE))
    reply = gate.post(chat(stream=True, **named("index-0-one-id")))
    seen = [orjson.loads(data)["choices"][0]["delta"] for data in reply.events[:2]]
    assert [one["tool_calls"][0]["index"] for one in seen] == [0, 1]
    (step, *_) = gate.steps(gate.turn(reply))
    assert [(c["name"], c["arguments"]) for c in step["tool_calls"]] == [
        ("look", '{"at":1}'),
        ("find", "{}"),
    ]


def test_a_name_that_comes_with_the_finish_reason_brings_its_call_once(gate: Gate) -> None:
    first = delta(tool_calls=[call("c1", "", '{"at":1}') | {"index": 0}])
    named_late = {"tool_calls": [{"index": 0, "function": {"name": "look"}}]}
    last = {"index": 0, "delta": named_late, "finish_reason": "tool_calls"}
    gate.model.will(stream(first, chunk(last), DONE))
    reply = gate.post(chat(stream=True))
    choices = [orjson.loads(data)["choices"][0] for data in reply.events[:-1]]
    seen = [one for choice in choices for one in choice["delta"].get("tool_calls", [])]
    assert [(c["id"], c["function"]) for c in seen] == [
        ("c1", {"name": "look", "arguments": '{"at":1}'})
    ]
    assert choices[-1]["finish_reason"] == "tool_calls"


def test_the_object_of_an_old_function_call_is_recorded(gate: Gate) -> None:
    old = delta(function_call={"name": "look", "arguments": {"at": 1}})
    gate.model.will(stream(old, finish("function_call"), DONE))
    reply = gate.post(chat(stream=True))
    assert reply.body == event(old) + event(finish("function_call")) + DONE
    (step,) = gate.steps(gate.turn(reply))
    assert [(c["name"], c["arguments"]) for c in step["tool_calls"]] == [("look", '{"at":1}')]


def test_a_call_that_is_asked_for_again_while_it_is_awaited_is_one(gate: Gate) -> None:
    gate.model.will(asks_for("again"), asks_for("again"), says("done"))
    for _ in range(2):  # the client has not got the first answer
        gate.post(chat("look", **named("twice", "t")))
    turn = gate.turn(gate.post(chat(*asked("again"), result("again"), **named("twice", "t"))))
    assert (turn["status"], turn["tool_calls"]) == ("success", 1)


@pytest.mark.parametrize("ends", ["fails", "says nothing", "is cut short"])
def test_a_user_message_after_results_that_came_before_begins_a_turn(gate: Gate, ends: str) -> None:
    second = {
        "fails": whole({"error": {"message": "down"}}, status="503 Down"),
        "says nothing": says(""),
        "is cut short": stream(delta("so f"), CUT),
    }[ends]
    gate.model.will(asks_for("u1"), second, says("next"), says("again"))
    place = named(f"moved on: {ends}")
    history = [*asked("u1"), result("u1")]
    gate.post(chat("look", **place))
    first = gate.turn(gate.post(chat(*history, stream=ends == "is cut short", **place)))
    # The client has no answer to keep.
    after = gate.turn(gate.post(chat(*history, user("something else"), **place)))
    assert (after["turn_index"], after["user_input"]) == (1, "something else")
    assert (after["status"], after["final_output"]) == ("success", "next")
    assert [m["role"] for m in gate.messages(after)] == ["user", "assistant"]
    assert gate.turns(f"moved on: {ends}")[0] == first
    # Asked for once more, the answer to the results is the first turn's all the same.
    assert gate.turn(gate.post(chat(*history, **place)))["id"] == first["id"]


def test_a_user_message_instead_of_a_result_supersedes(gate: Gate) -> None:
    gate.model.will(asks_for("v1", "v2"), says("wait"), says("well"))
    gate.post(chat("look", **named("instead")))
    partly = [*asked("v1", "v2"), result("v1")]
    gate.post(chat(*partly, **named("instead")))
    gate.post(chat(*partly, user("never mind"), **named("instead")))
    old, new = gate.turns("instead")
    assert (old["status"], old["ended_by"]) == ("cancelled", "superseded")
    assert (new["status"], new["user_input"]) == ("success", "never mind")


def outcomes(gate: Gate, turn: Row) -> dict[str, tuple[str, str | None]]:
    """How the tool steps of a turn ended, by the ids of their calls."""
    steps = gate.steps(turn, "tool_call")
    return {s["tool_call_id"]: (s["status"], s["error_type"]) for s in steps}


def test_a_result_that_was_answered_elsewhere_is_in_the_history(gate: Gate) -> None:
    gate.model.will(asks_for("e1", "e2"), says("next"))
    gate.post(chat("look", **named("elsewhere")))
    history = [*asked("e1", "e2"), result("e1", "it"), said("found it")]
    gate.post(chat(*history, user("and now?"), **named("elsewhere")))
    old, new = gate.turns("elsewhere")
    assert (old["status"], old["ended_by"]) == ("cancelled", "superseded")
    assert outcomes(gate, old) == {"e1": ("success", None), "e2": ("cancelled", "no_result")}
    assert gate.payload(gate.steps(old, "tool_call")[0]["output_payload"]) == b"it"
    assert gate.story(old)[-4:] == [
        "step.completed success",
        "step.completed cancelled",
        "run.completed cancelled",
        "turn.completed cancelled superseded",
    ]
    assert (new["status"], new["user_input"]) == ("success", "and now?")
    assert [m["role"] for m in gate.messages(new)] == ["user", "assistant"]


def test_a_result_is_in_a_history_that_the_client_had_shortened_before(gate: Gate) -> None:
    gate.model.will(asks_for("s1"), asks_for("s2"), says("next"))
    old = [user("before"), said("yes"), user("then"), said("so"), user("more"), said("well")]
    gate.post(chat(*old, user("look"), **named("shorter")))
    history = [*asked("s1"), result("s1")]
    gate.post(chat(*history, **named("shorter")))
    history += [said(None, call("s2")), result("s2", "it"), said("found it")]
    gate.post(chat(*history, user("and now?"), **named("shorter")))
    old_turn, new = gate.turns("shorter")
    assert outcomes(gate, old_turn) == {"s1": ("success", None), "s2": ("success", None)}
    assert gate.payload(gate.steps(old_turn, "tool_call")[1]["output_payload"]) == b"it"
    assert (new["status"], new["user_input"]) == ("success", "and now?")


def test_a_turn_whose_results_are_in_the_history_of_another_has_ended_well(gate: Gate) -> None:
    """The other one begins with a key, or with a result that nobody here asked for."""
    gate.model.will(asks_for("f1"), says("by key"), asks_for("f2"), says("by result"))
    gate.post(chat("look", **named("by key", "one")))
    history = [*asked("f1"), result("f1"), said("found it")]
    gate.post(chat(*history, user("and now?"), **named("by key", "two")))
    gate.post(chat("look", **named("by result")))
    history = [*asked("f2"), result("f2"), said(None, call("unknown")), result("unknown")]
    gate.post(chat(*history, **named("by result")))
    for session, call_id in (("by key", "f1"), ("by result", "f2")):
        old, new = gate.turns(session)
        assert (old["status"], old["finish_reason"]) == ("success", "tool_calls")
        assert outcomes(gate, old) == {call_id: ("success", None)}
        assert new["final_output"] == session


def test_an_old_result_of_the_same_id_is_not_that_of_a_later_call(gate: Gate) -> None:
    gate.model.will(asks_for("call_0"), says("one"), asks_for("call_0"), says("two"))
    history = [*asked("call_0"), result("call_0"), said("one"), user("again")]
    for upto in (1, 3, 5):
        gate.post(chat(*history[:upto], **named("same id")))
    more = [said(None, call("call_0")), user("never mind")]
    gate.post(chat({"role": "system", "content": "new"}, *history, *more, **named("same id")))
    first, second, _ = gate.turns("same id")
    assert outcomes(gate, first) == {"call_0": ("success", None)}
    assert outcomes(gate, second) == {"call_0": ("cancelled", "no_result")}


def test_results_and_a_user_message_sent_again_go_on(gate: Gate) -> None:
    down = whole({"error": {"message": "down"}}, status="503 Down")
    gate.model.will(asks_for("w1"), down, down, says("there"))
    old = [user("before"), said("yes")]
    new = [*asked("w1"), result("w1"), user("and be brief")]
    gate.post(chat(*old, "look", **named("hinted")))
    for history in ([*old, *new], [*old, *new], new):
        turn = gate.turn(gate.post(chat(*history, **named("hinted"))))
    assert (turn["status"], turn["llm_calls"], turn["tool_calls"]) == ("success", 4, 1)
    assert len(gate.turns("hinted")) == 1


def test_a_late_result_reopens_the_turn_and_adds_a_step(gate: Gate) -> None:
    gate.model.will(asks_for("l1"), says("instead"), says("after all"))
    gate.post(chat("look", **named("late")))
    gate.post(chat("something else", **named("late")))
    turn = gate.turn(gate.post(chat(*asked("l1"), result("l1", "at last"), **named("late"))))
    assert [t["status"] for t in gate.turns("late")] == ["success", "success"]
    assert turn["turn_index"] == 0
    old, added = gate.steps(turn, "tool_call")
    assert (old["status"], old["error_type"]) == ("cancelled", "no_result")
    assert (added["status"], added["tool_call_id"]) == ("success", "l1")
    assert added["metadata"]["late"] is True
    assert gate.payload(added["output_payload"]) == b"at last"
    assert gate.story(turn)[-11:] == [
        "turn.updated tool_result",
        "run.updated running",
        "step.started tool_call",
        "step.completed success",
        "message.added tool",
        "tool.results_sent",
        "step.started llm_call",
        *ENDED,
    ]


def test_a_result_that_nothing_asked_for_begins_a_turn(gate: Gate) -> None:
    gate.model.will(says(), says())
    gate.post(chat("hi", **named("unasked")))
    gate.post(chat(*asked("never"), result("never"), **named("unasked")))
    turns = gate.turns("unasked")
    assert len(turns) == 2
    assert gate.steps(turns[1], "tool_call") == []
    assert [m["kind"] for m in gate.messages(turns[1])] == ["tool_result", "message"]


def test_the_newest_turn_that_asked_gets_the_result(gate: Gate) -> None:
    gate.model.will(asks_for("x1"), says(), asks_for("x1"), says())
    gate.post(chat("one", **named("reused")))
    gate.post(chat(user("one"), said(None, call("x1")), result("x1"), **named("reused")))
    gate.post(chat("two", **named("reused")))
    gate.post(chat(user("two"), said(None, call("x1")), result("x1"), **named("reused")))
    assert [(t["llm_calls"], t["status"]) for t in gate.turns("reused")] == [(2, "success")] * 2


def test_an_unknown_turn_key_ends_the_turn_whose_calls_it_answers(gate: Gate) -> None:
    gate.model.will(asks_for("k1", "k2"), says())
    gate.post(chat("look", **named("keys", "first")))
    gate.post(chat(*asked("k1", "k2"), result("k1"), **named("keys", "second")))
    old, new = gate.turns("keys")
    assert (old["status"], old["ended_by"], old["finish_reason"]) == (
        "success",
        "finished",
        "tool_calls",
    )
    status = {s["tool_call_id"]: (s["status"], s["error_type"]) for s in gate.steps(old)[1:]}
    assert status == {"k1": ("success", None), "k2": ("cancelled", "no_result")}
    assert gate.story(old)[-3:] == [
        "step.completed cancelled",
        "run.completed success",
        "turn.completed success finished",
    ]
    assert (new["turn_key"], new["status"]) == ("second", "success")
    assert [m["role"] for m in gate.messages(new)] == ["tool", "assistant"]


def test_a_turn_key_alone_decides(gate: Gate) -> None:
    gate.model.will(asks_for("d1"), asks_for("d2"), says())
    gate.post(chat("one", **named("decides", "first")))
    gate.post(chat("two", **named("decides", "second")))
    gate.post(chat(*asked("d1"), result("d1"), **named("decides", "second")))
    first, second = gate.turns("decides")
    assert (first["status"], second["llm_calls"]) == ("running", 2)


def test_the_same_request_again_adds_nothing_twice(gate: Gate) -> None:
    down = whole({"error": {"message": "down"}}, status="503 Down")
    gate.model.will(asks_for("s1"), down, says("there"))
    gate.post(chat("look", **named("same")))
    body = chat(*asked("s1"), result("s1"), **named("same"))
    assert [gate.post(body).status, gate.post(body).status] == [503, 200]
    (turn,) = gate.turns("same")
    assert [m["role"] for m in gate.messages(turn)] == ["user", "assistant", "tool", "assistant"]
    assert [s["step_type"] for s in gate.steps(turn)] == ["llm_call", "tool_call"] + [
        "llm_call"
    ] * 2
    assert gate.story(turn)[-7:] == [
        "turn.updated tool_result",
        "run.updated running",
        "step.started llm_call",
        *ENDED,
    ]


def test_the_same_result_in_a_shortened_history_is_known(gate: Gate) -> None:
    full = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    gate.model.will(asks_for("h1"), whole(full, status="400 Bad Request"), says("there"))
    old = [user("before"), said("yes")]
    gate.post(chat(*old, *asked("h1")[:1], **named("shortened")))
    gate.post(chat(*old, *asked("h1"), result("h1"), **named("shortened")))
    turn = gate.turn(gate.post(chat(*asked("h1"), result("h1"), **named("shortened"))))
    assert (turn["status"], turn["llm_calls"], turn["tool_calls"]) == ("success", 3, 1)
    assert [m["role"] for m in gate.messages(turn)][-3:] == ["assistant", "tool", "assistant"]
    assert gate.steps(turn, "llm_call")[-1]["history"] == "rewritten"


def test_an_open_call_takes_a_result_that_an_earlier_one_of_its_id_had(gate: Gate) -> None:
    gate.model.will(asks_for("w1"), asks_for("w1"), says("there"))
    gate.post(chat("look", **named("window")))
    for _ in range(2):  # the client keeps its last messages alone
        turn = gate.turn(gate.post(chat(*asked("w1"), result("w1"), **named("window"))))
    assert (turn["status"], turn["tool_calls"], turn["final_output"]) == ("success", 2, "there")
    tools = gate.steps(turn, "tool_call")
    assert [(s["status"], s["metadata"].get("late")) for s in tools] == [("success", None)] * 2


def test_a_result_after_a_cancel_among_requests_is_a_late_one(gate: Gate) -> None:
    gate.model.will(asks_for("m1", "m2"), stream(delta("so"), HANG), says("after all"))
    gate.post(chat("look", **named("cancelled")))
    partly = gate.open(chat(*asked("m1", "m2"), result("m1"), stream=True, **named("cancelled")))
    partly.until(b"so")
    assert gate.post({}, f"/turns/{gate.turn(partly)['id']}/cancel").status == 200
    partly.rest()
    both = [result("m1"), result("m2", "at last")]
    turn = gate.turn(gate.post(chat(*asked("m1", "m2"), *both, **named("cancelled"))))
    tools = [
        (s["tool_call_id"], s["status"], s["metadata"].get("late", False))
        for s in gate.steps(turn, "tool_call")
    ]
    assert tools == [("m1", "success", False), ("m2", "cancelled", False), ("m2", "success", True)]
    sent = [e["payload"] for e in gate.events(turn) if e["type"] == "tool.results_sent"]
    assert [payload["tool_call_ids"] for payload in sent] == [["m1"], ["m2"]]


def test_an_unknown_turn_key_ends_calls_of_a_turn_that_is_at_work(gate: Gate) -> None:
    rest = threading.Event()
    gate.model.will(
        asks_for("b1", "b2"), stream(delta("one"), rest, finish(), b"data: [DONE]\n\n"), says()
    )
    gate.post(chat("look", **named("at-work", "first")))
    partly = gate.open(chat(*asked("b1", "b2"), result("b1"), stream=True, **named("at-work")))
    partly.until(b"one")
    both = [result("b1"), result("b2")]
    gate.post(chat(*asked("b1", "b2"), *both, **named("at-work", "second")))
    rest.set()
    turn = gate.ended(partly.rest())
    assert (turn["turn_key"], turn["status"], turn["finish_reason"]) == ("first", "success", "stop")
    assert [s["status"] for s in gate.steps(turn, "tool_call")] == ["success"] * 2


# -- calls that make no step -----------------------------------------------------------------------


def test_without_a_session_nothing_is_awaited(gate: Gate) -> None:
    gate.model.will(asks_for("n1"), says())
    turn = gate.turn(gate.post(chat("look")))
    assert gate.story(turn)[3:] == [
        "step.started llm_call",
        *WAITS,
        "run.completed success",
        "turn.completed success finished",
    ]
    assert (turn["finish_reason"], turn["tool_calls"]) == ("tool_calls", 0)
    other = gate.turn(gate.post(chat(*asked("n1"), result("n1"))))
    assert other["id"] != turn["id"]
    assert gate.steps(other, "tool_call") == []


def test_a_call_that_was_cut_short_is_not_awaited(gate: Gate) -> None:
    cut = completion(None, call("i1"), call("i2", arguments='{"a'))
    cut["choices"][0]["finish_reason"] = "length"
    gate.model.will(whole(cut))
    turn = gate.turn(gate.post(chat("look", **named("cut-call"))))
    assert [s["tool_call_id"] for s in gate.steps(turn, "tool_call")] == ["i1"]
    calls = gate.steps(turn)[0]["tool_calls"]
    assert [c["incomplete"] for c in calls] == [False, True]


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_result_of_a_call_that_was_cut_short_continues_its_turn(
    gate: Gate, forgotten: bool
) -> None:
    session = f"cut-answered-{forgotten}"
    cut = completion(None, call("j1", arguments='{"a'))
    cut["choices"][0]["finish_reason"] = "length"
    gate.model.will(whole(cut), says("again"))
    first = gate.turn(gate.post(chat("look", **named(session))))
    assert (first["status"], first["finish_reason"]) == ("success", "length")
    if forgotten:
        gate.services.sessions.forget(first["session_id"])
    history = [user("look"), said(None, call("j1", arguments='{"a')), result("j1", "no JSON")]
    turn = gate.turn(gate.post(chat(*history, **named(session))))
    assert (turn["id"], turn["llm_calls"], turn["final_output"]) == (first["id"], 2, "again")
    (tool,) = gate.steps(turn, "tool_call")
    assert (tool["tool_call_id"], tool["status"]) == ("j1", "success")
    assert gate.payload(tool["output_payload"]) == b"no JSON"


def test_the_wait_for_a_result_ends(tmp_path: Path) -> None:
    with gate_and_model(tmp_path, gateway=Gateway(tool_wait_seconds=0.2)) as gate:
        gate.model.will(asks_for("o1"), says("back"))
        waiting = gate.post(chat("look", **named("overdue")))
        turn = gate.ended(waiting)
        assert (turn["status"], turn["ended_by"], turn["finish_reason"]) == (
            "success",
            "finished",
            "tool_calls",
        )
        tool = gate.steps(turn, "tool_call")[0]
        assert (tool["status"], tool["error_type"]) == ("cancelled", "no_result")
        assert gate.session("overdue")["active_turn_id"] is None
        late = gate.turn(gate.post(chat(*asked("o1"), result("o1"), **named("overdue"))))
        assert (late["id"], late["status"]) == (turn["id"], "success")
        assert (late["finish_reason"], late["final_output"]) == ("stop", "back")
