"""Tools of MCP servers: real processes and sockets behind an agent, killed and started anew."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from agents_fixtures import AgentGate, a_test_with, agents, asks
from scripted_model import Row, says
from servers import DEADLINE, ROOT, Process, eventually, in_process, installed
from xgw.agents.mcp.servers import Servers
from xgw.config import Mcp
from xgw.config.rules import quoted
from xgw.providers.transport import Call

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

CLOCK = {"mcp": {"command": [sys.executable, "-m", "mcp_server_time", "--local-timezone=UTC"]}}
FETCH = [sys.executable, "-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"]
OWN = [sys.executable, str(ROOT / "tests" / "mcp_server.py")]
OLD = [sys.executable, str(ROOT / "tests" / "mcp_old_server.py")]
SECRET = "sk-mcp-server-secret-1"
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


class Served:
    """Agents with the tools of several servers; `notes` is where those of the tests tell of it."""

    def __init__(self, gate: AgentGate, notes: Path) -> None:
        self.gate = gate
        self.notes = notes

    def call(self, tool: str, arguments: str = "{}", name: str = "own") -> Row:
        """The step of one call, and what the model was told of it under `told`."""
        self.gate.model.will(asks(("c1", tool, arguments)), says("done"))
        answer = self.gate.say("go", name=name)
        assert answer["status"] == "success"
        (step,) = self.gate.steps(answer, "tool_call")
        return {**step, "told": self.gate.sent(-1)[-1]["content"]}

    def offered(self, number: int = -1) -> dict[str, Row]:
        """The tools in the model's request of this number."""
        tools = self.gate.model.asked[number].json.get("tools", ())
        return {tool["function"]["name"]: tool["function"] for tool in tools}


def tables(notes: Path) -> dict[str, Row]:
    env = {"NOTES": str(notes), "SECRET_TOKEN": SECRET}
    own = {"mcp": {"command": OWN, "env": env}}
    old = {"mcp": {"command": OLD, "env": env}}
    return {
        "clock": CLOCK,
        "web": {"mcp": {"command": FETCH}},
        "own": own,
        "slow": {**old, "timeout_seconds": 1, "max_output_bytes": 20},
        "old": {**old, "approval": "always"},
        "missing": {"mcp": {"command": ["no-such-program-here"]}},
        "dying": {"mcp": {"command": [sys.executable, "-c", "raise SystemExit('no licence')"]}},
        "far": {"mcp": {"url": "http://127.0.0.1:9/mcp"}},
    }


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder, notes = tmp_path_factory.mktemp("mcp"), tmp_path_factory.mktemp("notes")
    given = tables(notes)
    named = {name: {"model": "m", "tools": (name,)} for name in given}
    named["both"] = {"model": "m", "tools": ("calculator", "own", "slow")}
    with agents(folder, tools=given, agents=named) as gate:
        yield Served(gate, notes)
    assert children() == []


@pytest.fixture
def served(shared: Served) -> Iterator[Served]:
    for note in shared.notes.iterdir():
        note.unlink()
    with a_test_with(shared.gate):
        yield shared


