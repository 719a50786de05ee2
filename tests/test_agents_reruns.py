"""A turn that is run once more: a run beside the others, its context, what is shown of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_gates import GATES, RUNS, wait_for
from agents_fixtures import AgentGate, a_test_with, agent, agents, asks, requested, tools
from api_socket import ApiSocket
from gateway_fixtures import Reply
from scripted_model import Row, result, says, streams, user, whole
from servers import eventually
from xgw.store.models import Event, Message, Run

SYSTEM = {"role": "system", "content": "Be brief."}
NOTE = ("c1", "note", '{"text": "x"}')
LOOK = ("c2", "look", '{"city": "Oslo"}')
SEEN = '{"city":"Oslo","degrees":21,"unit":"c"}'
NO = whole({"error": {"message": "no"}}, status="500 No")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    named = {
        "a": agent(parameters={"temperature": 0.5}),
        "once": agent(limits={"max_iterations": 1}),
    }
    guarded = tools(boom={"approval": "always"})
    folder = tmp_path_factory.mktemp("reruns")
    with agents(folder, agents=named, tools=guarded) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def ask_again(gate: AgentGate, answer: Row, **wanted: Any) -> Reply:
    return gate.post(f"/turns/{answer['turnId']}/runs", wanted)


def again(gate: AgentGate, answer: Row, **wanted: Any) -> Row:
    """The new run of a turn, once it is over."""
    reply = ask_again(gate, answer, **wanted)
    assert reply.status == 201, reply.body
    run = reply.json
    eventually(lambda: gate.gate.all(Run, Run.id == run["id"])[0]["ended_at"])
    gate.ended(answer)
    shown: Row = gate.gate.get(f"/runs/{run['id']}").json
    return shown


def said(text: str) -> Row:
    return {"role": "assistant", "content": text}


# -- beside the old --------------------------------------------------------------------------------


def test_a_turn_is_run_again_beside_what_it_did(gate: AgentGate) -> None:
    gate.model.will(says("one"), says("two"))
    answer = gate.say("hi")
    run = again(gate, answer)
    assert (run["kind"], run["run_index"], run["status"]) == ("rerun", 1, "success")
    assert (run["from_run_id"], run["from_step_id"]) == (answer["runId"], None)
    assert gate.sent(1) == gate.sent(0) == [SYSTEM, user("hi")]
    turn = gate.turn(answer)
    assert (turn["final_output"], turn["exclusive_key"]) == ("two", None)
    assert gate.story(answer)[-7:] == [
        "turn.updated rerun",
        "run.started",
        "step.started llm_call",
        "step.completed success",
        "message.added assistant",
        "run.completed success",
        "turn.completed success finished",
    ]
    shown = gate.gate.get(f"/turns/{answer['turnId']}").json
    assert [one["id"] for one in shown["runs"]] == [answer["runId"], run["id"]]
    told = gate.gate.all(Event, Event.run_id == run["id"], Event.type == "run.started")
    assert told[0]["payload"] == {
        "run_index": 1,
        "kind": "rerun",
        "from": answer["runId"],
        "status": "running",
        "reason": None,
        "checkpoint_at": None,
    }


def test_totals_are_those_of_all_runs(gate: AgentGate) -> None:
    gate.model.will(asks(NOTE), streams("one"), streams("two"))
    answer = gate.say("hi")
    before = gate.turn(answer)
    again(gate, answer, message="shorter")
    turn = gate.turn(answer)
    assert (turn["total_tokens"], turn["llm_calls"], turn["attempts"]) == (35, 3, 3)
    assert before["total_tokens"] == 25
    runs = gate.gate.all(Run, Run.turn_id == turn["id"])
    assert turn["busy_ms"] == sum(run["busy_ms"] for run in runs)
    assert gate.gate.get(f"/sessions/{answer['sessionId']}").json["usage"]["total_tokens"] == 35
    done = gate.gate.all(Event, Event.turn_id == turn["id"], Event.type == "turn.completed")
    assert done[-1]["payload"]["session_total_tokens"] == 35


def test_it_may_be_asked_otherwise(gate: AgentGate) -> None:
    gate.model.will(says("one"), says("two"), says("three"))
    answer = gate.say("hi", parameters={"top_p": 0.5})
    run = again(
        gate,
        answer,
        model="p1/other",
        parameters={"temperature": 1},
        instructions="Be long.",
        message="hello",
    )
    sent = gate.model.asked[1].json
    assert (sent["model"], sent["temperature"], sent["top_p"]) == ("other", 1, 0.5)
    assert sent["messages"] == [{"role": "system", "content": "Be long."}, user("hello")]
    assert run["overrides"] == {
        "mode": "chat",
        "model": "p1/other",
        "parameters": {"top_p": 0.5, "temperature": 1},
        "instructions": "Be long.",
        "reuse": "results",
    }
    assert gate.turn(answer)["user_input"] == "hi"
    gate.say("next", answer["sessionId"])
    assert gate.sent(2) == [SYSTEM, user("hello"), said("two"), user("next")]


def test_its_context_is_the_turns_and_later_turns_have_its_answer(gate: AgentGate) -> None:
    gate.model.will(says("1"), says("2"), says("3"))
    first = gate.say("one", "contexts")
    second = gate.say("two", "contexts")
    gate.say("three", "contexts")
    gate.model.will(says("2 again"), says("4"), says("1 again"), says("5"))
    again(gate, second)
    assert gate.sent(3) == [SYSTEM, user("one"), said("1"), user("two")]
    gate.say("four", "contexts")
    talk = [user("two"), said("2 again"), user("three"), said("3"), user("four")]
    assert gate.sent(4) == [SYSTEM, user("one"), said("1"), *talk]
    again(gate, first, message="first")
    assert gate.sent(5) == [SYSTEM, user("first")]
    gate.say("five", "contexts")
    assert gate.sent(6) == [
        *(SYSTEM, user("first"), said("1 again"), *talk, said("4"), user("five")),
    ]


def test_the_answer_shown_is_that_of_the_newest_success(gate: AgentGate) -> None:
    gate.model.will(says("good"), NO, says("next"))
    answer = gate.say("hi")
    run = again(gate, answer)
    turn = gate.turn(answer)
    assert (run["status"], turn["status"], turn["final_output"]) == ("error", "error", "good")
    gate.say("and", answer["sessionId"])
    assert gate.sent(2) == [SYSTEM, user("hi"), said("good"), user("and")]


def test_a_turn_that_failed_may_succeed(gate: AgentGate) -> None:
    gate.model.will(NO, says("good"))
    answer = gate.say("hi")
    again(gate, answer)
    turn = gate.turn(answer)
    assert (turn["status"], turn["error_type"], turn["final_output"]) == ("success", None, "good")


def test_a_turn_that_never_began_can_be_run(gate: AgentGate) -> None:
    gate.model.will(asks(("c1", "stuck", "{}")))
    first = gate.say("first", "never", wait=0)
    wait_for("stuck runs")
    second = gate.say("second", "never", wait=0)
    gate.cancel(second["turnId"])
    gate.model.will(says("1"), says("2"))
    GATES["free"].set()
    gate.ended(first)
    assert again(gate, second)["status"] == "success"
    assert gate.sent(2)[-1] == user("second")
    turn = gate.turn(second)
    assert (turn["final_output"], turn["latency_ms"] is not None) == ("2", True)


def test_limits_count_for_each_run(gate: AgentGate) -> None:
    gate.model.will(asks(LOOK), says("in one"))
    answer = gate.say("hi", name="once")
    assert answer["limitReached"] == "iterations"
    assert again(gate, answer)["status"] == "success"


# -- tools -----------------------------------------------------------------------------------------


def test_results_are_taken_over_where_the_calls_are_the_same(gate: AgentGate) -> None:
    other = ("c9", "note", '{"text":"y"}')
    same = ("c7", "note", '{ "text": "x" }')
    gate.model.will(asks(NOTE, LOOK), says("one"), asks(same, other), says("two"))
    answer = gate.say("hi")
    run = again(gate, answer)
    assert sorted(RUNS) == ["look Oslo", "note x", "note y"]
    assert gate.sent(3)[-2:] == [result("c7", "kept: x"), result("c9", "kept: y")]
    first = gate.steps(answer, "tool_call")[0]
    taken, anew = [step for step in run["steps"] if step["step_type"] == "tool_call"]
    assert taken["metadata"]["reused_step_id"] == first["id"]
    assert "reused_step_id" not in anew["metadata"]


def test_each_result_is_taken_once(gate: AgentGate) -> None:
    twice = [("1", *NOTE[1:]), ("2", *NOTE[1:])]
    gate.model.will(asks(NOTE), says("one"), asks(*twice), says("two"))
    again(gate, gate.say("hi"), reuse="results")
    assert RUNS == ["note x"] * 2


def test_tools_may_be_run_anew(gate: AgentGate) -> None:
    gate.model.will(asks(NOTE), says("one"), asks(NOTE), says("two"))
    again(gate, gate.say("hi"), reuse="none")
    assert RUNS == ["note x"] * 2


def test_a_result_that_is_taken_over_needs_no_approval(gate: AgentGate) -> None:
    gate.model.will(asks(("c1", "boom", "{}")))
    answer = gate.chat("hi").json
    decided = {"tool_call_id": "c1", "decision": "result", "result": "by hand"}
    gate.model.will(says("one"), asks(("c2", "boom", "{}")), says("two"))
    gate.post(f"/runs/{answer['runId']}/approvals", decided)
    gate.ended(answer)
    assert again(gate, answer)["status"] == "success"
    assert gate.sent(3)[-1] == result("c2", "by hand")


# -- from a step -----------------------------------------------------------------------------------


def worked(gate: AgentGate) -> tuple[Row, list[Row]]:
    """A turn of two rounds of tools, and its steps."""
    gate.model.will(asks(NOTE, LOOK), asks(("c3", "note", '{"text": "z"}')), says("one"))
    answer = gate.say("hi")
    RUNS.clear()
    return answer, gate.steps(answer)


TALK = [SYSTEM, user("hi"), requested(NOTE, LOOK), result("c1", "kept: x"), result("c2", SEEN)]


def test_from_a_model_call_what_was_before_it_stays(gate: AgentGate) -> None:
    answer, steps = worked(gate)
    calls = [step for step in steps if step["step_type"] == "llm_call"]
    gate.model.will(says("two"), says("next"))
    run = again(gate, answer, from_step_id=calls[1]["id"])
    assert (run["from_step_id"], run["from_run_id"]) == (calls[1]["id"], answer["runId"])
    assert gate.sent(3) == TALK
    assert [step["step_type"] for step in run["steps"]] == ["llm_call"]
    gate.say("next", answer["sessionId"])
    assert gate.sent(4) == [*TALK, said("two"), user("next")]
    assert RUNS == []


def test_from_a_step_with_another_message(gate: AgentGate) -> None:
    answer, steps = worked(gate)
    last = [step for step in steps if step["step_type"] == "llm_call"][-1]
    gate.model.will(says("two"))
    again(gate, answer, from_step_id=last["id"], message="hello")
    third = ("c3", "note", '{"text": "z"}')
    assert gate.sent(3) == [
        *(SYSTEM, user("hello"), *TALK[2:], requested(third), result("c3", "kept: z")),
    ]


def test_from_a_tool_call_that_one_and_those_after_it_are_run(gate: AgentGate) -> None:
    answer, steps = worked(gate)
    look = next(step for step in steps if step["name"] == "look")
    gate.model.will(says("two"))
    run = again(gate, answer, from_step_id=look["id"], reuse="none")
    assert RUNS == ["look Oslo"]
    assert gate.sent(3) == TALK
    assert [step["step_type"] for step in run["steps"]] == ["tool_call", "llm_call"]
    assert gate.story(answer)[-8:-5] == [
        *("step.completed success", "message.added tool", "tool.results_sent"),
    ]


def test_from_a_call_that_needs_an_approval_a_person_is_asked_again(gate: AgentGate) -> None:
    gate.model.will(asks(("c1", "boom", "{}")))
    answer = gate.chat("hi").json
    gate.model.will(says("one"))
    path, denied = f"/runs/{answer['runId']}/approvals", {"tool_call_id": "c1", "decision": "deny"}
    gate.post(path, denied)
    gate.ended(answer)
    (tool,) = gate.steps(answer, "tool_call")
    run = ask_again(gate, answer, from_step_id=tool["id"]).json
    assert (run["status"], run["checkpoint"]["next"]) == ("waiting_tool", "decisions")
    assert gate.story(answer)[-4:] == [
        *("turn.updated rerun", "run.started"),
        *("tool.approval_requested", "run.updated waiting_tool"),
    ]
    gate.model.will(says("two"))
    given = {**denied, "decision": "result", "result": "mine"}
    gate.post(f"/runs/{run['id']}/approvals", given)
    assert gate.ended(answer)["final_output"] == "two"
    assert gate.sent(2)[-1] == result("c1", "mine")


def test_a_re_run_of_a_re_run_goes_on_from_that_one(gate: AgentGate) -> None:
    gate.model.will(says("one"), asks(NOTE), says("two"), says("three"))
    answer = gate.say("hi")
    second = again(gate, answer, message="hello")
    last = second["steps"][-1]
    third = again(gate, answer, from_step_id=last["id"])
    assert third["from_run_id"] == second["id"]
    assert gate.sent(3) == [SYSTEM, user("hello"), requested(NOTE), result("c1", "kept: x")]


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"message": " "}, "message"),
        ({"model": 5}, "model"),
        ({"parameters": {"stream": False}}, "parameters"),
        ({"instructions": 5}, "instructions"),
        ({"reuse": "some"}, "reuse"),
        ({"from_step": "x"}, "from_step"),
    ],
)
def test_a_field_that_does_not_fit_is_named(gate: AgentGate, body: Row, param: str) -> None:
    gate.model.will(says())
    reply = ask_again(gate, gate.say("hi"), **body)
    assert (reply.status, reply.error["param"]) == (422, param)


def test_what_cannot_be_run_again_is_refused(gate: AgentGate) -> None:
    gate.model.will(asks(("c1", "stuck", "{}")))
    answer = gate.say("hi", "refusals", wait=0)
    wait_for("stuck runs")
    assert ask_again(gate, answer).error["code"] == "session_busy"
    gate.model.will(says("one"))
    GATES["free"].set()
    gate.ended(answer)
    assert ask_again(gate, answer, from_step_id="step_0").error["code"] == "step_not_found"
    gate.model.always(whole({"data": []}))
    assert ask_again(gate, answer, model="unknown").error["code"] == "model_not_found"
    assert ask_again(gate, {"turnId": "turn_0"}).error["code"] == "turn_not_found"
    gate.model.will(says("proxied"))
    proxied = gate.gate.post({"model": "p1/m", "messages": [user("x")]})
    reply = ask_again(gate, {"turnId": gate.gate.turn(proxied)["id"]})
    assert (reply.status, reply.error["code"]) == (409, "gateway_turn")
    assert len(gate.gate.all(Run, Run.turn_id == answer["turnId"])) == 1
    assert gate.turn(answer)["status"] == "success"


def test_while_another_turn_runs_a_session_is_busy(gate: AgentGate) -> None:
    gate.model.will(says("one"), asks(("c1", "stuck", "{}")))
    answer = gate.say("one", "busy")
    second = gate.say("two", "busy", wait=0)
    wait_for("stuck runs")
    reply = ask_again(gate, answer)
    assert (reply.status, reply.error["code"]) == (409, "session_busy")
    gate.model.will(says("two"))
    GATES["free"].set()
    gate.ended(second)


def test_messages_wait_while_a_turn_is_run_again(gate: AgentGate) -> None:
    gate.model.will(says("one"), asks(("c1", "stuck", "{}")))
    answer = gate.say("one", "queues")
    ask_again(gate, answer)
    wait_for("stuck runs")
    second = gate.say("two", "queues", wait=0)
    assert second["status"] == "queued"
    gate.model.will(says("again"), says("two"))
    GATES["free"].set()
    gate.ended(second)
    assert gate.sent(3)[-2:] == [said("again"), user("two")]


def test_a_re_run_can_be_cancelled_and_what_was_shown_stays(gate: AgentGate) -> None:
    gate.model.will(says("one"), asks(("c1", "stuck", "{}")), says("next"))
    answer = gate.say("one")
    ask_again(gate, answer)
    wait_for("stuck runs")
    assert gate.cancel(answer["turnId"]).json["status"] == "cancelled"
    assert gate.turn(answer)["final_output"] == "one"
    gate.say("two", answer["sessionId"])
    assert gate.sent(2) == [SYSTEM, user("one"), said("one"), user("two")]


def test_it_can_be_asked_for_over_the_websocket(gate: AgentGate) -> None:
    gate.model.will(says("one"), says("two"))
    answer = gate.say("hi")
    with ApiSocket(gate.gate) as client:
        client.ask("session.subscribe", session_id=answer["sessionId"])
        run = client.ask("turn.rerun", turn_id=answer["turnId"], message="hello")
        assert (run["object"], run["kind"]) == ("run", "rerun")
        done = client.until("session.turn.completed")
        assert done["payload"]["final_output"] == "two"
        assert client.refused("turn.rerun") == ("invalid_value", "turn_id")
        assert client.refused("run.resume", run_id=run["id"])[0] == "run_not_paused"


def test_every_message_of_the_record_is_there_once(gate: AgentGate) -> None:
    gate.model.will(says("one"), says("two"))
    answer = gate.say("hi")
    run = again(gate, answer)
    messages = gate.gate.all(Message, Message.turn_id == answer["turnId"])
    assert [(m["role"], m["content"], m["run_id"]) for m in messages] == [
        ("user", "hi", answer["runId"]),
        ("assistant", "one", answer["runId"]),
        ("assistant", "two", run["id"]),
    ]


def test_an_agent_that_is_gone_runs_nothing_again(tmp_path: Path) -> None:
    with agents(tmp_path, agents={"a": agent(), "b": agent()}) as gate:
        gate.model.will(says("one"))
        answer = gate.say("hi", name="b")
        loaded = gate.gate.services.config
        left = {"a": loaded.config.agents["a"]}
        changed = loaded.config.model_copy(update={"agents": left})
        gate.gate.services.agents.replace(replace(loaded, config=changed))
        assert ask_again(gate, answer).error["code"] == "agent_not_found"
        assert gate.turn(answer)["status"] == "success"
        gate.model.check()
