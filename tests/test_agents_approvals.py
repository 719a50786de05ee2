"""Calls that a person has to approve: the run waits, in the store alone, and goes on as decided."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent_gates import GATES, RUNS, wait_for
from agents_fixtures import AgentGate, a_test_with, agent, agents, asks, requested, told, tools
from api_socket import ApiSocket
from gateway_fixtures import Reply
from scripted_model import Row, call, result, said, says, streams, user
from servers import eventually
from xgw import clock
from xgw.store.models import Event

NOTE = ("c1", "note", '{"text": "x"}')
LOOK = ("c2", "look", '{"city": "Oslo"}')
SEEN = '{"city":"Oslo","degrees":21,"unit":"c"}'
ASKED = ["step.started llm_call", "step.completed success", "tool.requested"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    named = {"a": agent(), "hasty": agent(limits={"max_seconds": 600, "max_iterations": 2})}
    guarded = tools(note={"approval": "always"}, boom={"approval": "always"})
    with agents(tmp_path_factory.mktemp("approvals"), agents=named, tools=guarded) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def waiting(gate: AgentGate, *calls: tuple[str, str, str], **more: Any) -> Row:
    """The answer to a message whose turn waits for a person."""
    gate.model.will(asks(*(calls or (NOTE,))))
    reply = gate.chat("go", **more)
    assert reply.status == 202, reply.body
    answer: Row = reply.json
    return answer


def decide(gate: AgentGate, answer: Row, decision: str, call: str = "c1", **more: Any) -> Reply:
    path = f"/runs/{answer['runId']}/approvals"
    return gate.post(path, {"tool_call_id": call, "decision": decision, **more})


def decisions(gate: AgentGate, answer: Row) -> list[Row]:
    """What was told of decisions about a turn's calls."""
    where = Event.turn_id == answer["turnId"], Event.type == "tool.approval_decided"
    return [event["payload"] for event in gate.gate.all(Event, *where)]


# -- waiting ---------------------------------------------------------------------------------------


def test_a_turn_waits_for_a_person_and_says_for_what(gate: AgentGate) -> None:
    answer = waiting(gate)
    assert (answer["status"], answer["runStatus"]) == ("running", "waiting_tool")
    (asked_by,) = (step["id"] for step in gate.steps(answer))
    assert answer["pendingApprovals"] == [
        {
            "id": "c1",
            "name": "note",
            "arguments": {"text": "x"},
            "reason": "approval",
            "stepId": asked_by,
            "agentName": None,
        }
    ]
    assert (answer["toolCalls"], answer["completedAt"], RUNS) == ([], None, [])
    assert gate.story(answer)[4:] == [
        *ASKED,
        "message.added assistant",
        "tool.approval_requested",
        "run.updated waiting_tool",
    ]
    run = gate.gate.get(f"/runs/{answer['runId']}").json
    kept = run["checkpoint"]
    assert (kept["next"], kept["step_id"]) == ("decisions", run["steps"][0]["id"])
    (pending,) = kept["pending_tool_calls"]
    assert (pending["tool_call_id"], pending["state"]) == ("c1", "awaits_approval")
    session = gate.gate.get(f"/sessions/{answer['sessionId']}").json
    assert session["active_turn_id"] == answer["turnId"]
    shown = {tool["name"]: tool["approval"] for tool in session["tools"]}
    assert (shown["note"], shown["look"]) == ("always", "never")
    eventually(lambda: gate.gate.services.calls.count == 0)


def test_once_it_is_approved_the_same_run_goes_on(gate: AgentGate) -> None:
    answer = waiting(gate)
    gate.model.will(streams("noted"))
    reply = decide(gate, answer, "approve")
    assert (reply.status, reply.json["id"]) == (200, answer["runId"])
    turn = gate.ended(answer)
    assert (turn["status"], turn["final_output"], RUNS) == ("success", "noted", ["note x"])
    assert gate.sent(1)[1:] == [user("go"), requested(NOTE), result("c1", "kept: x")]
    assert gate.story(answer)[8:] == [
        "tool.approval_requested",
        "run.updated waiting_tool",
        "tool.approval_decided",
        "run.updated running",
        "step.started tool_call",
        "step.completed success",
        "message.added tool",
        "tool.results_sent",
        "step.started llm_call",
        "step.completed success",
        "message.added assistant",
        "run.completed success",
        "turn.completed success finished",
    ]
    (decided,) = decisions(gate, answer)
    assert decided == {
        "tool_call_id": "c1",
        "name": "note",
        "decision": "approve",
        "by": "api",
        "arguments": None,
    }
    (tool,) = gate.steps(answer, "tool_call")
    assert tool["metadata"]["decision"] == {"decision": "approve", "by": "api"}


