"""Requests at the same time, in one session and in one turn: nothing waits, nothing is swapped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from gateway_fixtures import Gate, Reply, a_test_of, gate_and_model
from scripted_model import (
    DONE,
    HANG,
    Asked,
    Row,
    asks_for,
    call,
    chat,
    completion,
    counts,
    delta,
    finish,
    named,
    result,
    said,
    says,
    stream,
    usage,
    user,
    whole,
)
from scripted_upstream import Peer
from servers import eventually
from xgw import clock
from xgw.gateway.closing import drop_open_tools
from xgw.gateway.state import OpenTool, TurnState
from xgw.recording.facts import Scope
from xgw.store.models import Event

ROUNDS = 50


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("parallel")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def echo(peer: Peer, asked: Asked) -> None:
    """Says what it was asked, and counts it."""
    text = asked.json["messages"][-1]["content"]
    number = int(text.rpartition("-")[2])
    if asked.json.get("stream"):
        pieces = [delta(part) for part in ("echo ", text)]
        stream(*pieces, finish(), usage(number, number + 1), DONE)(peer, asked)
    else:
        whole(completion(f"echo {text}", usage=counts(number, number + 1)))(peer, asked)


def at_once(requests: list[Callable[[], Reply]]) -> list[Reply]:
    """The answers to requests that leave together."""
    start = threading.Barrier(len(requests))

    def ask(request: Callable[[], Reply]) -> Reply:
        start.wait()
        return request()

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(ask, requests))


def one(gate: Gate, number: int, session: str, turn: str | None) -> Callable[[], Reply]:
    body = chat(f"q-{number}", stream=bool(number % 2), **named(session, turn))
    return lambda: gate.post(body)


def test_no_call_takes_longer_than_its_turn_beside_others(gate: Gate) -> None:
    gate.model.always(echo)
    for number in range(20):
        asked = [one(gate, 100 * number + n, "crowded", None) for n in range(8)]
        for reply in at_once(asked):
            turn = gate.turn(reply)
            (step,) = gate.steps(turn)
            assert step["started_at"] == turn["started_at"]
            assert step["latency_ms"] <= turn["latency_ms"]
            assert turn["busy_ms"] <= turn["latency_ms"] + 1


def check_step(step: Row, gate: Gate) -> None:
    """Its input, answer and usage belong together."""
    number = step["input_tokens"]
    assert step["output_tokens"] == number + 1
    assert f"q-{number}".encode() in gate.payload(step["input_payload"])
    assert f"echo q-{number}".encode() in gate.payload(step["output_payload"])


# -- many rounds -----------------------------------------------------------------------------------


def test_two_requests_at_once_in_one_session(gate: Gate) -> None:
    gate.model.always(echo)
    for number in range(0, 2 * ROUNDS, 2):
        at_once([one(gate, n, "both", None) for n in (number, number + 1)])
    turns = gate.turns("both")
    assert [t["turn_index"] for t in turns] == list(range(2 * ROUNDS))
    assert sorted(t["user_input"] for t in turns) == sorted(f"q-{n}" for n in range(2 * ROUNDS))
    for turn in turns:
        assert (turn["status"], turn["final_output"]) == ("success", f"echo {turn['user_input']}")
        (step,) = gate.steps(turn)
        check_step(step, gate)
        texts = [m["content"] for m in gate.messages(turn)]
        assert texts == [turn["user_input"], turn["final_output"]]
    session = gate.session("both")
    assert session["turn_count"] == session["request_count"] == 2 * ROUNDS
    assert session["message_count"] == 4 * ROUNDS
    assert session["input_tokens"] == sum(range(2 * ROUNDS))
    assert session["active_turn_id"] is None


def test_two_requests_at_once_in_one_turn(gate: Gate) -> None:
    gate.model.always(echo)
    for number in range(0, 2 * ROUNDS, 2):
        replies = at_once([one(gate, n, "one", f"t-{number}") for n in (number, number + 1)])
        assert len({reply.headers["x-run-id"] for reply in replies}) == 1
        turn = gate.turn(replies[0])
        steps = gate.steps(turn)
        assert [s["step_index"] for s in steps] == [0, 1]
        for step in steps:
            check_step(step, gate)
        assert turn["final_output"] in {f"echo q-{n}" for n in (number, number + 1)}
        assert (turn["status"], turn["llm_calls"], turn["attempts"]) == ("success", 2, 2)
        assert turn["input_tokens"] == 2 * number + 1
        assert [m["role"] for m in gate.messages(turn)].count("assistant") == 2
        assert gate.run(turn)["status"] == "success"
        last = max(steps, key=lambda s: str(s["ended_at"]))
        assert turn["ended_at"] == last["ended_at"]
        assert turn["final_output"] == f"echo q-{last['input_tokens']}"
    assert len(gate.turns("one")) == ROUNDS


def test_eight_first_requests_at_once(gate: Gate) -> None:
    gate.model.always(echo)
    for number in range(ROUNDS // 2):
        session = f"new-{number}"
        replies = at_once([one(gate, n, session, None) for n in range(8)])
        assert {reply.status for reply in replies} == {200}
        turns = gate.turns(session)
        assert [t["turn_index"] for t in turns] == list(range(8))
        assert gate.session(session)["turn_count"] == 8
        created = [e for e in gate.story(turns[0]) if e == "session.created"]
        assert created == ["session.created"]


def test_eight_first_requests_of_one_turn(gate: Gate) -> None:
    gate.model.always(echo)
    for number in range(ROUNDS // 5):
        replies = at_once([one(gate, n, f"first-{number}", "t") for n in range(8)])
        (turn,) = gate.turns(f"first-{number}")
        assert {gate.turn(reply)["id"] for reply in replies} == {turn["id"]}
        assert (turn["llm_calls"], turn["status"]) == (8, "success")
        assert turn["input_tokens"] == sum(range(8))


# -- one by one ------------------------------------------------------------------------------------


def test_the_request_that_ends_last_tells_how_the_turn_ended(gate: Gate) -> None:
    first, second = threading.Event(), threading.Event()
    gate.model.will(stream(delta("first"), first, finish(), DONE))
    a = gate.open(chat("a", stream=True, **named("last-wins", "t")))
    a.until(b"first")
    gate.model.will(stream(delta("second"), second, {"error": {"message": "broke"}}))
    b = gate.open(chat("b", stream=True, **named("last-wins", "t")))
    b.until(b"second")
    second.set()
    b.rest()
    turn = gate.turn(a)
    assert (turn["status"], turn["ended_at"], turn["error_type"]) == ("running", None, None)
    assert gate.run(turn)["status"] == "running"
    first.set()
    a.rest()
    turn = gate.turn(a)
    assert (turn["status"], turn["final_output"], turn["error_type"]) == ("success", "first", None)
    assert [s["status"] for s in gate.steps(turn)] == ["success", "error"]
    assert gate.story(turn)[-2:] == ["run.completed success", "turn.completed success finished"]


def test_a_turn_under_way_is_not_superseded(gate: Gate) -> None:
    go_on = threading.Event()
    gate.model.will(stream(delta("busy"), go_on, finish(), DONE), says("quick"))
    slow = gate.open(chat("slow", stream=True, **named("overlap")))
    slow.until(b"busy")
    gate.post(chat("quick", **named("overlap")))
    go_on.set()
    slow.rest()
    assert [(t["status"], t["final_output"]) for t in gate.turns("overlap")] == [
        ("success", "busy"),
        ("success", "quick"),
    ]


def test_a_result_while_another_request_of_the_turn_is_under_way(gate: Gate) -> None:
    go_on = threading.Event()
    gate.model.will(asks_for("c1"))
    gate.post(chat("look", **named("meanwhile", "t")))
    gate.model.will(stream(delta("aside"), go_on, finish(), DONE), says("found it"))
    aside = gate.open(chat("aside", stream=True, **named("meanwhile", "t")))
    aside.until(b"aside")
    history = [user("look"), said(None, call("c1")), result("c1")]
    gate.post(chat(*history, **named("meanwhile", "t")))
    turn = gate.turn(aside)
    assert (turn["status"], gate.run(turn)["status"]) == ("running", "running")
    go_on.set()
    aside.rest()
    turn = gate.turn(aside)
    assert (turn["status"], turn["llm_calls"], turn["final_output"]) == ("success", 3, "aside")
    assert [s["status"] for s in gate.steps(turn, "tool_call")] == ["success"]


def test_one_of_two_asks_for_a_tool_and_ends_first(gate: Gate) -> None:
    """The turn goes on waiting when the other one has ended."""
    go_on = threading.Event()
    gate.model.will(stream(delta("slow"), go_on, finish(), DONE), asks_for("w1"))
    slow = gate.open(chat("slow", stream=True, **named("one-waits", "t")))
    slow.until(b"slow")
    gate.post(chat("look", **named("one-waits", "t")))
    assert gate.run(gate.turn(slow))["status"] == "running"
    go_on.set()
    slow.rest()
    turn = gate.turn(slow)
    assert (turn["status"], gate.run(turn)["status"]) == ("running", "waiting_tool")
    gate.model.will(says("done"))
    history = [user("look"), said(None, call("w1")), result("w1")]
    turn = gate.turn(gate.post(chat(*history, **named("one-waits"))))
    assert (turn["status"], turn["llm_calls"]) == ("success", 3)


def test_the_client_of_one_of_two_leaves(gate: Gate) -> None:
    go_on = threading.Event()
    gate.model.will(stream(delta("gone"), HANG), stream(delta("stays"), go_on, finish(), DONE))
    gone = gate.open(chat("a", stream=True, **named("one-leaves", "t")))
    gone.until(b"gone")
    stays = gate.open(chat("b", stream=True, **named("one-leaves", "t")))
    stays.until(b"stays")
    gone.leave()
    turn = gate.turn(stays)
    eventually(lambda: gate.steps(turn)[0]["status"] == "cancelled")
    assert gate.turn(stays)["status"] == "running"
    go_on.set()
    stays.rest()
    turn = gate.turn(stays)
    assert (turn["status"], turn["final_output"]) == ("success", "stays")
    assert [s["status"] for s in gate.steps(turn)] == ["cancelled", "success"]


def test_each_turn_is_told_in_the_order_of_its_times(gate: Gate) -> None:
    gate.model.always(says())
    with ThreadPoolExecutor(8) as pool:
        bodies = [chat(f"hello {n}", **named("times")) for n in range(96)]
        for reply in pool.map(gate.post, bodies):
            assert reply.status == 200
    for turn in gate.turns("times"):
        times = [told["at"] for told in gate.all(Event, Event.turn_id == turn["id"])]
        assert times == sorted(times)


def test_a_tool_that_nobody_awaits_any_more_took_no_longer_than_its_turn() -> None:
    scope = Scope("default", "sess_x", "turn_x", "run_x", "0" * 32)
    turn = TurnState(scope, None, "waiting")
    ended_at = clock.now() - timedelta(seconds=60)
    turn.open_tool(OpenTool("step_x", "c", "look", "{}", clock.monotonic() - 100))
    (end,) = drop_open_tools(turn, ended_at)
    assert end.ended_at == ended_at
    assert end.latency_ms is not None
    assert end.latency_ms < 60_000
    assert list(turn.ended_tools) == ["c"]
