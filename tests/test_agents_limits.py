"""Limits of agents: a turn that reaches one ends with a reason, and the session goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent_gates import GATES, RUNS
from agents_fixtures import AgentGate, a_test_with, agent, agents, asks, requested
from scripted_model import HANG, Row, delta, result, says, stream, streams, user, whole
from xgw import clock
from xgw.agents.spent import Spent
from xgw.config import Price
from xgw.recording.pending import Checkpoint
from xgw.store.models import Event

NOTE = ("c1", "note", '{"text": "t"}')


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    limits: dict[str, Row] = {
        "two": {"max_iterations": 2},
        "turn": {"max_turn_tokens": 15},
        "session": {"max_session_tokens": 20},
        "cost": {"max_turn_cost_usd": 0.001},
        "dear": {"max_session_cost_usd": 0.001},
        "quick": {"max_seconds": 2},
    }
    named = {name: agent(limits=table) for name, table in limits.items()}
    named["small"] = agent(context={"window": 5})
    named["a"] = agent(modes={"task": {"max_iterations": 1}})
    prices = {"m-served": Price(input=100, output=100)}
    with agents(tmp_path_factory.mktemp("limits"), agents=named, prices=prices) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def reached(gate: AgentGate, answer: Row) -> Row:
    """What `limit.reached` told of a turn."""
    events = gate.gate.all(Event, Event.turn_id == answer["turnId"], Event.type == "limit.reached")
    assert len(events) == 1
    payload: Row = events[0]["payload"]
    return payload


@pytest.mark.parametrize(
    ("name", "limit", "value", "most", "asked"),
    [
        ("two", "iterations", 2, 2, 2),
        ("turn", "turn_tokens", 15, 15, 1),
        ("cost", "cost", pytest.approx(0.0015), 0.001, 1),
    ],
)
def test_a_turn_ends_at_its_limit(
    gate: AgentGate, name: str, limit: str, value: Any, most: float, asked: int
) -> None:
    gate.model.will(*[asks(NOTE, text="I will")] * asked)
    answer = gate.say("go", name=name)
    assert (answer["status"], answer["limitReached"]) == ("error", limit)
    assert answer["error"]["type"] == f"limit_{limit}"
    assert answer["message"]["content"] == "I will"
    assert reached(gate, answer) == {"limit": limit, "value": value, "max": most}
    assert len(RUNS) == asked - 1
    assert gate.story(answer)[-6:] == [
        "step.started tool_call",
        "step.completed cancelled",
        "message.added tool",
        "limit.reached",
        "run.completed error",
        "turn.completed error limit",
    ]
    assert gate.turn(answer)["ended_by"] == "limit"
    gate.model.will(says("on"))
    assert gate.say("next", answer["sessionId"], name=name)["message"]["content"] == "on"
    *_, call, back, new = gate.sent(asked)
    assert call == requested(NOTE) | {"content": "I will"}
    assert (back["role"], back["tool_call_id"], new) == ("tool", "c1", user("next"))
    assert "no result" in back["content"]


@pytest.mark.parametrize(("name", "limit"), [("session", "session_tokens"), ("dear", "cost")])
def test_a_session_that_is_used_up_asks_nothing_more(
    gate: AgentGate, name: str, limit: str
) -> None:
    gate.model.will(asks(("c1", "look", '{"city": "A"}')), says()) if name == "session" else None
    gate.model.will(streams("ok")) if name == "dear" else None
    first = gate.say("one", name=name)
    assert first["status"] == "success"
    second = gate.say("two", first["sessionId"], name=name)
    assert (second["limitReached"], second["iterations"]) == (limit, 0)
    assert gate.story(second)[-6:] == [
        "turn.started",
        "run.started",
        "message.added user",
        "limit.reached",
        "run.completed error",
        "turn.completed error limit",
    ]


def test_a_sessions_own_budget_counts_where_it_is_smaller(gate: AgentGate) -> None:
    session = gate.post("/sessions", {"agent": "a", "budget": {"tokens": 8}}).json
    gate.model.will(streams("ok"))
    gate.say("one", session["id"])
    assert gate.say("two", session["id"])["limitReached"] == "session_tokens"
    now = gate.gate.get(f"/sessions/{session['id']}").json
    assert now["budget"]["tokens"] == {"limit": 8, "used": 10, "remaining": 0}


def test_an_agents_limits_are_the_budget_of_its_sessions(gate: AgentGate) -> None:
    session = gate.post("/sessions", {"agent": "session"}).json
    assert session["budget"]["tokens"] == {"limit": 20, "used": None, "remaining": 20}


def test_a_mode_may_have_iterations_of_its_own(gate: AgentGate) -> None:
    gate.model.will(asks(NOTE))
    answer = gate.say("go", mode="task")
    assert answer["limitReached"] == "iterations"
    assert gate.gate.get(f"/sessions/{answer['sessionId']}").json["mode"] == "task"


def test_time_is_up_in_the_middle_of_an_answer(gate: AgentGate) -> None:
    gate.model.will(stream(delta("so f"), HANG))
    answer = gate.say("go", name="quick")
    assert (answer["limitReached"], answer["message"]["content"]) == ("seconds", "so f")
    (step,) = gate.steps(answer)
    assert (step["status"], step["partial_output"]) == ("cancelled", "so f")
    gate.model.will(says("on"))
    gate.say("next", answer["sessionId"], name="quick")
    assert gate.sent(1)[-3:] == [user("go"), {"role": "assistant", "content": "so f"}, user("next")]


def test_time_is_up_in_a_tool(gate: AgentGate) -> None:
    gate.model.will(asks(("c1", "stuck", "{}")))
    answer = gate.say("go", name="quick")
    assert answer["limitReached"] == "seconds"
    assert [c["error"]["type"] for c in answer["toolCalls"]] == ["no_result"]
    GATES["free"].set()
    gate.model.will(says())
    gate.say("next", answer["sessionId"], name="quick")
    assert gate.sent(1)[-2] == result("c1", gate.sent(1)[-2]["content"])


def test_what_does_not_fit_into_the_window_is_not_sent(gate: AgentGate) -> None:
    answer = gate.say("far too long for so small a window", name="small")
    told = reached(gate, answer)
    assert (told["limit"], told["max"]) == ("context", 5)
    assert told["value"] > 5
    assert answer["error"]["type"] == "limit_context"


def test_a_context_that_the_provider_refuses_is_told_as_such(gate: AgentGate) -> None:
    body = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    gate.model.will(whole(body, status="400 Bad"))
    assert gate.say("go")["error"]["type"] == "context_overflow"


def test_what_precedes_the_loop_is_work_too() -> None:
    spent = Spent(Checkpoint(elapsed_ms=500, busy_ms=300), since=clock.monotonic() - 3)
    assert 3500 <= spent.elapsed_ms < 60_000
    assert 3300 <= spent.busy_ms < 60_000
