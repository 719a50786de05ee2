"""Working memory and plan: what an agent keeps beside the history, and what it sees of it."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest

from agents_fixtures import AgentGate, a_test_with, agent, agents, asks
from scripted_model import Row, streams, user
from xgw.agents.memory import MOST_BYTES
from xgw.store.models import Event, Run


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    own = ("remember", "forget", "note")
    named = {
        "a": agent(tools=own),
        "worker": agent(
            tools=("note",),
            modes={"task": {"planner": True}},
            context={"window": 1200, "compact_at": 0.5, "keep_last_turns": 0},
        ),
    }
    with agents(tmp_path_factory.mktemp("memory"), agents=named) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def remember(key: str, value: str, id: str = "c1") -> tuple[str, str, str]:
    return (id, "remember", orjson.dumps({"key": key, "value": value}).decode())


def forget(key: str, id: str = "c1") -> tuple[str, str, str]:
    return (id, "forget", orjson.dumps({"key": key}).decode())


def plan(id: str = "c1", **arguments: object) -> tuple[str, str, str]:
    return (id, "plan", orjson.dumps(arguments).decode())


def told(gate: AgentGate, answer: Row, type: str) -> list[Row]:
    """The payloads of a session's events of one type."""
    session = Event.session_id == answer["sessionId"]
    return [event["payload"] for event in gate.gate.all(Event, session, Event.type == type)]


def system_parts(messages: list[Row]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "system"]


# -- working memory --------------------------------------------------------------------------------


def test_what_is_remembered_is_part_of_following_calls(gate: AgentGate) -> None:
    gate.model.will(asks(remember("name", "Ada")), streams("hello Ada"))
    answer = gate.say("I am Ada")
    assert system_parts(gate.sent(0)) == ["Be brief."]
    instructions, memory = system_parts(gate.sent(1))
    assert (instructions, '"name": "Ada"' in memory) == ("Be brief.", True)
    gate.model.will(streams("Ada"))
    gate.say("who am I?", answer["sessionId"])
    assert system_parts(gate.sent(2)) == ["Be brief.", memory]
    session = gate.gate.get(f"/sessions/{answer['sessionId']}").json
    assert session["working_memory"] == {"name": "Ada"}
    assert told(gate, answer, "session.updated") == [{"working_memory": {"name": "Ada"}}]


def test_each_is_a_step_of_its_own(gate: AgentGate) -> None:
    calls = remember("a", "1"), remember("b", "2", "c2"), forget("a", "c3")
    gate.model.will(asks(*calls), streams("ok"))
    answer = gate.say("go")
    steps = gate.steps(answer, "memory_write")
    assert [(s["name"], s["tool_call_id"], s["status"]) for s in steps] == [
        ("remember", "c1", "success"),
        ("remember", "c2", "success"),
        ("forget", "c3", "success"),
    ]
    assert [changed["working_memory"] for changed in told(gate, answer, "session.updated")] == [
        {"a": "1"},
        {"a": "1", "b": "2"},
        {"b": "2"},
    ]
    assert [m["content"] for m in gate.sent(1)[-3:]] == ["noted: a", "noted: b", "forgotten: a"]
    assert [(call["name"], call["success"]) for call in answer["toolCalls"]] == [
        ("remember", True),
        ("remember", True),
        ("forget", True),
    ]
    assert gate.turn(answer)["tool_calls"] == 3


def test_a_full_memory_says_so(gate: AgentGate) -> None:
    half = "x" * (MOST_BYTES // 2)
    calls = remember("one", half), remember("two", half, "c2")
    gate.model.will(asks(*calls), streams("ok"))
    answer = gate.say("go")
    results = [message["content"] for message in gate.sent(1)[-2:]]
    assert results[0] == "noted: one"
    assert "the working memory is full" in results[1]
    assert "forget something first" in results[1]
    assert [s["status"] for s in gate.steps(answer, "memory_write")] == ["success", "error"]
    assert len(told(gate, answer, "session.updated")) == 1
    gate.model.will(asks(forget("one"), remember("two", half, "c2")), streams("ok"))
    gate.say("make room", answer["sessionId"])
    session = gate.gate.get(f"/sessions/{answer['sessionId']}").json
    assert session["working_memory"] == {"two": half}


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (forget("nobody"), "there is no note 'nobody'"),
        (remember(" ", "x"), "key must be 1 to 100 printable characters"),
        (remember("k" * 101, "x"), "key must be 1 to 100 printable characters"),
        (("c1", "remember", '{"key": "k"}'), "value: Field required"),
    ],
)
def test_what_cannot_be_done_is_an_error_for_the_model(
    gate: AgentGate, call: tuple[str, str, str], reason: str
) -> None:
    gate.model.will(asks(call), streams("ok"))
    answer = gate.say("go")
    assert reason in gate.sent(1)[-1]["content"]
    assert told(gate, answer, "session.updated") == []
    assert [s["error_type"] for s in gate.steps(answer, "memory_write")] == ["tool_error"]