def test_a_person_may_change_the_arguments(gate: AgentGate) -> None:
    answer = waiting(gate)
    reply = decide(gate, answer, "approve", arguments={"text": 5})
    assert (reply.status, reply.error["param"]) == (422, "arguments")
    assert "text: Input should be a valid string" in reply.error["message"]
    gate.model.will(says())
    assert decide(gate, answer, "approve", arguments={"text": "better"}).status == 200
    gate.ended(answer)
    assert RUNS == ["note better"]
    assert gate.sent(1)[-1] == result("c1", "kept: better")
    (tool,) = gate.steps(answer, "tool_call")
    assert tool["metadata"]["arguments"] == '{"text":"better"}'
    assert decisions(gate, answer)[0]["arguments"] == '{"text":"better"}'


@pytest.mark.parametrize(
    ("reason", "error"),
    [("not today", "the call was denied: not today"), (None, "the call was denied")],
)
def test_what_is_denied_is_an_error_for_the_model(
    gate: AgentGate, reason: str | None, error: str
) -> None:
    answer = waiting(gate)
    gate.model.will(says("a pity"))
    decide(gate, answer, "deny", **({"reason": reason} if reason else {}))
    assert gate.ended(answer)["final_output"] == "a pity"
    assert gate.sent(1)[-1] == result("c1", f"Error: {error}")
    (tool,) = gate.steps(answer, "tool_call")
    assert (tool["status"], tool["error_type"], tool["error_message"]) == (
        *("error", "tool_error", error),
    )
    assert RUNS == []


def test_a_person_may_give_the_result(gate: AgentGate) -> None:
    answer = waiting(gate)
    gate.model.will(says())
    assert decide(gate, answer, "result").error["param"] == "result"
    assert decide(gate, answer, "result", result="done by hand").status == 200
    gate.ended(answer)
    assert gate.sent(1)[-1] == result("c1", "done by hand")
    assert (gate.steps(answer, "tool_call")[0]["status"], RUNS) == ("success", [])


def test_nothing_of_an_answer_runs_until_all_of_it_is_decided(gate: AgentGate) -> None:
    other = ("c3", "note", '{"text": "y"}')
    answer = waiting(gate, NOTE, LOOK, other)
    assert [one["id"] for one in answer["pendingApprovals"]] == ["c1", "c3"]
    run = decide(gate, answer, "deny", "c3").json
    states = [one["state"] for one in run["checkpoint"]["pending_tool_calls"]]
    assert (run["status"], states, RUNS) == (
        "waiting_tool",
        ["awaits_approval", "open", "open"],
        [],
    )
    gate.model.will(says())
    assert decide(gate, answer, "approve").json["status"] != "waiting_tool"
    gate.ended(answer)
    assert sorted(RUNS) == ["look Oslo", "note x"]
    assert gate.sent(1)[-3:] == [
        result("c1", "kept: x"),
        result("c2", SEEN),
        result("c3", "Error: the call was denied"),
    ]


@pytest.mark.parametrize(
    "call", [("c1", "note", "{}"), ("c1", "note", '{"text": '), ("c1", "nothing", "{}")]
)
def test_nobody_is_asked_about_a_call_that_cannot_be_run(
    gate: AgentGate, call: tuple[str, str, str]
) -> None:
    gate.model.will(asks(call), says("so be it"))
    assert gate.say("go")["message"]["content"] == "so be it"
    assert RUNS == []


def test_a_turn_may_wait_more_than_once(gate: AgentGate) -> None:
    answer = waiting(gate)
    gate.model.will(asks(("c1", "note", '{"text": "again"}')))
    decide(gate, answer, "approve")
    eventually(lambda: gate.story(answer).count("run.updated waiting_tool") == 2)
    eventually(lambda: gate.gate.services.calls.count == 0)
    gate.model.will(says("twice"))
    assert decide(gate, answer, "approve").status == 200
    assert gate.ended(answer)["final_output"] == "twice"
    assert RUNS == ["note x", "note again"]
    assert len(gate.sent(2)) == 6


def test_a_stream_ends_with_what_is_awaited(gate: AgentGate) -> None:
    gate.model.will(asks(NOTE))
    events = told(gate.post("/agents/a/chat/stream", {"message": "go"}).body)
    assert [name for name, _ in events][-3:] == [
        *("tool.approval_requested", "run.updated", "chat.response"),
    ]
    body = events[-1][1]
    assert (body["runStatus"], [p["id"] for p in body["pendingApprovals"]]) == (
        *("waiting_tool", ["c1"]),
    )