def children(program: str = "mcp") -> list[int]:
    """Processes that this one started and that have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            named = program in (folder / "cmdline").read_text()
            if named and fields[1] == str(os.getpid()) and fields[0] != "Z":
                found.append(int(folder.name))
    return found


# -- servers from the package index ----------------------------------------------------------------


def test_an_agent_uses_the_tools_of_a_server(served: Served) -> None:
    step = served.call("get_current_time", '{"timezone": "Asia/Kolkata"}', "clock")
    assert (step["name"], step["status"], step["step_type"]) == (
        "get_current_time",
        "success",
        "tool_call",
    )
    told = json.loads(step["told"])
    assert told["timezone"] == "Asia/Kolkata"
    assert told["datetime"].endswith("+05:30")
    assert list(served.offered()) == ["get_current_time", "convert_time"]
    given = served.offered()["convert_time"]["parameters"]
    assert given["required"] == ["source_timezone", "time", "target_timezone"]


def test_the_turn_keeps_the_tools_as_they_were(served: Served) -> None:
    served.gate.model.will(says("hello"))
    turn = served.gate.turn(served.gate.say("hi", name="clock"))
    kept = orjson.loads(served.gate.gate.payload(turn["config_snapshot"]))
    assert [tool["name"] for tool in kept["tools"]] == ["get_current_time", "convert_time"]
    assert kept["tools"][0]["parameters"]["required"] == ["timezone"]


@pytest.mark.parametrize("path", ["/agents/clock", "/sessions"])
def test_its_tools_are_shown_before_anything_is_said(served: Served, path: str) -> None:
    is_list = path == "/sessions"
    gate = served.gate.gate
    shown = gate.post({"agent": "clock"}, path) if is_list else gate.get(path)
    assert [tool["name"] for tool in shown.json["tools"]] == ["get_current_time", "convert_time"]


def test_arguments_that_its_schema_refuses_never_reach_it(served: Served) -> None:
    step = served.call("get_current_time", '{"timezone": 5, "x": 1}', "clock")
    assert step["error_type"] == "tool_error"
    assert step["told"].startswith("Error: the arguments do not fit: timezone: 5 is not of type")


def test_what_the_tool_calls_an_error_is_a_failed_step(served: Served) -> None:
    step = served.call("get_current_time", '{"timezone": "Mars/Base"}', "clock")
    assert (step["status"], step["error_type"]) == ("error", "tool_error")
    assert "Invalid timezone" in step["told"]


@LINUX
def test_a_server_that_is_killed_in_a_call_fails_it_and_is_started_anew(served: Served) -> None:
    served.call("get_current_time", '{"timezone": "UTC"}', "clock")
    (pid,) = children("mcp_server_time")
    os.kill(pid, signal.SIGSTOP)
    served.gate.model.will(asks(("c1", "get_current_time", '{"timezone": "UTC"}')), says("sorry"))
    answer = served.gate.say("go", name="clock", wait=0)
    (source,) = served.gate.gate.services.agents["clock"].sources
    eventually(lambda: source.server.calls)
    os.kill(pid, signal.SIGKILL)
    assert served.gate.ended(answer)["status"] == "success"
    (step,) = served.gate.steps(answer, "tool_call")
    assert step["status"] == "error"
    assert step["error_message"] == "the MCP server ended before the call was answered"
    again = served.call("get_current_time", '{"timezone": "UTC"}', "clock")
    assert again["status"] == "success"
    assert children("mcp_server_time") != [pid]


@LINUX
def test_a_server_that_is_killed_while_it_fetches_a_page_fetches_the_next_one(
    served: Served,
) -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def site(environ: WSGIEnvironment, start: StartResponse) -> list[bytes]:
        if environ["PATH_INFO"] == "/slow":
            asked.set()
            assert goes_on.wait(DEADLINE)
        start("200 OK", [("Content-Type", "text/plain")])
        return [f"This is {environ['PATH_INFO']}".encode()]

    with in_process(site) as root:
        slow = asks(("c1", "fetch", f'{{"url": "{root}/slow"}}'))
        served.gate.model.will(slow, says("sorry"))
        answer = served.gate.say("go", name="web", wait=0)
        assert asked.wait(DEADLINE)
        (pid,) = children("mcp_server_fetch")
        os.kill(pid, signal.SIGKILL)
        assert served.gate.ended(answer)["status"] == "success"
        goes_on.set()
        (step,) = served.gate.steps(answer, "tool_call")
        assert (step["name"], step["status"]) == ("fetch", "error")
        assert step["error_message"] == "the MCP server ended before the call was answered"
        told = served.gate.sent(-1)[-1]
        assert (told["tool_call_id"], told["content"]) == ("c1", f"Error: {step['error_message']}")
        again = served.call("fetch", f'{{"url": "{root}/next"}}', "web")
    assert again["status"] == "success"
    assert "This is /next" in again["told"]
    assert children("mcp_server_fetch") != [pid]


@LINUX
def test_a_server_that_ended_between_calls_is_started_anew(served: Served) -> None:
    served.call("add", '{"a": 1, "b": 2}')
    for pid in children("mcp_server.py"):
        os.kill(pid, signal.SIGKILL)
    # A call that comes before the end is noticed fails with it, as one under way does.
    eventually(lambda: served.call("add", '{"a": 1, "b": 2}')["told"] == "3")


# -- results, limits, ends -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("picture", "[image image/png, 100 bytes]\na dot"),
        ("result", 'see the picture\n[image image/gif, 3 bytes]\n{"dots":3}'),
        ("odd_name_tool", "odd"),
        ("fail", "Error: Error executing tool fail"),
    ],
)
def test_what_a_tool_returns_as_the_model_is_told(served: Served, tool: str, told: str) -> None:
    assert served.call(tool)["told"] == told


def test_a_secret_of_its_environment_is_never_recorded_nor_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert served.call("environment", '{"name": "SECRET_TOKEN"}')["told"] == "[masked]"
        assert served.call("environment", '{"name": "PATH"}')["told"] == os.environ["PATH"]
    assert SECRET not in caplog.text


def test_a_process_gets_no_more_of_the_environment_than_it_needs(served: Served) -> None:
    os.environ["XGW_TEST_PRIVATE"] = "1"
    try:
        told = served.call("environment", '{"name": "XGW_TEST_PRIVATE"}')["told"]
    finally:
        del os.environ["XGW_TEST_PRIVATE"]
    assert told == "unset"


def test_a_call_that_takes_too_long_is_abandoned_and_cancelled(served: Served) -> None:
    step = served.call("wait", name="slow")
    assert step["error_message"] == "it took longer than 1 s"
    eventually((served.notes / "cancelled").exists)


def test_a_result_that_is_too_large_is_refused(served: Served) -> None:
    step = served.call("much", name="slow")
    assert "more than the 20 that are allowed" in step["error_message"]


def test_a_cancelled_turn_abandons_the_call_and_tells_the_server(served: Served) -> None:
    served.gate.model.will(asks(("c1", "wait", "{}")))
    answer = served.gate.say("go", name="own", wait=0)
    eventually((served.notes / "waits").exists)
    assert served.gate.cancel(answer["turnId"]).status == 200
    assert served.gate.ended(answer)["ended_by"] == "user_cancel"
    eventually((served.notes / "cancelled").exists)


def test_names_that_clash_get_their_servers_before_them(served: Served) -> None:
    served.gate.model.will(asks(("c1", "slow_add", '{"a": 2, "b": 2}')), says("done"))
    answer = served.gate.say("go", name="both")
    assert [step["status"] for step in served.gate.steps(answer, "tool_call")] == ["success"]
    assert served.gate.sent(-1)[-1]["content"] == "4"
    names = list(served.offered(0))
    assert names[:3] == ["calculator", "add", "fail"]
    assert {"odd_name_tool", "slow_add", "slow_grow", "slow_wait", "much"} < set(names)


@pytest.mark.parametrize(("name", "grown"), [("slow", "grown4"), ("own", "grown")])
def test_tools_that_are_added_are_offered_from_the_next_turn_on(
    served: Served, name: str, grown: str
) -> None:
    assert grown not in served.gate.gate.get(f"/agents/{name}").json["modes"]["chat"]["tools"]
    served.call("grow", name=name)

    def is_offered() -> bool:
        served.gate.model.will(says("hello"))
        served.gate.say("hi", name=name)
        return grown in served.offered()

    eventually(is_offered)


def test_a_person_is_asked_before_each_call_where_the_table_says_so(served: Served) -> None:
    served.gate.model.will(asks(("c1", "add", '{"a": 1, "b": 2}')), says("done"))
    answer = served.gate.say("go", name="old")
    assert answer["runStatus"] == "waiting_tool"
    wrong = {"tool_call_id": "c1", "decision": "approve", "arguments": {"a": "x"}}
    path = f"/runs/{answer['runId']}/approvals"
    assert served.gate.post(path, wrong).error["param"] == "arguments"
    given = {**wrong, "arguments": {"a": 40, "b": 2}}
    assert served.gate.post(path, given).status == 200
    assert served.gate.ended(answer)["status"] == "success"
    assert served.gate.sent(-1)[-1]["content"] == "42"


# -- servers that cannot be used -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing", "cannot be started: No such file or directory: no-such-program-here"),
        ("dying", "cannot be started: no licence"),
        ("far", "cannot be reached at http://127.0.0.1:9/mcp: All connection attempts failed"),
    ],
)
def test_a_server_that_cannot_be_used_is_told_where_it_is_needed(
    served: Served, name: str, problem: str
) -> None:
    sentence = f"the MCP server of [tools.{name}] {problem}"
    answer = served.gate.say("hi", name=name)
    assert (answer["status"], answer["error"]) == (
        "error",
        {"type": "tool_error", "message": sentence},
    )
    shown = served.gate.gate.get(f"/agents/{name}").json
    assert (shown["tools"], shown["problems"]) == ([], [sentence])
    assert served.gate.model.asked == []


def test_without_the_library_it_is_said_what_to_install(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "xgw.agents.mcp.connection", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    servers = Servers()
    server = servers.take("any", Mcp.model_validate({"command": ["any"]}))
    server.look(10)
    servers.close()
    assert server.problem == "needs a library that is not installed: pip install 'xgw[mcp]'"


def test_check_and_agents_tell_of_a_server_that_cannot_be_started(tmp_path: Path) -> None:
    text = (
        '[[providers]]\nname = "p"\nbase_url = "http://127.0.0.1:1/v1"\n'
        '[agents.a]\nmodel = "m"\ntools = ["files", "old"]\n'
        '[tools.files]\nmcp = { command = ["./no-such-program"] }\n'
        f"[tools.old]\nmcp = {{ command = [{quoted(OLD[0])}, {quoted(OLD[1])}] }}\n"
    )
    with installed(tmp_path, text) as one:
        check, listed = one.run("check"), one.run("agents")
    assert (check.returncode, check.stdout) == (2, "")
    problem = "cannot be started: No such file or directory: ./no-such-program"
    assert check.stderr.endswith(f"xgw.toml:8: [tools.files.mcp] command {problem}\n")
    assert listed.returncode == 0
    assert "grow" in listed.stdout
    assert f"a: the MCP server of [tools.files] {problem}" in listed.stderr


# -- by HTTP ---------------------------------------------------------------------------------------


def test_a_server_is_reached_by_http_and_again_once_it_was_started_anew(tmp_path: Path) -> None:
    port, env = free_port(), {"NOTES": str(tmp_path), "UVICORN_LOG_LEVEL": "error"}
    first = started(port, env)
    try:
        tool = {"mcp": {"url": f"http://127.0.0.1:{port}/mcp", "headers": {"X-Team": "a"}}}
        named = {"web": {"model": "m", "tools": ("web",)}}
        with agents(tmp_path, tools={"web": tool}, agents=named) as gate:
            served = Served(gate, tmp_path)
            assert served.call("add", '{"a": 1, "b": 2}', "web")["told"] == "3"
            gate.model.will(asks(("c1", "wait", "{}")), says("sorry"))
            answer = gate.say("go", name="web", wait=0)
            eventually((tmp_path / "waits").exists)
            first.send(signal.SIGKILL)
            assert gate.ended(answer)["status"] == "success"
            (step,) = gate.steps(answer, "tool_call")
            assert step["error_message"] == "the MCP server ended before the call was answered"
            first.close()
            first = started(port, env)
            assert served.call("add", '{"a": 1, "b": 2}', "web")["told"] == "3"
    finally:
        first.close()


def free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def started(port: int, env: Row) -> Process:
    """The tests' own server at this port, once it listens."""
    process = Process([*OWN, str(port)], env)
    process.stderr.wait_for("Uvicorn running")
    return process


