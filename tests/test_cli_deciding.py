"""`xgw approve`, `deny`, `resume` and `rerun`, and what `xgw chat` tells of a turn that waits."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents_fixtures import asks
from scripted_model import HANG, Model, delta, result, stream
from servers import eventually, installed
from test_cli_chat import Chat, Terminal, says

CONFIG = """
[[providers]]
name = "p"
kind = "openai"
base_url = "{url}"
api_key = "sk-0123456789abcdef"
[[routes]]
model = "m"
targets = ["p/m"]
[agents.helper]
model = "m"
tools = ["note"]
[tools.note]
python = "{folder}/mine.py:note"
approval = "always"
"""
BOSS = """
[agents.boss]
model = "m"
handoffs = ["helper"]
"""
TOOL = '''
def note(text: str) -> str:
    """Keep a note."""
    return "kept: " + text
'''
NOTE = ("call_1", "note", '{"text": "x"}')


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Chat]:
    model = Model()
    (tmp_path / "mine.py").write_text(TOOL)
    try:
        with installed(tmp_path, CONFIG.format(url=model.url, folder=tmp_path)) as installation:
            yield Chat(installation, model)
        model.check()
    finally:
        model.close()


@pytest.fixture(params=["alone", "served"])
def chat(alone: Chat, request: pytest.FixtureRequest) -> Chat:
    """Without a server, and with one."""
    if request.param == "served":
        alone.installation.serve()
    return alone


def last_sent(chat: Chat) -> dict[str, Any]:
    message: dict[str, Any] = chat.model.asked[-1].json["messages"][-1]
    return message


def test_a_turn_that_waits_is_told_and_goes_on_as_it_is_decided(chat: Chat) -> None:
    chat.model.will(asks(NOTE), says("not", "ed"))
    done = chat.run("go")
    run = chat.show()["runs"][0]["id"]
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f'xgw: {run} waits: note {{"text":"x"}} (call_1)',
        f"xgw: decide with xgw approve {run} call_1, or xgw deny",
    ]
    for what in ("last", run):
        shown = chat.installation.run("show", what).stdout
        assert 'waits for   note {"text": "x"} (call_1)' in shown
        assert f"decide with xgw approve {run} call_1, or xgw deny" in shown
    approved = chat.installation.run("approve", "last", "call_1")
    assert (approved.returncode, approved.stdout, approved.stderr) == (0, "noted\n", "")
    assert last_sent(chat) == result("call_1", "kept: x")
    turn = chat.show()
    assert (turn["status"], len(turn["runs"])) == ("success", 1)
    (tool,) = [s for s in turn["runs"][0]["steps"] if s["step_type"] == "tool_call"]
    assert tool["metadata"]["decision"] == {"decision": "approve", "by": "cli"}
    again = chat.installation.run("deny", run, "call_1")
    assert again.returncode == 1
    assert "does not wait for a decision: it is success" in again.stderr


def test_whose_call_it_is_and_which_of_two_with_one_id(alone: Chat) -> None:
    """Two tasks were handed over, and the agent that has them asks for the same twice."""
    with (alone.installation.folder / "xgw.toml").open("a") as config:
        config.write(BOSS)
    alone.installation.serve()
    tasks = [(f"h{n}", "handoff_to_helper", '{"message": "do it"}') for n in range(2)]
    alone.model.will(asks(*tasks), asks(NOTE), asks(NOTE), says("one"), says("two"), says("both"))
    done = alone.run("-a", "boss", "--details", "go")
    run = alone.show()["runs"][0]["id"]
    waits = f'xgw: {run} waits: note {{"text":"x"}} of agent helper (call_1)'
    told = done.stderr.splitlines()
    assert sum('note {"text": "x"} (call_1) · agent helper' in line for line in told) == 2
    *lines, decide = (line for line in told if line.startswith("xgw: "))
    assert lines == [waits, waits]
    decide_with, step = decide.removesuffix(", or xgw deny").rsplit(" ", 1)
    assert decide_with == f"xgw: decide with xgw approve {run} call_1 --step"
    shown = " ".join(alone.installation.run("show", "last").stdout.split())
    assert 'waits for note {"text": "x"} of agent helper (call_1)' in shown
    assert f"xgw approve {run} call_1 --step {step}, or xgw deny" in shown
    unsure = alone.installation.run("approve", "last", "call_1")
    assert unsure.returncode == 1
    assert "step_id has to tell which" in unsure.stderr
    first = alone.installation.run("deny", "last", "call_1", "--step", step)
    assert f"xgw approve {run} call_1, or xgw deny" in first.stderr
    last = alone.installation.run("approve", "last", "call_1")
    assert (last.returncode, last.stdout) == (0, "both\n")
    steps = alone.show()["runs"][0]["steps"]
    ends = sorted(s["status"] for s in steps if s["step_type"] == "tool_call")
    assert ends == ["error", "success"]


def test_arguments_results_and_reasons_are_a_persons(alone: Chat) -> None:
    alone.installation.serve()
    decide = alone.installation.run
    for words, told in (
        (("approve", "last", "call_1", "--arguments", '{"text": "y"}'), "kept: y"),
        (("approve", "last", "call_1", "--result", "by hand"), "by hand"),
        (("deny", "last", "call_1", "--reason", "no"), "Error: the call was denied: no"),
    ):
        alone.model.will(asks(NOTE), says("ok"))
        assert alone.run("go", "--json").returncode == 1
        done = decide(*words, "--json")
        assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "success")
        assert last_sent(alone) == result("call_1", told)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("approve", "last", "c", "--arguments", "{"), "--arguments must be JSON"),
        (("approve", "last", "c", "--arguments", "[1]"), "--arguments must be a JSON object"),
        (("approve", "last", "c", "--arguments", "{}", "--result", "x"), "exclude each other"),
        (("rerun", "last", "--param", "x"), "--param must be of the form name=value"),
    ],
)
def test_mistakes(alone: Chat, arguments: tuple[str, ...], words: str) -> None:
    done = alone.installation.run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr


def test_what_is_not_there(alone: Chat) -> None:
    done = alone.installation.run("resume", "last")
    assert (done.returncode, done.stderr.startswith("xgw: there is no store ")) == (2, True)


def test_a_turn_that_was_killed_goes_on(alone: Chat) -> None:
    alone.model.will(stream(delta("as far"), HANG), says("whole"))
    server = alone.installation.serve()
    talking = alone.installation.start("chat", "go", "-s", "k")
    talking.stdout.wait_for("as far")
    server.send_all(signal.SIGKILL)
    server.wait()
    talking.wait()
    assert alone.run("hello?", "-s", "k").returncode == 1
    shown = alone.show()
    assert (shown["status"], shown["runs"][0]["status"]) == ("running", "paused")
    run = shown["runs"][0]["id"]
    assert f"go on with  xgw resume {run}" in alone.installation.run("show", "last").stdout
    done = alone.installation.run("resume", "last")
    assert (done.returncode, done.stdout, done.stderr) == (0, "whole\n", "")
    assert [run["kind"] for run in alone.show()["runs"]] == ["first", "resume"]


def test_a_turn_is_run_again(chat: Chat) -> None:
    chat.model.will(says("one"), says("two"), says("three"))
    chat.run("hi")
    wanted = ("--message", "hello", "--instructions", "Be brief.", "--param", "temperature=0")
    done = chat.installation.run("rerun", "last", *wanted, "--reuse", "none")
    assert (done.returncode, done.stdout, done.stderr) == (0, "two\n", "")
    asked = chat.model.asked[1].json
    assert (asked["temperature"], chat.asked(1)) == (0, ["Be brief.", "hello"])
    step = chat.show()["runs"][1]["steps"][0]["id"]
    run = chat.installation.run("rerun", "last", "--from-step", step, "--json")
    assert json.loads(run.stdout)["from_step_id"] == step


@pytest.fixture
def terminal(alone: Chat) -> Iterator[Terminal]:
    terminal = Terminal(alone.installation.command("chat"), alone.installation.folder)
    terminal.out.wait_for("helper>")
    yield terminal
    terminal.close()


def test_in_a_conversation_the_person_is_asked(alone: Chat, terminal: Terminal) -> None:
    second = ("call_2", "note", '{"text": "y"}')
    alone.model.will(asks(NOTE, second), asks(NOTE), asks(NOTE), says("all noted"))
    terminal.type("go\r")
    terminal.out.wait_for(r'run note \{"text":"x"\}\?.*ater:')
    terminal.type("y\r")
    terminal.out.wait_for(r'run note \{"text":"y"\}\?.*ater:')
    terminal.type("n\r")
    terminal.out.wait_for("why not")
    terminal.type("enough\r")
    terminal.out.wait_for(r'(?s)why not.*run note \{"text":"x"\}\?.*ater:')
    assert [m["content"] for m in alone.model.asked[1].json["messages"][-2:]] == [
        *("kept: x", "Error: the call was denied: enough"),
    ]
    terminal.type("e\r")
    terminal.out.wait_for("arguments:")
    terminal.type("\x15" + '{"text": "z"}\r')
    eventually(lambda: len(alone.model.asked) == 3)
    assert last_sent(alone)["content"] == "kept: z"
    terminal.out.wait_for(r"(?s)arguments:.*ater:")
    terminal.type("l\r")
    terminal.out.wait_for("decide with xgw approve")
    terminal.out.wait_for("(?s)decide with xgw approve.*helper>")
    terminal.type("\x04")
    assert terminal.wait() == 0
    assert alone.installation.run("approve", "last", "call_1").stdout == "all noted\n"


def test_what_waits_is_cancelled_there(alone: Chat, terminal: Terminal) -> None:
    alone.model.will(asks(NOTE))
    terminal.type("/cancel\r")
    terminal.out.wait_for("there is nothing to cancel")
    terminal.type("go\r")
    terminal.out.wait_for(r"run note .*ater:")
    terminal.type("l\r")
    terminal.out.wait_for("(?s)decide with xgw approve.*helper>")
    terminal.type("and this?\r")
    in_line = r"(?s)turn_\w+ waits for another turn of the session to end.*run_\w+ waits: note"
    terminal.out.wait_for(in_line)
    os.killpg(terminal.process.pid, signal.SIGINT)
    terminal.out.wait_for(r"(?s)to end.*turn_\w+ was cancelled.*helper>")
    terminal.type("/cancel\r")
    terminal.out.wait_for(r"turn_\w+ is cancelled")
    alone.model.will(says("on we go"))
    terminal.type("once more\r")
    terminal.out.wait_for("(?s)on we go.*helper>")
    assert last_sent(alone)["content"] == "once more"
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_a_turn_is_run_once_more_there(alone: Chat, terminal: Terminal) -> None:
    alone.model.will(asks(NOTE), says("the first way"), asks(NOTE), says("another way"))
    terminal.type("/retry\r")
    terminal.out.wait_for("there is nothing to retry")
    terminal.type("go\r")
    terminal.out.wait_for(r"run note .*ater:")
    terminal.type("y\r")
    terminal.out.wait_for("(?s)the first way.*helper>")
    terminal.type("/retry\r")
    terminal.out.wait_for("(?s)another way.*helper>")
    assert alone.model.asked[2].json["messages"] == alone.model.asked[0].json["messages"]
    assert last_sent(alone) == result("call_1", "kept: x")
    terminal.type("\x04")
    assert terminal.wait() == 0
    turn = alone.show()
    assert (turn["final_output"], [run["kind"] for run in turn["runs"]]) == (
        "another way",
        ["first", "rerun"],
    )
