"""Calls that wait for a person in a task that was handed over: the run waits, and goes on there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_gates import GATES, RUNS, wait_for
from agents_fixtures import (
    FILE,
    AgentGate,
    a_test_with,
    agent,
    agents,
    asks,
    requested,
    told,
    tools,
)
from api_socket import ApiSocket
from faults import Running
from filled_store import FilledStore
from scripted_model import CUT, Answer, Model, Row, delta, result, says, stream, streams, user
from servers import eventually, installed
from test_agents_approvals import decide, decisions
from xgw.agents.context import SUMMARY

NOTE = ("c1", "note", '{"text": "x"}')
LOOK = ("c2", "look", '{"city": "Oslo"}')
SEEN = '{"city":"Oslo","degrees":21,"unit":"c"}'
SYSTEM = {"role": "system", "content": "Be brief."}

LONG = "the order A-17 was sent on Monday " * 20

CONFIG = """
[[providers]]
name = "p1"
base_url = "{url}"
[agents.a]
model = "m"
handoffs = ["careful"]
[agents.a.modes.chat]
max_iterations = {most}
[agents.careful]
model = "p1/books"
instructions = "{instructions}"
tools = ["note"]
[agents.careful.modes.chat]
max_iterations = {most}
[tools.note]
python = "{file}:note"
approval = "always"
"""

NAMED: Row = {
    "a": agent(handoffs=("careful", "middle", "brief", "long")),
    "careful": {"model": "p1/books", "tools": ("note", "look", "stuck")},
    "middle": {"model": "m", "handoffs": ("careful",)},
    "brief": {"model": "m", "tools": ("note",), "limits": {"max_iterations": 2}},
    "tight": agent(handoffs=("careful",), limits={"max_turn_tokens": 30}),
    "long": {
        "model": "m",
        "tools": ("anything", "note"),
        "context": {"window": 900, "compact_at": 0.7},
    },
    "few": agent(handoffs=("careful",), limits={"max_iterations": 3}),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    guarded = tools(note={"approval": "always"})
    with agents(tmp_path_factory.mktemp("asked"), agents=NAMED, tools=guarded) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def to(partner: str, id: str = "h1", task: str = "do it") -> tuple[str, str, str]:
    return id, f"handoff_to_{partner}", f'{{"message": "{task}"}}'


def waiting(gate: AgentGate, *answers: Answer, **more: Any) -> Row:
    """The answer to a message whose turn waits for a person, once the model has said these."""
    gate.model.will(*answers)
    reply = gate.chat("go", **more)
    assert reply.status == 202, reply.body
    answer: Row = reply.json
    return answer


def tree(gate: AgentGate, answer: Row) -> list[tuple[str, str, str, int | None]]:
    """The steps in order: type, name, status, and the place of the one above it."""
    steps = gate.steps(answer)
    places = {step["id"]: place for place, step in enumerate(steps)}
    return [
        (s["step_type"], s["name"], s["status"], places.get(s["parent_step_id"])) for s in steps
    ]


# -- waiting ---------------------------------------------------------------------------------------


def test_the_run_waits_and_says_whose_call_it_is(gate: AgentGate) -> None:
    answer = waiting(gate, asks(to("careful")), asks(LOOK), asks(NOTE, LOOK), session="asked")
    assert (answer["status"], answer["runStatus"]) == ("running", "waiting_tool")
    first, handoff, _, _, asking = gate.steps(answer)
    assert (handoff["step_type"], handoff["status"]) == ("handoff", "running")
    assert answer["pendingApprovals"] == [
        {
            "id": "c1",
            "name": "note",
            "arguments": {"text": "x"},
            "reason": "approval",
            "stepId": asking["id"],
            "agentName": "careful",
        }
    ]
    assert RUNS == ["look Oslo"]
    kept = gate.gate.get(f"/runs/{answer['runId']}").json["checkpoint"]
    assert (kept["next"], kept["step_id"]) == ("decisions", first["id"])
    (call,) = kept["pending_tool_calls"]
    assert (call["state"], call["step_id"]) == ("open", handoff["id"])
    task = call["task"]
    assert (task["agent_name"], task["step_ids"]) == ("careful", [handoff["id"]])
    assert (task["next"], task["step_id"]) == ("decisions", asking["id"])
    assert [one["state"] for one in task["pending_tool_calls"]] == ["awaits_approval", "open"]
    *_, asked, updated = gate.gate.events(gate.turn(answer))
    assert (asked["type"], asked["step_id"]) == ("tool.approval_requested", asking["id"])
    assert asked["payload"] == {
        "tool_call_id": "c1",
        "name": "note",
        "arguments": '{"text": "x"}',
        "reason": "approval",
        "agent_name": "careful",
    }
    assert updated["payload"]["status"] == "waiting_tool"
    assert gate.chat("second", "asked", ifBusy="reject").error["code"] == "session_busy"


def test_once_it_is_approved_it_goes_on_where_it_was(gate: AgentGate) -> None:
    answer = waiting(gate, asks(to("careful")), asks(LOOK), asks(NOTE))
    gate.model.will(streams("noted"), streams("it is"))
    reply = decide(gate, answer, "approve")
    assert (reply.status, reply.json["id"]) == (200, answer["runId"])
    turn = gate.ended(answer)
    assert (turn["final_output"], RUNS) == ("it is", ["look Oslo", "note x"])
    history = [user("do it"), requested(LOOK), result("c2", SEEN), requested(NOTE)]
    assert gate.sent(3) == [*history, result("c1", "kept: x")]
    assert gate.sent(4)[1:] == [user("go"), requested(to("careful")), result("h1", "noted")]
    assert tree(gate, answer) == [
        ("llm_call", "m", "success", None),
        ("handoff", "handoff_to_careful", "success", 0),
        ("llm_call", "books", "success", 1),
        ("tool_call", "look", "success", 2),
        ("llm_call", "books", "success", 1),
        ("tool_call", "note", "success", 4),
        ("llm_call", "books", "success", 1),
        ("llm_call", "m", "success", None),
    ]
    assert [step["history"] for step in gate.steps(answer, "llm_call")][3] == "appended"
    spans = [(s["started_at"], s["ended_at"], s["latency_ms"]) for s in gate.steps(answer)]
    (began, ended, took), inside = spans[1], spans[2:7]
    assert all(began <= one[0] and one[1] <= ended for one in inside)
    assert abs((ended - began).total_seconds() * 1000 - took) <= 1
    totals = turn["llm_calls"], turn["tool_calls"], turn["attempts"], turn["total_tokens"]
    assert totals == (5, 3, 5, 65)
    session = gate.gate.get(f"/sessions/{answer['sessionId']}").json
    assert session["usage"]["total_tokens"] == 65
    (decided,) = decisions(gate, answer)
    assert (decided["decision"], decided["agent_name"]) == ("approve", "careful")
    story = gate.story(answer)
    assert story[story.index("tool.approval_requested") :] == [
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
        "step.completed success",
        "message.added tool",
        "tool.results_sent",
        "step.started llm_call",
        "step.completed success",
        "message.added assistant",
        "run.completed success",
        "turn.completed success finished",
    ]


def test_what_a_person_decides_is_what_the_other_agent_gets(gate: AgentGate) -> None:
    answer = waiting(gate, asks(to("careful")), asks(NOTE))
    refused = decide(gate, answer, "approve", arguments={"text": 5})
    assert (refused.status, refused.error["param"]) == (422, "arguments")
    assert decide(gate, answer, "approve", "c9").error["code"] == "call_not_found"
    gate.model.will(asks(NOTE))
    decide(gate, answer, "approve", arguments={"text": "better"})
    eventually(lambda: gate.story(answer).count("run.updated waiting_tool") == 2)
    gate.model.will(asks(NOTE))
    decide(gate, answer, "deny", reason="not twice")
    eventually(lambda: gate.story(answer).count("run.updated waiting_tool") == 3)
    gate.model.will(says("so be it"), says("ended"))
    decide(gate, answer, "result", result="by hand")
    assert gate.ended(answer)["final_output"] == "ended"
    texts = [message["content"] for message in gate.sent(4) if message["role"] == "tool"]
    assert texts == ["kept: better", "Error: the call was denied: not twice", "by hand"]
    assert RUNS == ["note better"]
    statuses = [step["status"] for step in gate.steps(answer, "tool_call")]
    assert statuses == ["success", "error", "success"]
    assert decide(gate, answer, "approve").error["code"] == "run_not_waiting"


def test_a_task_inside_of_a_task(gate: AgentGate) -> None:
    outer, inner = to("middle"), to("careful", "h2", "the rest")
    answer = waiting(gate, asks(outer), asks(inner), asks(NOTE))
    assert answer["pendingApprovals"][0]["agentName"] == "careful"
    gate.model.will(asks(NOTE))
    decide(gate, answer, "approve")
    eventually(lambda: gate.story(answer).count("run.updated waiting_tool") == 2)
    gate.model.will(streams("three"), streams("two"), streams("one"))
    decide(gate, answer, "approve")
    turn = gate.ended(answer)
    assert (turn["final_output"], turn["llm_calls"], RUNS) == ("one", 7, ["note x"] * 2)
    assert gate.sent(-2) == [user("do it"), requested(inner), result("h2", "three")]
    assert gate.sent(-1)[1:] == [user("go"), requested(outer), result("h1", "two")]
    above = [place for _, _, _, place in tree(gate, answer)]
    assert above == [None, 0, 1, 2, 3, 4, 3, 6, 3, 1, None]


# -- several ---------------------------------------------------------------------------------------


def test_two_agents_may_wait_with_calls_of_the_same_id(gate: AgentGate) -> None:
    """What else was asked for runs meanwhile; nothing goes on before all are decided about."""
    calls = [to("careful", "h1", "one"), to("careful", "h2", "two"), LOOK]
    answer = waiting(gate, asks(*calls), asks(NOTE), asks(NOTE))
    asked = answer["pendingApprovals"]
    assert ([one["id"] for one in asked], RUNS) == (["c1", "c1"], ["look Oslo"])
    refused = decide(gate, answer, "approve")
    assert (refused.status, refused.error["code"]) == (409, "call_ambiguous")
    assert all(one["stepId"] in refused.error["message"] for one in asked)
    run = decide(gate, answer, "approve", step_id=asked[0]["stepId"]).json
    assert (run["status"], RUNS) == ("waiting_tool", ["look Oslo"])
    again = decide(gate, answer, "deny", step_id=asked[0]["stepId"])
    assert again.error["code"] == "already_decided"
    gate.model.will(says("first"), says("second"), says("both"))
    assert decide(gate, answer, "deny").status == 200
    assert gate.ended(answer)["final_output"] == "both"
    first, second, looked = gate.sent(-1)[-3:]
    assert {first["content"], second["content"]} == {"first", "second"}
    assert looked == result("c2", SEEN)
    assert RUNS == ["look Oslo", "note x"]
    ends = {sent[0]["content"]: sent[-1]["content"] for sent in (gate.sent(3), gate.sent(4))}
    assert ends == {"one": "kept: x", "two": "Error: the call was denied"}


def test_the_turns_own_calls_are_decided_about_first(gate: AgentGate) -> None:
    own = ("c1", "note", '{"text": "own"}')
    answer = waiting(gate, asks(to("careful"), own))
    assert [one["agentName"] for one in answer["pendingApprovals"]] == [None]
    gate.model.will(asks(NOTE))
    decide(gate, answer, "approve")
    eventually(lambda: gate.story(answer).count("run.updated waiting_tool") == 2)
    assert RUNS == ["note own"]
    gate.model.will(says("noted"), says("both"))
    assert decide(gate, answer, "approve").status == 200
    assert gate.ended(answer)["final_output"] == "both"
    assert gate.sent(-1)[-2:] == [result("h1", "noted"), result("c1", "kept: own")]


# -- ends ------------------------------------------------------------------------------------------


def test_cancelled_while_it_waits_everything_ends_and_the_session_goes_on(gate: AgentGate) -> None:
    outer, inner = to("middle"), to("careful", "h2")
    answer = waiting(gate, asks(outer), asks(inner), asks(NOTE, LOOK), session="stops")
    reply = gate.cancel(answer["turnId"])
    assert (reply.status, reply.json["ended_by"]) == (200, "user_cancel")
    ends = [(name, status, above) for _, name, status, above in tree(gate, answer)]
    assert ends[1:] == [
        ("handoff_to_middle", "cancelled", 0),
        ("m", "success", 1),
        ("handoff_to_careful", "cancelled", 2),
        ("books", "success", 3),
        ("note", "cancelled", 4),
        ("look", "cancelled", 4),
    ]
    assert decide(gate, answer, "approve").error["code"] == "run_not_waiting"
    gate.model.will(says("on"))
    assert gate.say("second", "stops")["message"]["content"] == "on"
    lost = result("h1", "Error: no result: it was cancelled")
    assert gate.sent(-1)[1:] == [user("go"), requested(outer), lost, user("second")]


def test_cancelled_while_another_one_is_at_work_nothing_stays_open(gate: AgentGate) -> None:
    """One agent waits for a person already, the other is in a tool."""
    stuck = ("s", "stuck", "{}")
    gate.model.will(asks(to("careful", "h1"), to("careful", "h2")), asks(NOTE), asks(stuck))
    answer = gate.say("go", wait=0)
    wait_for("stuck runs")
    eventually(lambda: gate.story(answer).count("tool.requested") == 3)
    assert "tool.approval_requested" not in gate.story(answer)
    assert gate.cancel(answer["turnId"]).status == 200
    assert gate.ended(answer)["ended_by"] == "user_cancel"
    GATES["free"].set()
    ends = sorted((name, status) for _, name, status, _ in tree(gate, answer)[1:])
    assert ends == [
        *[("books", "success")] * 2,
        *[("handoff_to_careful", "cancelled")] * 2,
        *(("note", "cancelled"), ("stuck", "cancelled")),
    ]


@pytest.mark.parametrize("name", ["tight", "few"])
def test_at_a_limit_of_the_turn_nobody_is_asked(gate: AgentGate, name: str) -> None:
    """Of 30 tokens each answer takes 15; the other limit is three answers."""
    more = {"tight": [], "few": [asks(LOOK)]}[name]
    gate.model.will(asks(to("careful")), *more, asks(NOTE))
    answer = gate.say("go", name=name)
    assert answer["limitReached"] == {"tight": "turn_tokens", "few": "iterations"}[name]
    assert "tool.approval_requested" not in gate.story(answer)
    assert {step["status"] for step in gate.steps(answer)} <= {"success", "error", "cancelled"}


def test_the_other_agents_own_limits_count_on_after_a_decision(gate: AgentGate) -> None:
    answer = waiting(gate, asks(to("brief")), asks(NOTE))
    gate.model.will(asks(NOTE), says("it failed"))
    decide(gate, answer, "approve")
    assert gate.ended(answer)["final_output"] == "it failed"
    assert "its limit of 2 (iterations)" in gate.sent(-1)[-1]["content"]


def test_a_provider_that_fails_after_a_decision_is_an_error_of_the_call(gate: AgentGate) -> None:
    answer = waiting(gate, asks(to("careful")), asks(NOTE))
    gate.model.will(stream(delta("no"), CUT), says("it failed"))
    decide(gate, answer, "approve")
    assert gate.ended(answer)["final_output"] == "it failed"
    assert "careful came to no answer" in gate.sent(-1)[-1]["content"]


# -- later -----------------------------------------------------------------------------------------


def test_the_turn_can_be_run_again_and_forked_afterwards(gate: AgentGate) -> None:
    answer = waiting(gate, asks(to("careful")), asks(NOTE))
    gate.model.will(says("noted"), says("done"))
    decide(gate, answer, "approve")
    gate.ended(answer)
    path = f"/turns/{answer['turnId']}/runs"
    gate.model.will(asks(to("careful")), says("as before"))
    assert gate.post(path, {"reuse": "results"}).status == 201
    eventually(lambda: gate.turn(answer)["final_output"] == "as before")
    assert gate.sent(-1)[-1] == result("h1", "noted")
    gate.model.will(asks(to("careful")), asks(NOTE))
    run = gate.post(path, {"reuse": "none"}).json
    eventually(lambda: gate.story(answer)[-1] == "run.updated waiting_tool")
    gate.model.will(says("anew"), says("and done"))
    assert decide(gate, {"runId": run["id"]}, "approve").status == 200
    eventually(lambda: gate.turn(answer)["final_output"] == "and done")
    assert gate.sent(-1)[-1] == result("h1", "anew")
    assert RUNS == ["note x", "note x"]
    fork = gate.post(f"/sessions/{answer['sessionId']}/fork", {"turn_id": answer["turnId"]}).json
    gate.model.will(says("beside"))
    gate.say("and?", fork["id"])
    before = [user("go"), requested(to("careful")), result("h1", "anew")]
    assert gate.sent(-1)[1:] == [
        *(*before, {"role": "assistant", "content": "and done"}, user("and?")),
    ]


def test_what_was_compacted_in_a_task_stays_so(gate: AgentGate) -> None:
    rounds = [(f"l{n}", "anything", f'{{"text": "{LONG}{n}"}}') for n in range(2)]
    gate.model.will(asks(to("long")), *(asks(one) for one in rounds), streams("sum"))
    answer = waiting(gate, asks(NOTE))
    gate.model.will(says("noted"), says("done"))
    decide(gate, answer, "approve")
    assert gate.ended(answer)["final_output"] == "done"
    assert gate.sent(-2) == [
        *(user(f"{SUMMARY}\n\nsum"), user("do it")),
        *(requested(rounds[1]), result("l1", f"text={LONG}1")),
        *(requested(NOTE), result("c1", "kept: x")),
    ]
    steps = {step["id"]: step for step in gate.steps(answer)}
    (compaction,) = (step for step in steps.values() if step["name"] == "compaction")
    assert steps[compaction["parent_step_id"]]["step_type"] == "handoff"
    (began,) = (
        e for e in gate.gate.events(gate.turn(answer)) if e["payload"].get("name") == "compaction"
    )
    assert began["payload"]["agent_name"] == "long"


def test_a_bug_report_of_it_has_the_results_that_are_there(gate: AgentGate) -> None:
    answer = waiting(gate, asks(to("careful"), ("f", "flood", "{}")), asks(NOTE))
    report = gate.gate.get(f"/export/sessions/{answer['sessionId']}").json
    handed, flooded = report["runs"][0]["checkpoint"]["pending_tool_calls"]
    assert (flooded["state"], flooded["result"]) == ("ended", "x" * 5000)
    (asked,) = handed["task"]["pending_tool_calls"]
    assert (asked["state"], asked["name"]) == ("awaits_approval", "note")
    assert gate.cancel(answer["turnId"]).status == 200


def test_a_task_that_was_done_when_the_process_ended_is_not_asked_about_again(
    gate: AgentGate,
) -> None:
    """It ended between the other agent's answer and the end of the call: no kill hits that."""
    filled = FilledStore(Path(gate.gate.services.store.path).parent)
    session = filled.session(kind="agent", agent_name="a", message_count=3)
    own = {"agent_name": "a", "endpoint": None, "status": "running", "ended_at": None}
    turn = filled.turn(session, user_input="go", **own)
    task = {"next": "answer", "step_id": None, "pending_tool_calls": [], "messages_upto": 2}
    run = filled.run(turn, status="paused", ended_at=None)
    asking = filled.step(run, turn, session_id=session, tool_calls=[])
    failed = {"status": "error", "error_type": "interrupted", "parent_step_id": asking}
    handoff = filled.step(
        run, turn, session_id=session, step_index=1, step_type="handoff", **failed
    )
    id, name, arguments = to("careful")
    call = {
        "tool_call_id": id,
        "name": name,
        "arguments": arguments,
        "state": "open",
        "arguments_json_valid": True,
        "incomplete": False,
        "step_id": handoff,
        "task": {**task, "agent_name": "careful", "step_ids": [handoff]},
    }
    kept = {"step_id": asking, "pending_tool_calls": [call], "messages_upto": 2}
    filled.change("runs", run, checkpoint=filled.json({"next": "tools", **kept}))
    filled.message(session, turn, 0, content="go", run_id=run)
    asked = requested(to("careful"))["tool_calls"]
    said = {"role": "assistant", "run_id": run}
    filled.message(session, turn, 1, content=None, tool_calls=filled.json(asked), **said)
    inside = filled.json({"handoff": handoff})
    filled.message(session, turn, 2, content="9 euros", metadata=inside, **said)
    filled.close()
    gate.model.will(says("It costs 9."))
    assert gate.post(f"/runs/{run}/resume", {}).status == 201
    assert gate.ended({"turnId": turn})["final_output"] == "It costs 9."
    assert gate.sent(0)[1:] == [user("go"), requested(to("careful")), result("h1", "9 euros")]


