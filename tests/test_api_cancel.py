"""Cancelling turns: through the API and the command line, whatever they are doing."""

from __future__ import annotations

import contextlib
import http.client
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway_fixtures import Client, Gate, Reading, Records, Reply, a_test_of, gate_and_model
from scripted_model import (
    DONE,
    HANG,
    Model,
    Row,
    asks_for,
    chat,
    delta,
    finish,
    named,
    result,
    said,
    says,
    stream,
    streams,
    whole,
)
from scripted_model import (
    call as tool_call,
)
from servers import Installation, eventually, installed
from xgw.config import ClientKey, Server
from xgw.store.database import Store
from xgw.store.models import Turn

TOKEN, TEAM = "token-of-the-test", "key-of-the-team"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("cancel")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def cancel(gate: Client, turn_id: str, body: Any = None, **headers: str) -> Reply:
    return gate.post(body, f"/turns/{turn_id}/cancel", **headers)


def refusal(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.error["code"]


# -- under way -------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", ["held", None])
def test_a_stream_ends_with_one_error_event(gate: Gate, session: str | None) -> None:
    gate.model.will(stream(delta("so far"), HANG))
    reading = gate.open(chat(stream=True, **named(session)))
    reading.until(b"so far")
    turn_id = gate.turn(reading)["id"]
    reply = cancel(gate, turn_id)
    assert reply.status == 200
    shown = reply.json
    assert (shown["object"], shown["id"], shown["status"]) == ("turn", turn_id, "cancelled")
    assert (shown["ended_by"], shown["error"]) == ("user_cancel", None)
    assert shown["final_output"] == "so far"
    (run,) = shown["runs"]
    assert (run["status"], [s["status"] for s in run["steps"]]) == ("cancelled", ["cancelled"])
    events = reading.rest().events
    assert orjson.loads(events[-1])["error"]["code"] == "turn_cancelled"
    assert sum(b"error" in event for event in events) == 1
    assert b"[DONE]" not in events
    assert gate.story(gate.turn(reading))[-3:] == [
        "message.added assistant",
        "run.completed cancelled",
        "turn.completed cancelled user_cancel",
    ]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_that_still_waits_is_answered_409(gate: Gate, streamed: bool) -> None:
    gate.model.will(stream(HANG))
    connection = gate.send(chat(stream=streamed, **named(f"waits-{streamed}")))
    eventually(gate.model.was_asked)
    eventually(lambda: gate.all(Turn, Turn.status == "running"))
    (turn,) = gate.all(Turn, Turn.status == "running")
    assert cancel(gate, turn["id"], {}).json["status"] == "cancelled"
    reply = Reading(connection).rest()
    assert refusal(reply) == (409, "turn_cancelled")
    assert reply.headers["x-run-id"] == gate.run(turn)["id"]


def test_all_requests_of_a_turn_are_cancelled(gate: Gate) -> None:
    gate.model.will(stream(delta("one"), HANG), stream(delta("two"), HANG))
    readings = []
    for text in ("one", "two"):
        readings.append(gate.open(chat(text, stream=True, **named("two-calls", "k"))))
        readings[-1].until(text.encode())
    shown = cancel(gate, gate.turn(readings[0])["id"]).json
    assert [s["status"] for s in shown["runs"][0]["steps"]] == ["cancelled"] * 2
    assert all(b"turn_cancelled" in reading.rest().body for reading in readings)


def cancelling(gate: Gate, *held: Reading) -> tuple[list[Reply], threading.Thread]:
    """A cancel under way of the turn of these streams, once the first of them has heard of it."""
    replies: list[Reply] = []
    turn_id = gate.turn(held[0])["id"]
    thread = threading.Thread(target=lambda: replies.append(cancel(gate, turn_id)))
    thread.start()
    assert b"turn_cancelled" in held[0].rest().body
    return replies, thread


@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_that_comes_while_its_turn_is_cancelled_is_cancelled(
    gate: Gate, streamed: bool
) -> None:
    for number in range(10):
        key = named(f"comes-{streamed}-{number}", "k")
        gate.model.will(stream(delta("x"), HANG), stream(*[delta("x" * 60_000)] * 200, HANG))
        held = gate.open(chat(stream=True, **key))
        held.until(b"x")
        unread = gate.open(chat(stream=True, **key))
        replies, cancels = cancelling(gate, held)
        gate.model.always(says("on again"))
        reply = gate.post(chat("and this", stream=streamed, **key))
        cancels.join()
        unread.close()
        if reply.status == 409:  # else it came when all was over already, and the turn goes on
            break
    assert refusal(reply) == (409, "turn_cancelled")
    assert replies[0].json["status"] == "cancelled"
    turn = gate.turn(unread)
    assert [s["status"] for s in gate.steps(turn)] == ["cancelled"] * 3
    assert gate.story(turn).count("turn.completed cancelled user_cancel") == 1
    assert gate.turn(gate.post(chat("and again", **key)))["status"] == "success"


def test_a_turn_whose_last_answer_is_done_meanwhile_is_cancelled_all_the_same(gate: Gate) -> None:
    key = named("done", "k")
    gate.model.will(stream(delta("x"), HANG), says("x" * 12_000_000))
    held = gate.open(chat(stream=True, **key))
    held.until(b"x")
    done = gate.open(chat(stream=True, **key))
    replies, cancels = cancelling(gate, held)
    with contextlib.suppress(OSError, http.client.HTTPException):  # cut off: it was slow to read
        done.rest()
    cancels.join()
    assert replies[0].status == 200
    turn = gate.turn(done)
    assert (turn["status"], turn["ended_by"], turn["error_type"]) == (
        "cancelled",
        "user_cancel",
        None,
    )


def test_a_turn_that_goes_on_again_and_again_is_cancelled_each_time(gate: Gate) -> None:
    """A request that comes after the end opens the turn again: that is not cancelled with it."""
    key, over = named("again", "k"), threading.Event()
    gate.model.always(stream(delta("a"), delta("b"), finish(), DONE))
    replies: list[Reply] = []

    def ask() -> None:
        while not over.is_set():
            replies.append(gate.post(chat(stream=True, **key)))

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    eventually(lambda: replies)
    turn_id = gate.turns("again")[0]["id"]
    cancelled = [cancel(gate, turn_id) for _ in range(20)]
    over.set()
    for asker in askers:
        asker.join()
    assert {reply.status for reply in cancelled} <= {200, 409}
    assert {refusal(r)[1] for r in cancelled if r.status == 409} <= {"illegal_move"}
    assert {reply.status for reply in replies} <= {200, 409}


def test_a_client_that_takes_nothing_is_cut_off(gate: Gate) -> None:
    gate.model.will(stream(*[delta("x" * 60_000)] * 200, HANG))
    connection = gate.send(chat(stream=True, **named("unread")))
    eventually(gate.model.was_asked)
    eventually(lambda: gate.all(Turn, Turn.status == "running"))
    turn_id = gate.turns("unread")[0]["id"]
    assert cancel(gate, turn_id).json["ended_by"] == "user_cancel"
    connection.close()


# -- waiting, over, nowhere ------------------------------------------------------------------------


def test_a_turn_that_waits_for_tools_ends_at_once(gate: Gate) -> None:
    gate.model.will(asks_for("c1", "c2"))
    turn = gate.turn(gate.post(chat(**named("tools"))))
    shown = cancel(gate, turn["id"]).json
    assert (shown["status"], shown["ended_by"]) == ("cancelled", "user_cancel")
    tools = [s for s in shown["runs"][0]["steps"] if s["step_type"] == "tool_call"]
    assert [(s["status"], s["error_type"]) for s in tools] == [("cancelled", "no_result")] * 2
    assert gate.story(turn)[-4:] == [
        "step.completed cancelled",
        "step.completed cancelled",
        "run.completed cancelled",
        "turn.completed cancelled user_cancel",
    ]
    assert gate.session("tools")["active_turn_id"] is None


def test_a_result_that_comes_afterwards_opens_the_turn_again(gate: Gate) -> None:
    gate.model.will(asks_for("late"), says("all the same"))
    turn = gate.turn(gate.post(chat("q", **named("late"))))
    cancel(gate, turn["id"])
    gate.post(chat("q", said(None, tool_call("late")), result("late"), **named("late")))
    turn = gate.turn(gate.run(turn)["id"])
    assert (turn["status"], turn["final_output"]) == ("success", "all the same")


def test_what_is_over_cannot_be_cancelled(gate: Gate) -> None:
    gate.model.will(says())
    turn = gate.turn(gate.post(chat()))
    over = f"turn {turn['id']} is already over (success): there is nothing left to cancel"
    reply = cancel(gate, turn["id"])
    assert (*refusal(reply), reply.error["message"]) == (409, "illegal_move", over)
    gate.model.will(asks_for("c"))
    turn = gate.turn(gate.post(chat(**named("twice"))))
    assert cancel(gate, turn["id"]).status == 200
    twice = f"turn {turn['id']} is already cancelled (user_cancel): there is nothing left to cancel"
    reply = cancel(gate, turn["id"])
    assert (*refusal(reply), reply.error["message"]) == (409, "illegal_move", twice)


def test_why_it_is_over_is_told(gate: Gate) -> None:
    gate.model.will(whole({}, status="503 Service Unavailable"))
    turn = gate.turn(gate.post(chat()))
    over = f"turn {turn['id']} is already over (error, provider): there is nothing left to cancel"
    assert cancel(gate, turn["id"]).error["message"] == over


def test_what_is_not_there_or_not_asked_for_properly(gate: Gate) -> None:
    assert refusal(cancel(gate, "turn_" + "0" * 32)) == (404, "turn_not_found")
    gate.model.will(asks_for("c"))
    turn_id = gate.turn(gate.post(chat(**named("odd"))))["id"]
    assert cancel(gate, turn_id, {"why": "x"}).error["param"] == "why"
    assert cancel(gate, turn_id, []).status == 400
    assert gate.get(f"/turns/{turn_id}/cancel").status == 405
    assert cancel(gate, turn_id).status == 200


def test_cancelling_while_the_answer_ends(gate: Gate) -> None:
    """Either it was cancelled or it had ended; never both, and never neither."""
    for number in range(20):
        go = threading.Event()
        gate.model.will(stream(delta("x"), go, *[delta("y")] * 3, finish(), DONE))
        reading = gate.open(chat(stream=True, **named(f"race-{number}")))
        reading.until(b"x")
        turn_id = gate.turn(reading)["id"]
        go.set()
        reply = cancel(gate, turn_id)
        reading.rest()
        turn = gate.ended(reading)
        assert (reply.status == 200) == (turn["status"] == "cancelled"), turn["status"]
        assert reply.status in (200, 409)


def test_a_key_cancels_the_turns_of_its_project_alone(tmp_path: Path) -> None:
    keys = (ClientKey(key=TEAM, project="team"),)
    with gate_and_model(tmp_path, server=Server(token=TOKEN), keys=keys) as gate:
        gate.model.will(asks_for("c"), asks_for("c"))
        team, token = f"Bearer {TEAM}", f"Bearer {TOKEN}"
        own = gate.turn(gate.post(chat(**named("s")), authorization=token))["id"]
        mine = gate.turn(gate.post(chat(**named("s")), authorization=team))["id"]
        assert cancel(gate, own, authorization=team).status == 404
        assert cancel(gate, mine, authorization=team).status == 200
        assert cancel(gate, own, authorization=token).status == 200
        assert cancel(gate, own).status == 401


# -- the process is gone, the command line ---------------------------------------------------------


CONFIG = """
[[providers]]
name = "p1"
base_url = "{url}"
[[routes]]
model = "m"
targets = ["p1/m"]
"""


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.close()


@pytest.fixture
def place(tmp_path: Path, model: Model) -> Iterator[Installation]:
    with installed(tmp_path, CONFIG.format(url=model.url)) as place:
        yield place


def only_turn(place: Installation) -> Row:
    store = Store(place.store)
    try:
        (turn,) = Records(store).all(Turn)
        return turn
    finally:
        store.close()


def test_the_command_cancels_through_the_server(place: Installation, model: Model) -> None:
    server = place.serve(env={"XGW_TOKEN": "only-the-server-knows-it"})
    model.will(stream(delta("so far"), HANG))
    client = Client(server.url)
    key = "Bearer only-the-server-knows-it"
    reading = client.open(chat(stream=True, **named("s")), authorization=key)
    reading.until(b"so far")
    done = place.run("cancel", "last")
    assert done.returncode == 0, done.stderr
    assert b"turn_cancelled" in reading.rest().body
    turn = only_turn(place)
    assert turn["id"] in done.stdout
    assert turn["ended_by"] == "user_cancel"
    again = place.run("cancel", turn["id"])
    assert (again.returncode, again.stdout) == (1, "")
    over = f"turn {turn['id']} is already cancelled (user_cancel): there is nothing left to cancel"
    assert again.stderr == f"xgw: {over}\n"


def test_the_command_ends_what_a_killed_server_left(place: Installation, model: Model) -> None:
    server = place.serve()
    model.will(stream(delta("so far"), HANG))
    reading = Client(server.url).open(chat(stream=True, **named("s")))
    reading.until(b"so far")
    server.send_all(signal.SIGKILL)
    server.wait()
    reading.leave()
    done = place.run("cancel", "last", "--json")
    assert done.returncode == 0, done.stderr
    assert orjson.loads(done.stdout)["status"] == "cancelled"
    turn = only_turn(place)
    assert (turn["status"], turn["ended_by"], turn["error_type"]) == (
        "cancelled",
        "user_cancel",
        None,
    )


def test_a_server_cancels_what_waited_before_it_was_killed(
    place: Installation, model: Model
) -> None:
    server = place.serve()
    model.will(asks_for("c1"))
    Client(server.url).post(chat(**named("s")))
    server.send_all(signal.SIGKILL)
    server.wait()
    server = place.serve()
    turn = only_turn(place)
    assert turn["status"] == "running"
    shown = cancel(Client(server.url), turn["id"]).json
    assert (shown["status"], shown["ended_by"]) == ("cancelled", "user_cancel")
    assert shown["runs"][0]["steps"][1]["error_type"] == "no_result"


def test_the_command_with_nothing_to_cancel(place: Installation, model: Model) -> None:
    assert place.run("cancel", "last").returncode == 2
    server = place.serve()
    model.will(streams("done"))
    Client(server.url).post(chat(stream=True))
    server.stop()
    done = place.run("cancel", "last")
    assert done.returncode == 1
    over = (
        f"turn {only_turn(place)['id']} is already over (success): there is nothing left to cancel"
    )
    assert done.stderr == f"xgw: {over}\n"
    assert place.run("cancel", "turn_" + "0" * 32).returncode == 1
