"""Agents in a server of its own: killed in a tool, and what the command line says of them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from agents_fixtures import asks, requested
from faults import Running
from gateway_fixtures import PROVIDER_KEY
from scripted_model import Model, says, user
from servers import XGW, Installation, eventually, installed

CONFIG = """
[[providers]]
name = "p1"
base_url = "{url}"
api_key = "{key}"
[agents.a]
description = "Waits"
model = "m"
tools = ["wait_long", "calculator"]
[tools.wait_long]
python = "{folder}/mine.py:wait_long"
timeout_seconds = 600
"""
TOOL = '''
def wait_long() -> str:
    """Wait until someone writes into a pipe."""
    with open("{folder}/ran", "a") as log:
        log.write("x")
    return open("{folder}/pipe").read()
'''


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.check()
    model.close()


@pytest.fixture
def installation(tmp_path: Path, model: Model) -> Iterator[Installation]:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "mine.py").write_text(TOOL.format(folder=tmp_path))
    config = CONFIG.format(url=model.url, key=PROVIDER_KEY, folder=tmp_path)
    with installed(tmp_path, config, XGW) as one:
        yield one


@contextlib.contextmanager
def running(installation: Installation, model: Model) -> Iterator[Running]:
    gate = Running(installation.serve(), model, installation.store)
    try:
        yield gate
    finally:
        gate.store.close()


def test_killed_in_a_tool_the_record_is_truthful_and_the_session_goes_on(
    installation: Installation, model: Model, tmp_path: Path
) -> None:
    model.will(asks(("c1", "wait_long", "{}")), says("second answer"), says("third answer"))
    path, message = "/agents/a/chat", {"message": "first", "sessionId": "k", "wait": 0}
    with running(installation, model) as gate:
        gate.post(message, path)
        eventually(lambda: (tmp_path / "ran").exists())
        assert gate.post({**message, "message": "second"}, path).json["queuePosition"] == 1
        gate.server.send_all(signal.SIGKILL)
        gate.server.wait()
    with running(installation, model) as gate:
        third = {"message": "third", "sessionId": "k"}
        assert gate.post(third, path).error["code"] == "turn_paused"
        gate.post({}, f"/turns/{gate.turns('k')[0]['id']}/cancel")
        assert gate.post(third, path).status == 200
        ends = [(t["user_input"], t["status"], t["ended_by"]) for t in gate.turns("k")]
        assert ends == [
            ("first", "cancelled", "user_cancel"),
            ("second", "success", "finished"),
            ("third", "success", "finished"),
        ]
        (tool,) = gate.steps(gate.turns("k")[0], "tool_call")
        assert (tool["status"], tool["error_type"]) == ("error", "interrupted")
    first, call, lost, second = model.asked[1].json["messages"]
    assert (first, second) == (user("first"), user("second"))
    assert call == requested(("c1", "wait_long", "{}"))
    assert (lost["tool_call_id"], lost["content"]) == (
        "c1",
        "Error: no result: it was cancelled",
    )
    assert (tmp_path / "ran").read_text() == "x"


def test_a_message_to_a_session_whose_process_was_just_killed_is_told_so(
    installation: Installation, model: Model, tmp_path: Path
) -> None:
    model.will(asks(("c1", "wait_long", "{}")))
    shell = installation.start("chat", "first", "-a", "a", "-s", "k")
    eventually(lambda: (tmp_path / "ran").exists())
    with running(installation, model) as gate:
        waits = gate.post({"message": "second", "sessionId": "k", "wait": 0}, "/agents/a/chat")
        assert (waits.status, waits.json["queuePosition"]) == (202, 1)
        gate.post({}, f"/turns/{waits.json['turnId']}/cancel")
        shell.send_all(signal.SIGKILL)
        shell.wait()
        refused = gate.post({"message": "third", "sessionId": "k"}, "/agents/a/chat")
        assert (refused.status, refused.error["code"]) == (409, "turn_paused")
        assert refused.error["actions"] == ["resume", "cancel"]
        first, second = gate.turns("k")
        assert (refused.error["turn_id"], first["status"]) == (first["id"], "running")
        assert second["status"] == "cancelled"


def test_agents_are_listed_with_all_that_they_are(installation: Installation) -> None:
    listed = installation.run("agents")
    assert listed.returncode == 0
    for told in ("a ", "m ", "wait_long, calculator", "Waits"):
        assert told in listed.stdout
    (agent,) = orjson.loads(installation.run("agents", "--json").stdout)["data"]
    assert (agent["name"], agent["modes"]["task"]["limits"]["max_iterations"]) == ("a", 10)
    assert agent["tools"][0]["description"] == "Wait until someone writes into a pipe."


@pytest.mark.parametrize("command", ["check", "agents", "serve"])
def test_a_tool_that_cannot_be_called_is_told_before_anything_starts(
    installation: Installation, tmp_path: Path, command: str
) -> None:
    (tmp_path / "mine.py").write_text("def wait_long(value, /): ...\n")
    done = installation.run(command)
    assert done.returncode == 2
    assert "[tools.wait_long] python takes value by position" in done.stderr
    assert "xgw.toml:11: " in done.stderr