def test_sessions_have_memories_of_their_own(gate: AgentGate) -> None:
    gate.model.will(asks(remember("k", "v")), streams("ok"), streams("ok"))
    gate.say("one")
    gate.say("two")
    assert gate.sent(2) == [{"role": "system", "content": "Be brief."}, user("two")]


# -- a plan ----------------------------------------------------------------------------------------

ITEMS = [{"text": "look"}, {"text": "tell", "state": "pending"}]


def work(gate: AgentGate, session: str | None = None) -> Row:
    """A task that is planned and begun."""
    update = plan("c2", action="update", number=1, state="in_progress")
    gate.model.will(asks(plan(action="set", items=ITEMS)), asks(update), streams("ok"))
    return gate.say("work", session, name="worker", mode="task")


def test_a_plan_is_kept_with_the_run(gate: AgentGate) -> None:
    answer = work(gate)
    kept = {
        "items": [{"text": "look", "state": "in_progress"}, {"text": "tell", "state": "pending"}]
    }
    (run,) = gate.gate.all(Run, Run.turn_id == answer["turnId"])
    assert run["planner_state"] == kept
    assert gate.gate.get(f"/runs/{answer['runId']}").json["planner_state"] == kept
    (shown,) = gate.gate.get(f"/turns/{answer['turnId']}").json["runs"]
    assert shown["planner_state"] == kept
    steps = gate.steps(answer, "planner")
    assert [(s["name"], s["tool_call_id"], s["status"]) for s in steps] == [
        ("plan", "c1", "success"),
        ("plan", "c2", "success"),
    ]
    updates = told(gate, answer, "run.updated")
    assert [update["reason"] for update in updates] == ["plan", "plan"]
    assert updates[-1]["planner_state"] == kept


def test_the_model_sees_the_plan_as_the_result_of_its_calls(gate: AgentGate) -> None:
    work(gate)
    assert gate.sent(2)[-1]["content"] == "1. [in_progress] look\n2. [pending] tell"
    assert system_parts(gate.sent(2)) == ["Be brief."]
    offered = [tool["function"]["name"] for tool in gate.model.asked[0].json["tools"]]
    assert offered == ["note", "plan"]


def test_after_a_compaction_the_plan_stands_in_front(gate: AgentGate) -> None:
    long = "tell what was found " * 40
    calls = [(f"n{n}", "note", orjson.dumps({"text": long}).decode()) for n in (1, 2)]
    gate.model.will(asks(plan(action="set", items=ITEMS)), *(asks(call) for call in calls))
    gate.model.will(streams("noted"), streams("done"))
    answer = gate.say("work", name="worker", mode="task")
    assert answer["message"]["content"] == "done"
    instructions, shown = system_parts(gate.sent(-1))
    assert instructions == "Be brief."
    assert shown.endswith("1. [pending] look\n2. [pending] tell")


def test_only_a_task_has_a_plan(gate: AgentGate) -> None:
    gate.model.will(streams("ok"))
    gate.say("talk", name="worker", mode="chat")
    offered = [tool["function"]["name"] for tool in gate.model.asked[0].json["tools"]]
    assert offered == ["note"]
    shown = gate.gate.get("/agents/worker").json["modes"]
    assert shown["task"]["tools"] == ["note", "plan"]
    assert (shown["task"]["planner"], shown["chat"]["planner"]) == (True, False)
    assert shown["chat"]["tools"] == ["note"]
    for mode, names in (("task", ["note", "plan"]), ("chat", ["note"])):
        session = gate.post("/sessions", {"agent": "worker", "mode": mode}).json
        assert [tool["name"] for tool in session["tools"]] == names


