"""Forks: a new session with the history of another one up to a turn, and each whole by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent_gates import GATES
from agents_fixtures import AgentGate, a_test_with, agents, asks, requested
from gateway_fixtures import Reading
from scripted_model import Row, chat, named, result, says, user
from servers import eventually
from xgw.store.models import Event, Message, Run, Session
from xgw.store.transaction import Transaction
from xgw.store.writer import Patience

LONG = "a long answer " * 2000
SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    with agents(tmp_path_factory.mktemp("forks")) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def talk(gate: AgentGate) -> list[Row]:
    """A session of three turns; their answers."""
    gate.model.will(asks(("c1", "look", '{"city": "Oslo"}')), says("21 degrees"))
    answers = [gate.say("Oslo?")]
    for text in (LONG, "third"):
        gate.model.will(says(text))
        answers.append(gate.say(f"go on: {text[:5]}", answers[0]["sessionId"]))
    return answers


def fork(gate: AgentGate, answer: Row) -> Row:
    reply = gate.post(f"/sessions/{answer['sessionId']}/fork", {"turn_id": answer["turnId"]})
    assert reply.status == 201, reply.body
    forked: Row = reply.json
    return forked


def lists(gate: AgentGate, session_id: str, noun: str) -> list[Row]:
    path = f"/sessions/{session_id}/{noun}?limit=500&order=asc"
    found: list[Row] = gate.gate.get(path).json["data"]
    return found


def test_a_fork_has_the_history_up_to_the_turn_and_nothing_of_its_cost(gate: AgentGate) -> None:
    first, second, _ = talk(gate)
    forked = fork(gate, second)
    assert forked["forked_from_turn_id"] == second["turnId"]
    assert (forked["agent_name"], forked["turn_count"], forked["message_count"]) == ("a", 2, 6)
    assert set(forked["usage"].values()) <= {None, 0}
    turns = lists(gate, forked["id"], "turns")
    assert [turn["turn_index"] for turn in turns] == [0, 1]
    assert [turn["metadata"]["copied_from"] for turn in turns] == [
        first["turnId"],
        second["turnId"],
    ]
    assert [turn["final_output"] for turn in turns] == ["21 degrees", LONG]
    assert {turn["llm_calls"] for turn in turns} == {0}
    before, now = (
        lists(gate, session_id, "messages") for session_id in (first["sessionId"], forked["id"])
    )
    assert [(m["message_index"], m["role"], m["content"]) for m in now] == [
        (m["message_index"], m["role"], m["content"]) for m in before[:6]
    ]
    assert [m["metadata"]["copied_from"] for m in now] == [m["id"] for m in before[:6]]
    assert lists(gate, forked["id"], "steps") == []
    assert gate.gate.all(Run, Run.turn_id << [turn["id"] for turn in turns]) == []


def test_the_agent_goes_on_in_it_with_the_whole_context(gate: AgentGate) -> None:
    _, second, third = talk(gate)
    forked = fork(gate, second)
    gate.model.will(says("another way"))
    answer = gate.say("or else?", forked["id"])
    call = ("c1", "look", '{"city": "Oslo"}')
    assert gate.sent(-1) == [
        SYSTEM,
        user("Oslo?"),
        requested(call),
        result("c1", '{"city":"Oslo","degrees":21,"unit":"c"}'),
        {"role": "assistant", "content": "21 degrees"},
        user("go on: a lon"),
        {"role": "assistant", "content": LONG},
        user("or else?"),
    ]
    assert gate.turn(answer)["turn_index"] == 2
    indexes = [message["message_index"] for message in lists(gate, forked["id"], "messages")]
    assert indexes == list(range(8))
    assert answer["tokenUsage"]["sessionTotal"] == 10
    gate.model.will(says("fourth"))
    assert gate.say("and here?", third["sessionId"])["status"] == "success"
    assert user("or else?") not in gate.sent(-1)


@pytest.mark.parametrize("is_fork_deleted", [True, False])
def test_deleting_one_leaves_the_other_whole(gate: AgentGate, is_fork_deleted: bool) -> None:
    *_, last = talk(gate)
    forked = fork(gate, last)
    ends = (
        (forked["id"], last["sessionId"]) if is_fork_deleted else (last["sessionId"], forked["id"])
    )
    before = lists(gate, ends[1], "messages"), lists(gate, ends[1], "turns")
    deleted = Reading(gate.gate.send(None, f"/sessions/{ends[0]}", "DELETE")).rest()
    assert deleted.status == 204
    gate.gate.services.sweep.sweep()
    assert (lists(gate, ends[1], "messages"), lists(gate, ends[1], "turns")) == before
    assert LONG in [message["content"] for message in before[0]]


def test_two_events_tell_of_it(gate: AgentGate) -> None:
    first, *_ = talk(gate)
    forked = fork(gate, first)
    told = gate.gate.all(Event, Event.session_id == forked["id"], by=Event.seq)
    assert [event["type"] for event in told] == ["session.created", "session.updated"]
    assert told[0]["payload"]["agent"] == "a"
    assert told[1]["payload"] == {
        "turn_count": 1,
        "message_count": 4,
        "forked_from_turn_id": first["turnId"],
    }


def test_its_pages_and_its_turns_are_shown(gate: AgentGate) -> None:
    first, *_ = talk(gate)
    forked = fork(gate, first)
    page = gate.gate.get(f"/ui/sessions/{forked['id']}")
    assert page.status == 200
    assert b"21 degrees" in page.body
    (turn,) = lists(gate, forked["id"], "turns")
    assert gate.gate.get(f"/ui/turns/{turn['id']}").status == 200
    assert gate.gate.get(f"/turns/{turn['id']}").json["runs"] == []
    assert gate.gate.get("/ui/").status == 200


def test_a_fork_can_be_forked(gate: AgentGate) -> None:
    first, *_ = talk(gate)
    forked = fork(gate, first)
    (turn,) = lists(gate, forked["id"], "turns")
    again = fork(gate, {"sessionId": forked["id"], "turnId": turn["id"]})
    (copy,) = lists(gate, again["id"], "turns")
    assert copy["metadata"]["copied_from"] == turn["id"]


def test_of_a_turn_that_was_run_again_the_shown_run_goes_along(gate: AgentGate) -> None:
    gate.model.will(says("first try"), says("second try"), says("and on"))
    answer = gate.say("try", "again and again")
    again = gate.post(f"/turns/{answer['turnId']}/runs", {"message": "try harder"})
    assert again.status == 201
    eventually(lambda: gate.turn(answer)["final_output"] == "second try")
    eventually(lambda: gate.turn(answer)["status"] == "success")
    forked = fork(gate, answer)
    said = [message["content"] for message in lists(gate, forked["id"], "messages")]
    assert said == ["try harder", "second try"]
    gate.say("go on", forked["id"])
    assert gate.sent(-1) == [
        SYSTEM,
        user("try harder"),
        {"role": "assistant", "content": "second try"},
        user("go on"),
    ]


# -- what is not possible --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 422, "turn_id"),
        ({"turn_id": "turn_0"}, 422, "turn_id"),
        ({"turn_id": 5}, 422, "turn_id"),
        ({"turn_id": "x", "more": 1}, 422, "more"),
    ],
)
def test_what_names_no_turn_of_the_session_is_refused(
    gate: AgentGate, caplog: pytest.LogCaptureFixture, body: Any, status: int, param: str
) -> None:
    gate.model.will(says("one"), says("two"))
    session = gate.say("first")["sessionId"]
    other = gate.say("elsewhere")["turnId"]
    count = len(gate.gate.all(Session))
    for given in (body, {"turn_id": other}):
        reply = gate.post(f"/sessions/{session}/fork", given)
        assert reply.status == status
    assert gate.post(f"/sessions/{session}/fork", body).error["param"] == param
    assert len(gate.gate.all(Session)) == count
    assert "could not be recorded" not in caplog.text


def test_a_session_that_is_not_there_is_not_found(gate: AgentGate) -> None:
    assert gate.post("/sessions/none/fork", {"turn_id": "turn_0"}).status == 404


def test_a_turn_that_is_not_over_cannot_be_forked(gate: AgentGate) -> None:
    gate.model.will(asks(("c1", "stuck", "{}")), says("done"))
    answer = gate.say("go", wait=0)
    assert GATES["stuck runs"].wait(30)
    reply = gate.post(f"/sessions/{answer['sessionId']}/fork", {"turn_id": answer["turnId"]})
    assert (reply.status, reply.error["code"]) == (409, "turn_open")
    GATES["free"].set()
    gate.ended(answer)


def test_the_history_of_a_client_is_not_forked(gate: AgentGate) -> None:
    gate.model.will(says("hello"))
    gate.gate.post(chat("hi", **named("theirs")))
    eventually(lambda: gate.gate.all(Session, Session.session_key == "theirs"))
    (turn,) = lists(gate, "theirs", "turns")
    reply = gate.post("/sessions/theirs/fork", {"turn_id": turn["id"]})
    assert (reply.status, reply.error["code"]) == (409, "not_an_agents")


# -- what was compacted and remembered -------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_summary_goes_along_unless_it_knows_of_later_turns(gate: AgentGate, at: int) -> None:
    """The compaction was made in the second turn, and took the first one out of the context."""
    answers = talk(gate)
    step_id = gate.steps(answers[1])[0]["id"]
    summary, remembered = "they spoke of Oslo", {"city": "Oslo"}

    def compact(tx: Transaction) -> None:
        statement = "UPDATE messages SET compacted_by_step_id = ? WHERE turn_id = ?"
        tx.execute(statement, (step_id, answers[0]["turnId"]))
        tx.execute("UPDATE steps SET step_type = 'memory_write' WHERE id = ?", (step_id,))
        kept = {"session_summary": summary, "working_memory": remembered}
        tx.change("sessions", answers[0]["sessionId"], kept)

    writer = gate.gate.services.writer
    writer.wait(writer.submit(compact), Patience())
    forked = fork(gate, answers[at])
    copies = gate.gate.all(Message, Message.session_id == forked["id"], by=Message.message_index)
    taken_over = (forked["session_summary"], forked["working_memory"])
    assert taken_over == ((summary, remembered) if at else (None, None))
    assert copies[0]["compacted_by_step_id"] == (step_id if at else None)