# -- the end ---------------------------------------------------------------------------------------

HOLDER = """
import sys, threading
from xgw.agents.mcp.servers import Servers
from xgw.config import Mcp
from xgw.providers.transport import Call
table = {"command": sys.argv[1:3], "env": {"NOTES": sys.argv[3]}}
server = Servers().take("own", Mcp.model_validate(table))
server.tools(Call())
print("http://ready/v1", flush=True)
threading.Event().wait()
"""


@LINUX
def test_a_process_ends_with_xgw_also_when_that_is_killed(tmp_path: Path) -> None:
    holder = Process([sys.executable, "-c", HOLDER, *OLD, str(tmp_path)])
    try:
        holder.stdout.wait_for("ready")
        (pid,) = started_by(tmp_path)
        assert Path(f"/proc/{pid}").exists()
        holder.send(signal.SIGKILL)
        eventually(lambda: not is_running(pid))
    finally:
        holder.close()


def started_by(notes: Path) -> list[int]:
    """The processes that our own server was, by what it noted."""
    return [int(note.name.partition("-")[2]) for note in notes.glob("started-*")]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@LINUX
def test_a_server_whose_table_has_changed_ends(tmp_path: Path) -> None:
    servers = Servers()

    def take(**more: Any) -> Mcp:
        return Mcp.model_validate({"command": OLD, "env": {"NOTES": str(tmp_path), **more}})

    try:
        before = servers.take("own", take())
        assert servers.take("own", take()) is before
        before.tools(Call())
        (pid,) = started_by(tmp_path)
        after = servers.take("own", take(MORE="1"))
        servers.keep({after})
        eventually(lambda: not is_running(pid))
        assert before.call("add", {"a": 1, "b": 2}, Call()) == "3"
        assert len(started_by(tmp_path)) == 2
        eventually(lambda: not any(map(is_running, started_by(tmp_path))))
    finally:
        servers.close()