# -- the agents change meanwhile -------------------------------------------------------------------


def test_an_agent_that_changes_meanwhile_goes_on_as_it_was(tmp_path: Path) -> None:
    def config(instructions: str, most: int) -> str:
        return CONFIG.format(url=model.url, file=FILE, instructions=instructions, most=most)

    model, task = Model(), to("careful")
    try:
        with installed(tmp_path, config("Be careful.", 9)) as one:
            server = one.serve()
            gate = Running(server, model, one.store)
            model.will(asks(task), asks(NOTE))
            answer = gate.post({"message": "go"}, "/agents/a/chat").json
            (tmp_path / "xgw.toml").write_text(config("Be bold.", 1))
            eventually(lambda: gate.get("/agents/careful").json["instructions"] == "Be bold.")
            model.will(says("noted"), says("done"))
            run = gate.post(
                {"tool_call_id": "c1", "decision": "result", "result": "by hand"},
                f"/runs/{answer['runId']}/approvals",
            )
            assert run.status == 200
            eventually(lambda: gate.get(f"/turns/{answer['turnId']}").json["ended_at"])
            gate.store.close()
        told = {"role": "system", "content": "Be careful."}
        assert model.asked[-2].json["messages"] == [
            *(told, user("do it"), requested(NOTE), result("c1", "by hand")),
        ]
        model.check()
    finally:
        model.close()


