"""A server that is killed while it compacts a context: nothing has changed, and it goes on."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents_fixtures import asks
from faults import Running
from gateway_fixtures import PROVIDER_KEY
from scripted_model import HANG, Model, delta, says, stream
from servers import Installation, eventually, installed
from xgw.store.models import Message, Run, Step

CONFIG = """
[[providers]]
name = "p1"
base_url = "{url}"
api_key = "{key}"
[agents.brief]
model = "m"
context = {{ window = 2000, compact_at = 0.5, keep_last_turns = 1 }}
modes = {{ task = {{ planner = true }} }}
"""
PLAN = '{"action": "set", "items": [{"text": "look"}, {"text": "tell"}]}'
HALF = stream(delta("half a summary"), HANG)


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.check()
    model.close()


@pytest.fixture
def installation(tmp_path: Path, model: Model) -> Iterator[Installation]:
    with installed(tmp_path, CONFIG.format(url=model.url, key=PROVIDER_KEY)) as one:
        yield one


@contextlib.contextmanager
def running(installation: Installation, model: Model) -> Iterator[Running]:
    gate = Running(installation.serve(), model, installation.store)
    try:
        yield gate
    finally:
        gate.store.close()


def talk(gate: Running, model: Model, *messages: str) -> None:
    """Turns of the session `k`, each answered."""
    for message in messages:
        model.will(says(f"so: {message}"))
        body = {"message": message, "sessionId": "k"}
        assert gate.post(body, "/agents/brief/chat").status == 200


def kill_in_summary(gate: Running, model: Model, asked: int) -> None:
    """Once the model has begun to write a summary, and the record knows a part of it."""
    eventually(lambda: len(model.asked) == asked)
    eventually(lambda: gate.all(Step, Step.partial_output == "half a summary"))
    gate.server.send_all(signal.SIGKILL)
    gate.server.wait()


def check_nothing_changed(gate: Running) -> None:
    eventually(lambda: not gate.all(Step, Step.status == "running"))
    ended = gate.all(Step, Step.error_type == "interrupted")
    assert sorted(step["step_type"] for step in ended) == ["llm_call", "memory_write"]
    messages = gate.all(Message)
    assert not any(message["compacted_by_step_id"] for message in messages)
    assert not any("half" in message["content"] for message in messages)
    assert not any("half" in (turn["final_output"] or "") for turn in gate.turns("k"))
    assert gate.get("/sessions/k").json["session_summary"] is None


def test_killed_in_a_compaction_of_a_turn_nothing_has_changed(
    installation: Installation, model: Model
) -> None:
    long = "much to say " * 200
    message = {"message": long, "sessionId": "k", "wait": 0}
    with running(installation, model) as gate:
        talk(gate, model, long, "second")
        model.will(HALF)
        gate.post(message, "/agents/brief/chat")
        kill_in_summary(gate, model, 3)
    with running(installation, model) as gate:
        check_nothing_changed(gate)
        model.will(says("summary"), says("ok"))
        resume(gate)
        assert gate.turns("k")[-1]["final_output"] == "ok"
        assert gate.get("/sessions/k").json["session_summary"] == "summary"


def test_a_resumed_run_goes_on_with_its_plan(installation: Installation, model: Model) -> None:
    message = {"message": "work", "sessionId": "k", "mode": "task", "wait": 0}
    with running(installation, model) as gate:
        model.will(asks(("c1", "plan", PLAN)), HALF)
        gate.post(message, "/agents/brief/chat")
        kill_in_summary(gate, model, 2)
    with running(installation, model) as gate:
        update = '{"action": "update", "number": 2, "state": "done"}'
        model.will(asks(("c2", "plan", update)), says("ok"))
        resume(gate)
        first, resumed = gate.all(Run, by=Run.run_index)
        states = [[item["state"] for item in r["planner_state"]["items"]] for r in (first, resumed)]
        assert states == [["pending", "pending"], ["pending", "done"]]
    parts = [m["content"] for m in model.asked[2].json["messages"] if m["role"] == "system"]
    assert [part.endswith("1. [pending] look\n2. [pending] tell") for part in parts] == [True]


def resume(gate: Running) -> None:
    """Have the interrupted run of the newest turn go on, to its end."""
    eventually(lambda: gate.all(Run, Run.status == "paused"))
    (paused,) = gate.all(Run, Run.status == "paused")
    assert gate.post({}, f"/runs/{paused['id']}/resume").status == 201
    eventually(lambda: gate.turns("k")[-1]["ended_at"])


def test_killed_in_a_compaction_by_request_nothing_has_changed(
    installation: Installation, model: Model
) -> None:
    with running(installation, model) as gate:
        talk(gate, model, "first", "second")
        model.will(HALF)
        asking = threading.Thread(target=ask_to_compact, args=(gate,))
        asking.start()
        kill_in_summary(gate, model, 3)
        asking.join()
    with running(installation, model) as gate:
        check_nothing_changed(gate)
        assert [turn["status"] for turn in gate.turns("k")] == ["success", "success"]
        model.will(says("summary"), says("ok"))
        assert gate.post({}, "/sessions/k/compact").json["session_summary"] == "summary"
        talk_again = {"message": "third", "sessionId": "k"}
        assert gate.post(talk_again, "/agents/brief/chat").status == 200
    assert [m["content"] for m in model.asked[-1].json["messages"]][1:] == [
        "second",
        "so: second",
        "third",
    ]


def ask_to_compact(gate: Running) -> None:
    with contextlib.suppress(OSError):  # the server is killed meanwhile
        gate.post({}, "/sessions/k/compact")
