"""Later runs of a turn: what they see of a context that was compacted, and of a plan."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest

from agents_fixtures import AgentGate, a_test_with, agent, agents, asks
from scripted_model import Row, said, streams, user
from servers import eventually
from xgw.agents.context import SUMMARY
from xgw.store.models import Event, Run

LONG = "the order A-17 was sent on Monday " * 20
BRIEF = {"role": "system", "content": "Be brief."}
PLAN = {"action": "set", "items": [{"text": "look"}, {"text": "tell"}]}
DONE = {"action": "update", "number": 1, "state": "done"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    named = {
        "a": agent(tools=(), context={"window": 900, "compact_at": 0.7, "keep_last_turns": 1}),
        "worker": agent(tools=("remember",), modes={"task": {"planner": True}}),
    }
    with agents(tmp_path_factory.mktemp("later"), agents=named) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def again(gate: AgentGate, answer: Row, **wanted: object) -> Row:
    """The new run of a turn, once it is over."""
    reply = gate.post(f"/turns/{answer['turnId']}/runs", wanted)
    assert reply.status == 201, reply.body
    run_id = reply.json["id"]
    eventually(lambda: gate.gate.all(Run, Run.id == run_id)[0]["ended_at"])
    gate.ended(answer)
    shown: Row = gate.gate.get(f"/runs/{run_id}").json
    return shown


def talk(gate: AgentGate, *messages: str) -> list[Row]:
    """The answers to these, in one session."""
    answers: list[Row] = []
    for message in messages:
        gate.model.will(streams(f"so: {message}"))
        session = answers[0]["sessionId"] if answers else None
        answers.append(gate.say(message, session))
    return answers


def compactions(gate: AgentGate, session: str) -> int:
    told = Event.session_id == session, Event.type == "context.compacted"
    return len(gate.gate.all(Event, *told))


def plan(id: str, arguments: Row) -> tuple[str, str, str]:
    return (id, "plan", orjson.dumps(arguments).decode())


def test_the_newest_turn_sees_the_summary_again(gate: AgentGate) -> None:
    session = talk(gate, LONG, "second", LONG)[0]["sessionId"]
    gate.model.will(streams("sum"), streams("one"), streams("two"))
    answer = gate.say("when?", session)
    assert again(gate, answer)["status"] == "success"
    assert gate.sent(-1) == gate.sent(-2)
    assert gate.sent(-1)[1] == user(f"{SUMMARY}\n\nsum")


def test_a_turn_that_was_compacted_since_has_its_whole_context_again(gate: AgentGate) -> None:
    first, second, _ = talk(gate, LONG, "second", LONG)
    session = first["sessionId"]
    gate.model.will(streams("sum"), streams("ok"), streams("anew"))
    gate.say("when?", session)
    assert again(gate, second)["status"] == "success"
    assert gate.sent(-1) == [BRIEF, user(LONG), said(f"so: {LONG}"), user("second")]
    assert gate.gate.get(f"/sessions/{session}").json["session_summary"] == "sum"


def test_what_is_compacted_there_concerns_that_run_alone(gate: AgentGate) -> None:
    answers = talk(gate, LONG, "second", "third " + LONG)
    session = answers[0]["sessionId"]
    gate.model.will(streams("sum"), streams("so: fourth"))
    gate.say("fourth", session)
    gate.model.will(streams("later"), streams("so: fifth"))
    gate.say("fifth " + LONG * 3, session)
    assert compactions(gate, session) == 2
    gate.model.will(streams("apart"), streams("anew"))
    run = again(gate, answers[2], message="third, but longer: " + LONG * 2)
    assert [step["step_type"] for step in run["steps"]] == ["memory_write", "llm_call", "llm_call"]
    assert gate.sent(-1)[1] == user(f"{SUMMARY}\n\napart")
    now = gate.gate.get(f"/sessions/{session}").json
    assert now["session_summary"] == "later"


def test_a_run_from_a_step_on_has_the_plan_that_was_made_before_it(gate: AgentGate) -> None:
    gate.model.will(asks(plan("c1", PLAN)), asks(plan("c2", DONE)), streams("ok"))
    answer = gate.say("work", name="worker", mode="task")
    second_call = gate.steps(answer, "llm_call")[1]
    gate.model.will(asks(plan("c3", {**DONE, "number": 2})), streams("ok"))
    run = again(gate, answer, from_step_id=second_call["id"])
    assert gate.sent(-1)[-1]["content"] == "1. [pending] look\n2. [done] tell"
    assert [item["state"] for item in run["planner_state"]["items"]] == ["pending", "done"]


def test_a_plan_and_notes_are_made_again_whatever_is_reused(gate: AgentGate) -> None:
    note = ("c2", "remember", '{"key": "k", "value": "v"}')
    gate.model.will(asks(plan("c1", PLAN), note), streams("ok"))
    answer = gate.say("work", name="worker", mode="task")
    gate.model.will(asks(plan("c1", PLAN), note), streams("ok"))
    run = again(gate, answer, reuse="results")
    assert [item["text"] for item in run["planner_state"]["items"]] == ["look", "tell"]
    assert not any((step["metadata"] or {}).get("reused_step_id") for step in run["steps"])
