"""Agents are read anew when a file that defines them changes, never under a turn under way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_gates import GATES, start_over, wait_for
from agents_fixtures import FILE, agent, agents, asks
from scripted_model import says
from xgw import config
from xgw.agents.definition import Definition
from xgw.agents.roster import Roster
from xgw.config import Config, Loaded

TEXT = """
[[providers]]
name = "p"
base_url = "http://127.0.0.1:1/v1"
[agents.a]
model = "m"
instructions_file = "prompt.md"
tools = ["mine"]
[tools.mine]
python = "mine.py:mine"
"""


class Folder:
    """A configuration with its files, and the agents read from it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changes = 0
        self.write("prompt.md", "Be brief.")
        self.write("mine.py", 'def mine():\n    return "one"\n')
        self.write("xgw.toml", TEXT)
        loaded = config.load(path / "xgw.toml", env={}, cwd=path, probe=lambda *_: False)
        self.agents = Roster(loaded, look_seconds=0)

    def write(self, name: str, text: str) -> None:
        """A new content, and a time that is surely another."""
        self._changes += 1
        path = self._path / name
        path.write_text(text)
        os.utime(path, (self._changes, self._changes))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def called(definition: Definition) -> str:
    return definition.tools[0].function.call({})


def test_each_file_that_defines_an_agent_counts(folder: Folder) -> None:
    before = folder.agents["a"]
    assert folder.agents["a"] is before
    folder.write("prompt.md", "Be long.")
    assert folder.agents["a"].instructions == "Be long."
    folder.write("mine.py", 'def mine():\n    return "two"\n')
    assert called(folder.agents["a"]) == "two"
    folder.write("xgw.toml", TEXT + '[agents.b]\nmodel = "m"\n')
    assert list(folder.agents) == ["a", "b"]
    assert (before.instructions, called(before)) == ("Be brief.", "one")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("xgw.toml", TEXT + "[agents.b]\n", "xgw.toml:11: [agents.b] model is missing"),
        ("xgw.toml", "[[", "xgw.toml:1: not valid TOML"),
        ("mine.py", "def other(): ...", "[tools.mine] python must name a function"),
    ],
)
def test_a_mistake_changes_nothing_and_is_told_once(
    folder: Folder, caplog: pytest.LogCaptureFixture, name: str, text: str, told: str
) -> None:
    folder.write(name, text)
    assert called(folder.agents["a"]) == "one"
    assert list(folder.agents) == ["a"]
    (line,) = caplog.messages
    assert told in line
    folder.write("xgw.toml", TEXT)
    folder.write("mine.py", 'def mine():\n    return "three"\n')
    assert called(folder.agents["a"]) == "three"


def test_without_a_file_there_is_nothing_to_read_anew() -> None:
    assert dict(Roster(Loaded(Config(), {}, None), look_seconds=0)) == {}


@pytest.fixture
def fresh_gates() -> Iterator[None]:
    start_over()
    yield
    start_over()


@pytest.mark.usefixtures("fresh_gates")
def test_a_turn_under_way_keeps_what_it_began_with(tmp_path: Path) -> None:
    with agents(tmp_path, agents={"a": agent(instructions="Before.")}) as gate:
        gate.model.will(asks(("c1", "stuck", "{}")), says("done"), says("new"))
        first = gate.say("go", "s", wait=0)
        wait_for("stuck runs")
        roster = gate.gate.services.agents
        changed = Config.model_validate(
            {
                "agents": {"a": {"model": "m", "instructions": "After."}},
                "tools": {"stuck": {"python": f"{FILE}:stuck"}},
            }
        )
        roster.replace(Loaded(changed, {}, None))
        GATES["free"].set()
        gate.ended(first)
        gate.say("again", "s")
        assert [gate.sent(n)[0]["content"] for n in range(3)] == ["Before.", "Before.", "After."]
        gate.model.check()


@pytest.mark.usefixtures("fresh_gates")
def test_a_turn_that_waits_for_an_agent_that_is_gone_ends_and_holds_nobody_up(
    tmp_path: Path,
) -> None:
    with agents(tmp_path, agents={"a": agent(), "b": agent()}) as gate:
        gate.model.will(asks(("c1", "stuck", "{}")), says("done"))
        first = gate.say("go", "s", wait=0)
        wait_for("stuck runs")
        second = gate.say("and then", "s", wait=0)
        services = gate.gate.services
        left = services.config.config.model_copy(update={"agents": {}})
        services.agents.replace(Loaded(left, {}, None))
        GATES["free"].set()
        assert gate.ended(first)["final_output"] == "done"
        turn = gate.ended(second)
        assert (turn["status"], turn["ended_by"]) == ("error", "gateway")
        assert turn["error_message"] == "its agent is not defined any more"
        assert gate.story(second) == [
            "session.created",
            "turn.queued",
            "turn.started",
            "run.started",
            "message.added user",
            "run.completed error",
            "turn.completed error gateway",
        ]
        services.agents.replace(services.config)
        gate.model.will(says("back"))
        assert gate.say("again", "s")["message"]["content"] == "back"
        assert [m["content"] for m in gate.sent(2)][-2:] == ["and then", "again"]
        gate.model.check()
