"""Handoffs: another agent works inside the turn, under the step of the call, within its limits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from agent_gates import GATES, RUNS
from agents_fixtures import AgentGate, a_test_with, agent, agents, asks, requested
from scripted_model import CUT, Asked, Model, Row, delta, result, says, stream, streams, user
from scripted_upstream import Peer
from servers import DEADLINE, eventually, installed
from xgw.store.models import Event, Message

TOOL = "handoff_to_billing"
TO_BILLING = ("h1", TOOL, '{"message": "What does A-17 cost?"}')
SYSTEM = {"role": "system", "content": "Be brief."}
BOOKS = {"role": "system", "content": "You keep the books."}

NAMED: Row = {
    "a": agent(handoffs=("billing", "round.trip"), limits={"max_iterations": 20}),
    "billing": {
        "description": "Knows what orders cost.",
        "model": "p1/books",
        "instructions": "You keep the books.",
        "tools": ("look", "stuck", "note"),
        "parameters": {"temperature": 0},
        "limits": {"max_iterations": 3},
    },
    "round.trip": {"model": "m", "handoffs": ("a", "billing")},
    "few": agent(handoffs=("billing",), limits={"max_iterations": 4}),
    "tight": agent(handoffs=("billing",), limits={"max_turn_tokens": 20}),
    "noted": {"model": "m", "handoffs": ("noting",)},
    "noting": {"model": "m", "tools": ("remember",)},
    "quick": agent(handoffs=("slow",)),
    "slow": {"model": "m", "tools": ("stuck",), "limits": {"max_seconds": 2}},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    with agents(tmp_path_factory.mktemp("handoffs"), agents=NAMED) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def tree(gate: AgentGate, answer: Row) -> list[tuple[str, str, int | None]]:
    """The steps in order: type, name, and the place of the one above it."""
    steps = gate.steps(answer)
    places = {step["id"]: place for place, step in enumerate(steps)}
    return [(s["step_type"], s["name"], places.get(s["parent_step_id"])) for s in steps]


# -- the ordinary way ------------------------------------------------------------------------------


def test_the_other_agent_works_under_the_step_of_the_call(gate: AgentGate) -> None:
    looked = ("c1", "look", '{"city": "A-17"}')
    gate.model.will(asks(TO_BILLING), asks(looked), streams("9 euros"), streams("It costs 9."))
    answer = gate.say("price?")
    assert answer["message"]["content"] == "It costs 9."
    assert tree(gate, answer) == [
        ("llm_call", "m", None),
        ("handoff", TOOL, 0),
        ("llm_call", "books", 1),
        ("tool_call", "look", 2),
        ("llm_call", "books", 1),
        ("llm_call", "m", None),
    ]
    returned = '{"city":"A-17","degrees":21,"unit":"c"}'
    question = user("What does A-17 cost?")
    assert gate.sent(1) == [BOOKS, question]
    assert gate.sent(2) == [BOOKS, question, requested(looked), result("c1", returned)]
    assert gate.sent(3) == [SYSTEM, user("price?"), requested(TO_BILLING), result("h1", "9 euros")]
    own = gate.model.asked[1].json
    assert (own["model"], own["temperature"]) == ("books", 0)
    assert [tool["function"]["name"] for tool in own["tools"]] == ["look", "stuck", "note"]


def test_the_model_is_told_whom_it_can_ask(gate: AgentGate) -> None:
    gate.model.will(says())
    gate.say("hi")
    *_, billing, trip = (tool["function"] for tool in gate.model.asked[0].json["tools"])
    assert (billing["name"], trip["name"]) == (TOOL, "handoff_to_round_trip")
    assert billing["description"].startswith(
        "Hand a task over to the agent billing: Knows what orders cost."
    )
    assert billing["parameters"]["required"] == ["message"]
    shown = gate.gate.get("/agents/a").json
    assert shown["handoffs"] == ["billing", "round.trip"]
    assert TOOL in shown["modes"]["chat"]["tools"]


def test_its_calls_are_told_and_counted(gate: AgentGate) -> None:
    gate.model.will(asks(TO_BILLING), streams("9 euros"), streams("It costs 9."))
    answer = gate.say("price?")
    turn = gate.turn(answer)
    assert gate.story(answer)[4:] == [
        "step.started llm_call",
        "step.completed success",
        "tool.requested",
        "message.added assistant",
        "step.started handoff",
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
    assert (turn["llm_calls"], turn["tool_calls"], turn["total_tokens"]) == (3, 1, 35)
    began = [e for e in gate.gate.events(turn) if e["type"] == "step.started"]
    handoff, inner = began[1], began[2]
    assert handoff["payload"]["agent_name"] == "billing"
    assert inner["payload"]["agent_name"] == "billing"
    assert inner["payload"]["parent_step_id"] == handoff["step_id"]
    assert "parent_step_id" not in began[3]["payload"]
    assert [call["name"] for call in answer["toolCalls"]] == [TOOL]
    kept = orjson.loads(gate.gate.payload(turn["config_snapshot"]))
    assert kept["handoffs"] == ["billing", "round.trip"]


def test_what_it_said_is_kept_and_stays_out_of_the_first_agents_context(gate: AgentGate) -> None:
    gate.model.will(asks(TO_BILLING), streams("9 euros"), streams("It costs 9."), says("bye"))
    answer = gate.say("price?")
    (handoff,) = gate.steps(answer, "handoff")
    said = gate.gate.messages(gate.turn(answer))
    inside = [m["content"] for m in said if (m["metadata"] or {}).get("handoff") == handoff["id"]]
    assert inside == ["9 euros"]
    gate.say("thanks", answer["sessionId"])
    assert gate.sent(-1) == [
        SYSTEM,
        user("price?"),
        requested(TO_BILLING),
        result("h1", "9 euros"),
        {"role": "assistant", "content": "It costs 9."},
        user("thanks"),
    ]
    session = gate.gate.get(f"/sessions/{answer['sessionId']}").json
    assert session["model"] == "m-served"
    first_after = gate.steps(answer)[-1]
    assert first_after["history"] == "appended"


def test_two_agents_work_at_the_same_time_with_tools_beside_them(gate: AgentGate) -> None:
    calls = [(f"h{n}", TOOL, '{"message": "go"}') for n in range(2)]
    gate.model.will(asks(*calls, ("n", "note", '{"text": "x"}')))
    gate.model.always(says("done"))
    answer = gate.say("both")
    assert gate.sent(-1)[-3:] == [
        result("h0", "done"),
        result("h1", "done"),
        result("n", "kept: x"),
    ]
    kinds = [kind for kind, *_ in tree(gate, answer)]
    assert (kinds.count("handoff"), kinds.count("llm_call")) == (2, 4)


def test_of_many_tasks_eight_are_worked_on_at_once(gate: AgentGate) -> None:
    calls = [(f"h{n}", TOOL, f'{{"message": "task {n}"}}') for n in range(11)]
    together, at_work, most = threading.Barrier(8), set[int](), []

    def answers(peer: Peer, asked: Asked) -> None:
        task = int(asked.json["messages"][-1]["content"].split()[-1])
        at_work.add(task)
        if task < 8:
            together.wait(DEADLINE)
        most.append(len(at_work))
        at_work.remove(task)
        says(f"did {task}")(peer, asked)

    gate.model.will(asks(*calls), *[answers] * 11, says("all"))
    assert gate.say("go")["message"]["content"] == "all"
    assert gate.sent(-1)[-11:] == [result(f"h{n}", f"did {n}") for n in range(11)]
    assert max(most) == 8


def test_agents_that_work_at_the_same_time_have_one_memory(gate: AgentGate) -> None:
    tasks = [(f"h{n}", "handoff_to_noting", f'{{"message": "{n}"}}') for n in range(4)]
    keys = {f"{task} {note}" for task in range(4) for note in range(10)}

    def answers(peer: Peer, asked: Asked) -> None:
        last = asked.json["messages"][-1]
        values = [f'{{"key": "{last["content"]} {n}", "value": "x"}}' for n in range(10)]
        notes = asks(*[(f"r{n}", "remember", value) for n, value in enumerate(values)])
        (notes if last["role"] == "user" else says("noted"))(peer, asked)

    gate.model.will(asks(*tasks), *[answers] * 8, says("all"))
    answer = gate.say("go", name="noted")
    kept = gate.gate.get(f"/sessions/{answer['sessionId']}").json["working_memory"]
    assert kept.keys() == keys
    system = gate.sent(-1)[0]["content"]
    assert all(f'"{key}"' in system for key in keys)


CONFIG = """
[[providers]]
name = "p1"
base_url = "{url}"
[agents.a]
model = "p1/m"
handoffs = ["billing"]
[agents.billing]
model = "p1/books"
"""


def test_the_shell_says_the_answer_of_the_turn_alone(tmp_path: Path) -> None:
    model = Model()
    model.will(asks(TO_BILLING), streams("9 ", "euros"), streams("It costs 9."))
    try:
        with installed(tmp_path, CONFIG.format(url=model.url)) as one:
            done = one.run("chat", "-a", "a", "--details", "price?")
            shown = one.run("show", "last")
        model.check()
    finally:
        model.close()
    assert (done.returncode, done.stdout) == (0, "It costs 9.\n")
    assert f'handoff {TOOL} · {{"message": "What does A-17 cost?"}}' in done.stderr
    assert "step.started       p1/books · agent billing" in done.stderr
    assert f"2 handoff {TOOL[:14]}" in shown.stdout
    assert " 3 · p1/m-served" in shown.stdout


# -- pages -----------------------------------------------------------------------------------------


def test_the_pages_show_it(gate: AgentGate) -> None:
    gate.model.will(asks(TO_BILLING), streams("9 euros"), streams("It costs 9."))
    answer = gate.say("price?")
    for path in (f"/ui/turns/{answer['turnId']}", f"/ui/sessions/{answer['sessionId']}"):
        page = gate.gate.get(path)
        assert page.status == 200
        assert b"9 euros" in page.body
    for step in gate.steps(answer):
        assert gate.gate.get(f"/ui/steps/{step['id']}").status == 200
        assert gate.gate.get(f"/steps/{step['id']}").status == 200
    bars = gate.gate.get(f"/ui/turns/{answer['turnId']}").body
    assert b"depth-2" in bars


def test_a_step_offers_a_rerun_where_a_run_can_begin(gate: AgentGate) -> None:
    look = asks(("c1", "look", '{"city": "x"}'))
    gate.model.will(asks(TO_BILLING), look, streams("9 euros"), streams("It costs 9."))
    answer = gate.say("price?")
    first, handoff, *others, last = gate.steps(answer)
    assert [step["step_type"] for step in others] == ["llm_call", "tool_call", "llm_call"]
    for step in (first, handoff, last):
        page = gate.gate.get(f"/ui/steps/{step['id']}").body.decode()
        assert "Run again from here" in page
        assert "Another agent's" not in page
    for step in others:
        page = gate.gate.get(f"/ui/steps/{step['id']}").body.decode()
        assert "Run again from here" not in page
        assert f'run again from <a class="link" href="/ui/steps/{handoff["id"]}"' in page
        path, body = f"/turns/{answer['turnId']}/runs", {"from_step_id": step["id"]}
        refused = gate.post(path, body)
        assert (refused.status, refused.error["param"]) == (422, "from_step_id")


# -- limits and ends -------------------------------------------------------------------------------


def test_the_limits_of_the_turn_hold_for_the_other_agent(gate: AgentGate) -> None:
    """The first answer takes 15 of 20 tokens, the other agent's first one the rest."""
    gate.model.will(asks(TO_BILLING), asks(("c1", "look", '{"city": "x"}')))
    answer = gate.say("price?", name="tight")
    assert (answer["status"], answer["limitReached"]) == ("error", "turn_tokens")
    (handoff,) = gate.steps(answer, "handoff")
    reason = "the agent billing came to no answer: the turn reached its limit of 20 (turn tokens)"
    assert handoff["error_message"] == reason
    assert gate.steps(answer, "tool_call")[0]["error_type"] == "no_result"