# -- interfaces ------------------------------------------------------------------------------------


def test_it_can_be_decided_over_the_websocket(gate: AgentGate) -> None:
    answer = waiting(gate, asks(to("careful")), asks(NOTE))
    gate.model.will(says("noted"), says("over"))
    with ApiSocket(gate.gate) as client:
        client.ask("session.subscribe", session_id=answer["sessionId"])
        named = {"run_id": answer["runId"], "tool_call_id": "c1"}
        assert client.refused("tool.approve", **named, step_id="step_0")[0] == "call_not_found"
        step = client.ask("tool.approve", **named, arguments={"text": "z"})
        assert step["id"] == answer["pendingApprovals"][0]["stepId"]
        done = client.until("session.turn.completed")
    assert (done["payload"]["final_output"], RUNS) == ("over", ["note z"])


def test_a_stream_ends_with_what_is_awaited(gate: AgentGate) -> None:
    gate.model.will(asks(to("careful")), asks(NOTE))
    events = told(gate.post("/agents/a/chat/stream", {"message": "go"}).body)
    assert [name for name, _ in events][-3:] == [
        *("tool.approval_requested", "run.updated", "chat.response"),
    ]
    assert [one["agentName"] for one in events[-1][1]["pendingApprovals"]] == ["careful"]
    assert gate.cancel(events[-1][1]["turnId"]).status == 200
