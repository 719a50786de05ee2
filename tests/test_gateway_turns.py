"""How requests become turns: what begins and what continues one, and the events that tell of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway_fixtures import CHAT, Gate, a_test_of, gate_and_model
from scripted_model import (
    Row,
    asks_for,
    chat,
    named,
    result,
    said,
    says,
    streams,
    user,
    whole,
)
from scripted_model import (
    call as tool_call,
)
from servers import DEADLINE
from xgw.store.transaction import Transaction

BEGUN = ["turn.started", "run.started", "message.added user", "step.started llm_call"]
ENDED = [
    "step.completed success",
    "message.added assistant",
    "run.completed success",
    "turn.completed success finished",
]
EMBEDDINGS = "/v1/embeddings"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("turns")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


# -- one turn --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"stream": True}])
def test_a_plain_turn(gate: Gate, fields: Row) -> None:
    gate.model.will(streams("o", "k") if fields else says("ok"))
    session = f"plain-{bool(fields)}"
    turn = gate.turn(gate.post(chat("hi", **fields, **named(session)), x_turn_id="k"))
    assert gate.story(turn) == ["session.created", *BEGUN, *ENDED]
    assert (turn["status"], turn["ended_by"], turn["finish_reason"]) == (
        "success",
        "finished",
        "stop",
    )
    assert (turn["user_input"], turn["final_output"]) == ("hi", "ok")
    assert (turn["final_provider_name"], turn["final_model"]) == ("p1", "m-served")
    assert (turn["turn_index"], turn["turn_key"], turn["endpoint"]) == (0, "k", "chat.completions")
    assert (turn["llm_calls"], turn["attempts"], turn["tool_calls"]) == (1, 1, 0)
    assert (turn["input_tokens"], turn["output_tokens"], turn["total_tokens"]) == (7, 3, 10)
    run = gate.run(turn)
    assert (run["run_index"], run["kind"], run["status"]) == (0, "first", "success")
    assert turn["started_at"] <= turn["ended_at"]
    assert gate.session(session)["active_turn_id"] is None


def test_a_turn_on_its_own(gate: Gate) -> None:
    gate.model.will(says())
    turn = gate.turn(gate.post(chat("hi")))
    assert gate.story(turn) == [*BEGUN, *ENDED]
    assert (turn["session_id"], turn["turn_index"]) == (None, 0)
    assert [m["message_index"] for m in gate.messages(turn)] == [0, 1]


@pytest.mark.parametrize("place", [{}, named("spans")], ids=["alone", "in a session"])
def test_no_call_takes_longer_than_its_turn(gate: Gate, place: Row) -> None:
    # What is done before a record begins takes less than a millisecond: a few round it up.
    for number in range(40):
        gate.model.will(says(f"answer {number}"))
        turn = gate.turn(gate.post(chat(f"question {number}", **place)))
        (step,) = gate.steps(turn)
        assert step["started_at"] == turn["started_at"]
        assert step["ended_at"] == turn["ended_at"]
        assert 0 <= step["latency_ms"] <= turn["latency_ms"]
        assert step["latency_ms"] == turn["latency_ms"] or place
        assert step["latency_ms"] <= turn["busy_ms"] + 1


def test_tools_end_before_the_call_that_brings_their_results(gate: Gate) -> None:
    for number in range(20):
        place = named("tool spans", f"t{number}")
        gate.model.will(asks_for(f"c{number}"), says("seen"))
        turn = gate.turn(gate.post(chat("look", **place)))
        asked = said(None, tool_call(f"c{number}"))
        gate.post(chat(user("look"), asked, result(f"c{number}", "a wall"), **place))
        one, tool, two = gate.steps(turn)
        assert one["ended_at"] <= tool["started_at"] <= tool["ended_at"] <= two["started_at"]


def test_what_the_events_of_a_turn_tell(gate: Gate) -> None:
    gate.model.will(says("answered"))
    turn = gate.turn(gate.post(chat("asked", **named("told", "t-1", task_id="task"))))
    told = {event["type"]: event for event in gate.events(turn)}
    started = told["turn.started"]["payload"]
    assert started["user_input"] == "asked"
    assert (started["turn_index"], started["task_id"]) == (0, "task")
    assert started["completed_at"] is None
    done = told["turn.completed"]["payload"]
    assert done["started_at"] == started["started_at"]
    assert done["completed_at"].endswith("Z")
    assert (done["final_output"], done["finish_reason"], done["error"]) == (
        "answered",
        "stop",
        None,
    )
    assert (done["total_tokens"], done["session_total_tokens"]) == (10, 10)
    assert told["step.started"]["step_id"] == told["step.completed"]["step_id"]
    assert told["session.created"]["payload"]["session_key"] == "told"
    assert {e["session_id"] for e in told.values()} == {turn["session_id"]}
    assert {e["run_id"] for e in told.values() if e["type"].startswith(("run.", "step."))} == {
        gate.run(turn)["id"]
    }


def test_each_user_input_is_a_turn_of_its_own(gate: Gate) -> None:
    gate.model.will(says("A1"), says("A2"), says("A3"))
    history = [user("Q1")]
    for number in (1, 2, 3):
        gate.post(chat(*history, **named("talk")))
        history += [said(f"A{number}"), user(f"Q{number + 1}")]
    turns = gate.turns("talk")
    told = [(t["turn_index"], t["user_input"], t["final_output"]) for t in turns]
    assert told == [(0, "Q1", "A1"), (1, "Q2", "A2"), (2, "Q3", "A3")]
    assert gate.story(turns[1])[1 + len(BEGUN) + len(ENDED) :] == []
    session = gate.session("talk")
    assert (session["turn_count"], session["message_count"]) == (3, 6)
    assert (session["request_count"], session["total_tokens"]) == (3, 30)
    assert session["last_turn_at"] == turns[2]["started_at"]


# -- continuing by a turn key ----------------------------------------------------------------------


def test_a_turn_key_continues_its_turn(gate: Gate) -> None:
    gate.model.will(says("first"), says("second"))
    gate.post(chat("one", **named("keyed", "k")))
    turn = gate.turn(gate.post(chat("one", said("first"), user("go on"), **named("keyed", "k"))))
    assert [t["id"] for t in gate.turns("keyed")] == [turn["id"]]
    reopened = ["turn.updated turn_key", "run.updated running"]
    assert gate.story(turn)[1:] == [
        *BEGUN,
        *ENDED,
        *reopened,
        "message.added user",
        "step.started llm_call",
        *ENDED,
    ]
    assert (turn["user_input"], turn["final_output"]) == ("one", "second")
    assert (turn["llm_calls"], turn["attempts"], turn["total_tokens"]) == (2, 2, 20)
    assert [s["step_index"] for s in gate.steps(turn)] == [0, 1]
    assert turn["ended_at"] == gate.steps(turn)[1]["ended_at"]


def test_a_turn_that_goes_on_has_neither_a_duration_nor_a_finish_reason(gate: Gate) -> None:
    gate.model.will(says("first"), asks_for("c1"))
    ended = gate.turn(gate.post(chat("one", **named("open again", "k"))))
    assert (ended["status"], ended["finish_reason"]) == ("success", "stop")
    history = [user("one"), said("first"), user("go on")]
    turn = gate.turn(gate.post(chat(*history, **named("open again", "k"))))
    assert (turn["id"], turn["status"]) == (ended["id"], "running")
    assert (turn["ended_at"], turn["latency_ms"], turn["finish_reason"]) == (None, None, None)
    run = gate.run(turn)
    assert (run["status"], run["latency_ms"]) == ("waiting_tool", None)


def test_a_failed_turn_goes_on_under_its_key_and_ends_well(gate: Gate) -> None:
    gate.model.will(whole({"error": {"message": "down"}}, status="500 Down"), says())
    failed = gate.turn(gate.post(chat("hi", **named("again", "k"))))
    assert (failed["status"], failed["error_type"]) == ("error", "upstream_error")
    turn = gate.turn(gate.post(chat("hi", **named("again", "k"))))
    assert turn["id"] == failed["id"]
    assert (turn["status"], turn["ended_by"]) == ("success", "finished")
    assert (turn["error_type"], turn["error_message"]) == (None, None)
    run = gate.run(turn)
    assert (run["status"], run["error_type"], run["error_message"]) == ("success", None, None)
    assert [m["role"] for m in gate.messages(turn)] == ["user", "assistant"]
    assert gate.story(turn)[5:] == [
        "llm.error upstream_error give_up",
        "step.completed error",
        "run.completed error",
        "turn.completed error provider",
        "turn.updated turn_key",
        "run.updated running",
        "step.started llm_call",
        *ENDED,
    ]


def test_a_key_of_another_session_begins_a_turn(gate: Gate) -> None:
    gate.model.will(says(), says())
    gate.post(chat(**named("one-home", "same-key")))
    gate.post(chat(**named("other-home", "same-key")))
    assert [len(gate.turns(s)) for s in ("one-home", "other-home")] == [1, 1]


# -- turns that wait -------------------------------------------------------------------------------


def test_a_new_user_message_supersedes_a_turn_that_waits(gate: Gate) -> None:
    gate.model.will(asks_for("call-1"), says("instead"))
    waiting = gate.turn(gate.post(chat("look", **named("changed-mind"))))
    assert (waiting["status"], gate.run(waiting)["status"]) == ("running", "waiting_tool")
    assert gate.session("changed-mind")["active_turn_id"] == waiting["id"]
    gate.post(chat("look", said(None), user("never mind"), **named("changed-mind")))
    old, new = gate.turns("changed-mind")
    assert (old["status"], old["ended_by"]) == ("cancelled", "superseded")
    assert (old["error_type"], old["finish_reason"]) == (None, None)
    assert gate.run(old)["ended_by"] == "superseded"
    tool = gate.steps(old, "tool_call")[0]
    assert (tool["status"], tool["error_type"]) == ("cancelled", "no_result")
    assert gate.story(old)[-3:] == [
        "step.completed cancelled",
        "run.completed cancelled",
        "turn.completed cancelled superseded",
    ]
    assert (new["status"], new["user_input"]) == ("success", "never mind")
    assert gate.session("changed-mind")["active_turn_id"] is None


def test_all_turns_that_wait_are_superseded(gate: Gate) -> None:
    gate.model.will(asks_for("a"), asks_for("b"), says())
    for key in ("k1", "k2"):
        gate.post(chat(**named("several", key)))
    assert [t["status"] for t in gate.turns("several")] == ["running", "running"]
    gate.post(chat("new", **named("several")))
    assert [t["ended_by"] for t in gate.turns("several")] == ["superseded"] * 2 + ["finished"]


def test_a_turn_key_leaves_others_waiting(gate: Gate) -> None:
    gate.model.will(asks_for("w1"), says())
    gate.post(chat("wait", **named("aside", "k1")))
    gate.post(chat("by the way", **named("aside", "k2")))
    assert [t["status"] for t in gate.turns("aside")] == ["running", "success"]
    assert gate.session("aside")["active_turn_id"] == gate.turns("aside")[0]["id"]


def test_a_request_without_a_new_user_message_supersedes_nothing(gate: Gate) -> None:
    gate.model.will(asks_for("w2"), says())
    gate.post(chat("wait", **named("no-input")))
    gate.post(chat("wait", said("hm"), **named("no-input")))
    old, new = gate.turns("no-input")
    assert (old["status"], new["status"]) == ("running", "success")
    assert gate.messages(new)[0]["role"] == "assistant"


def test_embeddings_never_supersede(gate: Gate) -> None:
    embedded = {"object": "list", "model": "e", "data": [], "usage": {"prompt_tokens": 2}}
    gate.model.will(asks_for("w3"), whole(embedded), says("done"))
    gate.post(chat("wait", **named("with-rag")))
    body = {"model": "m", "input": "some text", **named("with-rag")}
    turn = gate.turn(gate.post(body, EMBEDDINGS))
    assert (turn["endpoint"], turn["user_input"], turn["turn_index"]) == (
        "embeddings",
        "some text",
        1,
    )
    assert gate.turns("with-rag")[0]["status"] == "running"
    history = [user("wait"), said(None, tool_call("w3")), result("w3")]
    gate.post(chat(*history, **named("with-rag")))
    assert [t["status"] for t in gate.turns("with-rag")] == ["success", "success"]


# -- sessions of many turns, and closed ones -------------------------------------------------------


def test_an_old_turn_is_found_again(gate: Gate) -> None:
    """Long after it has left the memory: by its key, by its id, by a call that it asked for."""
    gate.model.will(asks_for("old-call"), *[says(f"A{n}") for n in range(12)])
    gate.post(chat("Q", **named("long", "first")))
    history = [user("Q"), said(None, tool_call("old-call")), result("old-call")]
    gate.post(chat(*history, **named("long")))
    for number in range(11):
        gate.post(chat(str(number), **named("long")))
    turns = gate.turns("long")
    assert [t["turn_index"] for t in turns] == list(range(12))
    gate.model.will(says("by key"), says("by id"), says("by call"))
    first = gate.turn(gate.post(chat("Q", **named("long", "first"))))
    assert (first["id"], first["final_output"]) == (turns[0]["id"], "by key")
    assert len(gate.messages(first)) == 5
    third = gate.turn(gate.post(chat("more", **named("long", turns[2]["id"]))))
    assert (third["id"], third["final_output"]) == (turns[2]["id"], "by id")
    late = gate.turn(gate.post(chat(*history[:2], result("old-call", "late"), **named("long"))))
    assert (late["id"], late["final_output"]) == (turns[0]["id"], "by call")
    assert [s["metadata"].get("late") for s in gate.steps(late, "tool_call")] == [None, True]
    assert len(gate.turns("long")) == 12


def test_traffic_opens_a_closed_session(gate: Gate) -> None:
    gate.model.will(says(), says())
    gate.post(chat(**named("closed")))
    session_id = gate.session("closed")["id"]

    def close(tx: Transaction) -> None:
        tx.execute("UPDATE sessions SET status = 'closed' WHERE id = ?", (session_id,))

    assert gate.services.writer.submit(close).wait(DEADLINE)
    turn = gate.turn(gate.post(chat(**named("closed"))))
    assert gate.session("closed")["status"] == "active"
    told = [e for e in gate.events(turn) if e["type"] == "session.updated"]
    assert [e["payload"] for e in told] == [{"status": "active"}]


def test_the_order_of_turns_is_that_of_their_index(gate: Gate) -> None:
    gate.model.will(*[says(str(n)) for n in range(5)])
    for number in range(5):
        gate.post(chat(str(number)), f"/s/quick{CHAT}")
    turns = gate.turns("quick")
    assert [t["turn_index"] for t in turns] == list(range(5))
    assert [t["started_at"] for t in turns] == sorted(t["started_at"] for t in turns)