def test_agents_at_work_at_the_same_time_share_the_answers_that_are_left(gate: AgentGate) -> None:
    """Of four one has asked for six tasks: three of them are answered."""
    calls = [(f"h{n}", TOOL, '{"message": "go"}') for n in range(6)]
    together = threading.Barrier(3)

    def answers(peer: Peer, asked: Asked) -> None:
        together.wait(DEADLINE)
        says("9 euros")(peer, asked)

    gate.model.will(asks(*calls), *[answers] * 3)
    answer = gate.say("prices?", name="few")
    assert (answer["status"], answer["limitReached"]) == ("error", "iterations")
    assert len(gate.steps(answer, "llm_call")) == 4
    ended = [step["status"] for step in gate.steps(answer, "handoff")]
    assert sorted(ended) == ["error"] * 3 + ["success"] * 3


def test_its_own_limits_end_its_work_and_not_the_turn(gate: AgentGate) -> None:
    looks = [asks((f"c{n}", "look", '{"city": "x"}')) for n in range(3)]
    gate.model.will(asks(TO_BILLING), *looks, says("no price"))
    answer = gate.say("price?")
    assert answer["message"]["content"] == "no price"
    assert "its limit of 3 (iterations)" in gate.sent(-1)[-1]["content"]
    assert len(RUNS) == 2