# -- who decides -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"decision": "approve"}, "tool_call_id"),
        ({"tool_call_id": "c1"}, "decision"),
        ({"tool_call_id": "c1", "decision": "maybe"}, "decision"),
        ({"tool_call_id": "c1", "decision": "approve", "arguments": [1]}, "arguments"),
        ({"tool_call_id": "c1", "decision": "deny", "arguments": {}}, "arguments"),
        ({"tool_call_id": "c1", "decision": "approve", "reason": "x"}, "reason"),
        ({"tool_call_id": "c1", "decision": "deny", "reason": 5}, "reason"),
        ({"tool_call_id": "c1", "decision": "approve", "result": "x"}, "result"),
        ({"tool_call_id": "c1", "decision": "result", "result": "x" * 65537}, "result"),
        ({"tool_call_id": "c1", "decision": "approve", "by": "me"}, "by"),
    ],
)
def test_a_decision_that_does_not_fit_is_refused(gate: AgentGate, body: Row, param: str) -> None:
    answer = waiting(gate)
    reply = gate.post(f"/runs/{answer['runId']}/approvals", body)
    assert (reply.status, reply.error["param"]) == (422, param)
    assert gate.cancel(answer["turnId"]).status == 200


def test_what_cannot_be_decided_is_refused(gate: AgentGate) -> None:
    answer = waiting(gate, NOTE, ("c2", "boom", "{}"))
    unknown = decide(gate, answer, "approve", "c9").error
    assert unknown["code"] == "call_not_found"
    assert unknown["message"].endswith("none is 'c9': there is c1, c2")
    assert decide(gate, {"runId": "run_0"}, "approve").error["code"] == "run_not_found"
    decide(gate, answer, "deny")
    reply = decide(gate, answer, "approve")
    assert (reply.status, reply.error["code"]) == (409, "already_decided")
    gate.model.will(says())
    decide(gate, answer, "deny", "c2")
    gate.ended(answer)
    reply = decide(gate, answer, "approve")
    assert (reply.status, reply.error["code"]) == (409, "run_not_waiting")
    assert "it is success" in reply.error["message"]


def test_of_two_who_decide_at_once_exactly_one_does(gate: AgentGate) -> None:
    answer = waiting(gate)
    gate.model.will(says())
    together = threading.Barrier(4)

    def say(_: int) -> int:
        together.wait(30)
        return decide(gate, answer, "approve").status

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(say, range(4))) == [200, 409, 409, 409]
    gate.ended(answer)
    assert (RUNS, len(decisions(gate, answer))) == (["note x"], 1)


def test_who_comes_too_late_is_told_so(gate: AgentGate) -> None:
    """The run goes on already, and takes its time."""
    answer = waiting(gate)
    gate.model.will(asks(("c2", "stuck", "{}")))
    decide(gate, answer, "approve")
    wait_for("stuck runs")
    reply = decide(gate, answer, "deny")
    assert (reply.status, reply.error["code"]) == (409, "run_not_waiting")
    assert "it is running" in reply.error["message"]
    gate.model.will(says())
    GATES["free"].set()
    assert gate.ended(answer)["status"] == "success"


def test_the_gateway_leaves_a_turn_that_waits_alone(gate: AgentGate) -> None:
    """Requests in its session, results of its very call among them, are turns of their own."""
    answer = waiting(gate, session="beside")
    gate.model.will(says("aside"), says("aside"))
    for messages in ([user("psst")], [user("psst"), said(None, call("c1")), result("c1")]):
        body = {"model": "m", "messages": messages}
        assert gate.gate.post(body, X_Session_Id="beside").status == 200
    assert gate.turn(answer)["status"] == "running"
    gate.model.will(says("on"))
    decide(gate, answer, "approve")
    assert gate.ended(answer)["final_output"] == "on"
    assert gate.sent(3)[-1] == result("c1", "kept: x")


def test_a_decision_that_crosses_a_cancel_leaves_nothing_open(gate: AgentGate) -> None:
    for number in range(6):
        answer = waiting(gate, session=f"crosses {number}")
        gate.model.always(says())
        acts = [
            lambda answer=answer: decide(gate, answer, "approve").status,
            lambda answer=answer: gate.cancel(answer["turnId"]).status,
        ]
        together = threading.Barrier(2)

        def act(asked: Callable[[], int], together: threading.Barrier = together) -> int:
            together.wait(30)
            return asked()

        with ThreadPoolExecutor(2) as pool:
            statuses = list(pool.map(act, acts))
        assert set(statuses) <= {200, 409}
        assert gate.ended(answer)["status"] in ("success", "cancelled")
        eventually(lambda: gate.gate.services.calls.count == 0)
        assert [step["status"] for step in gate.steps(answer) if step["status"] == "running"] == []
        roles = [m["role"] for m in gate.gate.messages(gate.turn(answer))]
        assert roles[:3] == ["user", "assistant", "tool"]
        assert roles.count("tool") == 1