def test_a_new_turn_begins_without_a_plan(gate: AgentGate) -> None:
    answer = work(gate)
    gate.model.will(asks(plan(action="update", number=1, state="done")), streams("ok"))
    gate.say("on", answer["sessionId"], name="worker")
    assert 'there is no plan yet: make one with "set"' in gate.sent(-1)[-1]["content"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"action": "set"}, '"set" takes 1 to 50 items'),
        ({"action": "set", "items": [{"text": "x"}] * 51}, '"set" takes 1 to 50 items'),
        ({"action": "set", "items": [{"text": " "}]}, "must be 1 to 500 characters"),
        ({"action": "set", "items": [{"text": "x", "state": "lost"}]}, "items.0.state"),
        ({"action": "update", "number": 1}, "there is no plan yet"),
        ({"action": "drop"}, "action: Input should be 'set' or 'update'"),
    ],
)
def test_a_plan_that_cannot_be_is_an_error_for_the_model(
    gate: AgentGate, arguments: Row, reason: str
) -> None:
    gate.model.will(asks(plan(**arguments)), streams("ok"))
    answer = gate.say("work", name="worker", mode="task")
    assert reason in gate.sent(1)[-1]["content"]
    assert told(gate, answer, "run.updated") == []


def test_what_was_planned_stands_in_the_snapshot(gate: AgentGate) -> None:
    answer = work(gate)
    turn = gate.gate.get(f"/turns/{answer['turnId']}?expand=payloads").json
    snapshot = turn["config_snapshot"]
    assert snapshot["planner"] is True
    assert snapshot["context"] == {"window": 1200, "compact_at": 0.5, "keep_last_turns": 0}
    assert [tool["name"] for tool in snapshot["tools"]] == ["note", "plan"]


# -- the context of a session ----------------------------------------------------------------------


def context(gate: AgentGate, session: str, query: str = "") -> Row:
    reply = gate.gate.get(f"/sessions/{session}/context{query}")
    assert reply.status == 200, reply.body
    shown: Row = reply.json
    return shown


def test_the_context_tells_what_would_be_sent(gate: AgentGate) -> None:
    gate.model.will(asks(remember("name", "Ada")), streams("hello"), streams("again"))
    first = gate.say("one")
    second = gate.say("two", first["sessionId"])
    shown = context(gate, first["sessionId"], "?expand=payloads")
    parts = shown["parts"]
    assert [(part["part"], part["count"], part["turn_id"]) for part in parts] == [
        ("instructions", 1, None),
        ("working_memory", 1, None),
        ("turn", 4, first["turnId"]),
        ("turn", 2, second["turnId"]),
        ("tools", 3, None),
    ]
    gate.model.will(streams("ok"))
    gate.say("three", first["sessionId"])
    sent = gate.model.asked[-1].json
    assert [m for part in parts for m in part.get("messages", ())] == sent["messages"][:-1]
    assert parts[-1]["tools"] == sent["tools"]
    assert shown["used"] - sum(part["tokens"] for part in parts) == 3
    assert (shown["window"], shown["threshold"], shown["keep_last_turns"]) == (None, None, 4)


def test_sizes_come_without_what_is_sent(gate: AgentGate) -> None:
    gate.model.will(streams("ok"))
    session = gate.say("work", name="worker", mode="task")["sessionId"]
    shown = context(gate, session)
    assert (shown["window"], shown["threshold"], shown["model"]) == (1200, 600, "m")
    assert shown["remaining"] == 1200 - shown["used"]
    assert not any({"messages", "tools"} & part.keys() for part in shown["parts"])
    assert shown["parts"][-1]["count"] == 2


def test_of_a_clients_session_it_is_what_was_sent_last(gate: AgentGate) -> None:
    empty = gate.post("/sessions", {}).json["id"]
    shown = context(gate, empty)
    assert (shown["parts"], shown["used"], shown["step_id"]) == ([], None, None)
    gate.model.will(streams("ok"))
    body = {"model": "m", "messages": [{"role": "system", "content": "S"}, user("one")]}
    gate.gate.post(body, **{"x-session-id": empty})
    shown = context(gate, empty, "?expand=payloads")
    assert [(part["part"], part["messages"]) for part in shown["parts"]] == [
        ("instructions", body["messages"][:1]),
        ("history", body["messages"][1:]),
    ]
    assert shown["step_id"].startswith("step_")
    assert shown["used"] > 0


def test_a_session_that_there_is_not(gate: AgentGate) -> None:
    assert gate.gate.get("/sessions/nobody/context").status == 404
    assert gate.post("/sessions/nobody/compact", {}).status == 404
    assert gate.gate.get("/sessions/nobody/context?expand=x").status == 422