def test_its_own_time_ends_its_work_and_not_the_turn(gate: AgentGate) -> None:
    gate.model.will(asks(("h", "handoff_to_slow", '{"message": "wait"}')))
    gate.model.will(asks(("c", "stuck", "{}")), says("too slow"))
    answer = gate.say("go", name="quick")
    assert answer["message"]["content"] == "too slow"
    (tool,) = gate.steps(answer, "tool_call")
    assert (tool["status"], tool["error_type"]) == ("cancelled", "no_result")


def test_agents_that_hand_over_to_one_another_come_to_an_end(gate: AgentGate) -> None:
    there = asks(("h", "handoff_to_round_trip", '{"message": "you"}'))
    back = asks(("h", "handoff_to_a", '{"message": "no, you"}'))
    gate.model.will(there, back, there, back, there)
    gate.model.always(says("enough"))
    answer = gate.say("who?")
    assert answer["status"] == "success"
    deepest = gate.steps(answer, "handoff")[-1]
    told = "4 tasks are handed over inside of one another already"
    assert (deepest["status"], deepest["error_message"]) == ("error", told)
    assert len(gate.steps(answer, "handoff")) == 5


def test_a_provider_that_fails_it_is_an_error_of_the_call(gate: AgentGate) -> None:
    gate.model.will(asks(TO_BILLING), stream(delta("9 eu"), CUT), says("cannot tell"))
    answer = gate.say("price?")
    assert answer["message"]["content"] == "cannot tell"
    first, handoff, inner, last = gate.steps(answer)
    assert (handoff["status"], inner["status"]) == ("error", "error")
    assert inner["error_type"] == "upstream_truncated"
    assert handoff["error_message"].startswith("the agent billing came to no answer: ")
    assert (first["status"], last["status"]) == ("success", "success")