def test_it_can_be_decided_over_the_websocket(gate: AgentGate) -> None:
    answer = waiting(gate)
    gate.model.will(asks(("c2", "note", '{"text": "y"}')), says("over"))
    with ApiSocket(gate.gate) as client:
        client.ask("session.subscribe", session_id=answer["sessionId"])
        named = {"run_id": answer["runId"]}
        step = client.ask("tool.approve", **named, tool_call_id="c1", arguments={"text": "z"})
        assert (step["object"], step["step_type"]) == ("step", "llm_call")
        client.until("session.tool.approval_requested")
        client.until("session.run.updated")
        assert client.refused("tool.deny", **named, tool_call_id="c1")[0] == "call_not_found"
        assert client.refused("tool.deny", **named) == ("invalid_value", "tool_call_id")
        client.ask("tool.deny", **named, tool_call_id="c2", reason="enough")
        done = client.until("session.turn.completed")
    assert done["payload"]["final_output"] == "over"
    assert RUNS == ["note z"]
    assert gate.sent(2)[-1] == result("c2", "Error: the call was denied: enough")


# -- meanwhile -------------------------------------------------------------------------------------


def test_messages_that_come_meanwhile_wait(gate: AgentGate) -> None:
    answer = waiting(gate, session="meanwhile")
    second = gate.say("second", "meanwhile", wait=0)
    assert (second["status"], second["queuePosition"]) == ("queued", 1)
    assert gate.chat("third", "meanwhile", ifBusy="reject").error["code"] == "session_busy"
    gate.model.will(says("one"), says("two"))
    decide(gate, answer, "approve")
    assert [gate.ended(one)["final_output"] for one in (answer, second)] == ["one", "two"]


def test_cancelled_while_it_waits_every_call_has_a_result(gate: AgentGate) -> None:
    answer = waiting(gate, NOTE, LOOK, session="stops")
    second = gate.say("second", "stops", wait=0)
    gate.model.will(says("on"))
    reply = gate.cancel(answer["turnId"])
    assert (reply.status, reply.json["ended_by"]) == (200, "user_cancel")
    assert gate.ended(second)["final_output"] == "on"
    lost = "Error: no result: it was cancelled"
    assert gate.sent(1)[1:] == [
        *(user("go"), requested(NOTE, LOOK), result("c1", lost), result("c2", lost)),
        user("second"),
    ]
    ends = [(step["status"], step["error_type"]) for step in gate.steps(answer, "tool_call")]
    assert (ends, RUNS) == ([("cancelled", "no_result")] * 2, [])
    assert decide(gate, answer, "approve").error["code"] == "run_not_waiting"


def test_a_turn_that_waits_gives_way_if_that_is_wanted(gate: AgentGate) -> None:
    answer = waiting(gate, session="gives way")
    gate.model.will(says("new"))
    assert gate.say("other", "gives way", ifBusy="supersede")["message"]["content"] == "new"
    turn = gate.turn(answer)
    assert (turn["status"], turn["ended_by"]) == ("cancelled", "superseded")


def test_a_session_can_be_deleted_while_a_turn_of_it_waits(gate: AgentGate) -> None:
    answer = waiting(gate)
    connection = gate.gate.send(b"", f"/sessions/{answer['sessionId']}", "DELETE")
    assert connection.getresponse().status == 204
    assert decide(gate, answer, "approve").status == 404


def test_the_time_that_a_person_takes_is_not_the_turns(gate: AgentGate) -> None:
    """The turn began an hour ago, and may take ten minutes."""
    answer = waiting(gate, name="hasty")
    earlier = clock.now() - datetime.timedelta(hours=1)

    def work(tx: Any) -> None:
        for table, id in (("turns", answer["turnId"]), ("runs", answer["runId"])):
            tx.change(table, id, {"started_at": earlier})

    assert gate.gate.services.writer.submit(work).wait(30)
    gate.model.will(says("in time"))
    decide(gate, answer, "approve")
    turn = gate.ended(answer)
    assert (turn["final_output"], turn["status"]) == ("in time", "success")
    assert turn["latency_ms"] >= 3_600_000 > 600_000 > turn["busy_ms"]


def test_iterations_count_on_after_a_decision(gate: AgentGate) -> None:
    answer = waiting(gate, name="hasty")
    gate.model.will(asks(("c2", "look", '{"city": "Oslo"}')))
    decide(gate, answer, "approve")
    turn = gate.ended(answer)
    assert (turn["error_type"], turn["llm_calls"]) == ("limit_iterations", 2)


def test_at_a_limit_nobody_is_asked(gate: AgentGate) -> None:
    gate.model.will(asks(LOOK), asks(NOTE))
    answer = gate.say("go", name="hasty")
    assert answer["limitReached"] == "iterations"
    assert "tool.approval_requested" not in gate.story(answer)