def test_a_rerun_hands_the_task_over_anew_or_takes_the_recorded_answer(gate: AgentGate) -> None:
    gate.model.will(asks(TO_BILLING), streams("9 euros"), streams("It costs 9."))
    answer = gate.say("price?")
    gate.model.will(asks(TO_BILLING), streams("Still 9."))
    path = f"/turns/{answer['turnId']}/runs"
    assert gate.post(path, {"reuse": "results"}).status == 201
    eventually(lambda: gate.turn(answer)["final_output"] == "Still 9.")
    assert gate.sent(-1)[-1] == result("h1", "9 euros")
    gate.model.will(asks(TO_BILLING), streams("10 euros"), streams("Now 10."))
    assert gate.post(path, {"reuse": "none"}).status == 201
    eventually(lambda: gate.turn(answer)["final_output"] == "Now 10.")
    assert gate.sent(-1)[-1] == result("h1", "10 euros")
    inner = next(s for s in gate.steps(answer) if s["name"] == "books")
    refused = gate.post(path, {"from_step_id": inner["id"]})
    assert (refused.status, refused.error["param"]) == (422, "from_step_id")


@pytest.mark.parametrize("waits_in", ["a tool", "a model call"])
def test_a_cancel_ends_every_step_before_the_turn(gate: AgentGate, waits_in: str) -> None:
    gate.model.will(asks(TO_BILLING))
    if waits_in == "a tool":
        gate.model.will(asks(("c1", "stuck", "{}")))
    else:
        gate.model.will(stream(delta("9 "), GATES["never"].wait, delta("euros")))
    answer = gate.say("price?", wait=0)
    if waits_in == "a tool":
        assert GATES["stuck runs"].wait(DEADLINE)
    else:
        eventually(lambda: len(gate.model.asked) == 2)
    assert gate.cancel(answer["turnId"]).status == 200
    turn = gate.ended(answer)
    GATES["never"].set()
    assert turn["ended_by"] == "user_cancel"
    steps = gate.steps(answer)
    assert {step["status"] for step in steps[1:]} <= {"cancelled", "success"}
    assert [step["status"] for step in steps if step["step_type"] == "handoff"] == ["cancelled"]
    events = gate.gate.all(Event, Event.turn_id == answer["turnId"], by=Event.seq)
    assert events[-1]["type"] == "turn.completed"
    gate.model.will(says("again"))
    assert gate.say("and now?", answer["sessionId"])["status"] == "success"
    assert gate.gate.all(Message, Message.turn_id == answer["turnId"])


# -- configuration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handoffs", "line"),
    [
        ('["b", "nobody"]', 'handoffs must name other agents that there are (b), not "nobody"'),
        ('["a"]', 'handoffs must name other agents that there are (b), not "a"'),
        ('["b", "b"]', 'handoffs makes a tool handoff_to_b of "b", which is there already'),
    ],
)
def test_whom_it_names_has_to_be_there(tmp_path: Path, handoffs: str, line: str) -> None:
    text = f'[agents.b]\nmodel = "m"\n[agents.a]\nmodel = "m"\nhandoffs = {handoffs}\n'
    with installed(tmp_path, text) as one:
        done = one.run("check")
    assert done.returncode == 2
    assert f"xgw.toml:5: [agents.a] {line}" in done.stderr
