"""The server as a process: one for a store, found by others, restarted, stopped, killed."""

from __future__ import annotations

import datetime
import http.client
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import DEADLINE, STANDIN, XGW, Installation, ServerProcess, eventually, installed
from xgw import __version__
from xgw.cli.serve import TurnPrinter, banner, turn_line
from xgw.cli.server import ServerLock, bind, find_server, listen, url_of
from xgw.config import ClientKey, Config, Provider, Route, Server
from xgw.config.first_call import curl_line
from xgw.errors import UsageError
from xgw.events import Envelope
from xgw.hub import Hub

DEMO = Provider(name="demo", kind="demo")


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    with installed(tmp_path, program=STANDIN) as one:
        yield one


class Stream:
    """A request whose answer is under way."""

    def __init__(self, server: ServerProcess, path: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE)
        self._connection.request("GET", path)
        self._response = self._connection.getresponse()
        assert self._response.readline() == b"data: begun\n"

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()
        self._connection.close()

    def rest(self) -> bytes:
        return self._response.read().strip()


def ask(server: ServerProcess, path: str = "/health") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


# -- one server for a store ------------------------------------------------------------------------


def test_a_server_says_where_it_is_and_is_found(installation: Installation) -> None:
    assert find_server(installation.store) is None
    server = installation.serve()
    found = find_server(installation.store)
    assert found is not None
    assert (found.url, found.pid, found.version) == (server.url, server.popen.pid, __version__)
    assert found.started_at.endswith("Z")
    assert ask(server) == 200
    assert server.stop() == 0
    assert find_server(installation.store) is None


def test_a_second_server_on_the_store_is_told_of_the_first(installation: Installation) -> None:
    server = installation.serve()
    second = installation.run("serve", "--port", "0")
    assert (second.returncode, second.stdout) == (2, "")
    [line] = second.stderr.splitlines()
    assert server.url in line
    assert line.endswith("use that one, end it first, or name another store with --db PATH")
    assert str(installation.store) in line
    assert ask(server) == 200


def test_another_spelling_of_the_store_is_the_same_store(
    installation: Installation, tmp_path: Path
) -> None:
    server = installation.serve()
    link = tmp_path / "link.db"
    link.symlink_to(installation.store)
    found = find_server(link)
    assert found is not None
    assert found.url == server.url


def test_a_port_in_use(installation: Installation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = installation.run("serve", "--port", str(port))
    assert refused.returncode == 2
    [line] = refused.stderr.splitlines()
    assert f"port {port}" in line
    assert "--port" in line
    assert not installation.store.exists()
    assert installation.serve().stop() == 0


def test_a_port_that_is_taken_while_a_server_starts() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        second = bind("127.0.0.1", port)
        listen(first)
        with pytest.raises(UsageError) as refused:
            listen(second)
    assert f"port {port} of 127.0.0.1 is in use" in str(refused.value)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_here(host: str) -> None:
    with pytest.raises(UsageError) as refused:
        bind(host, 0)
    assert host in str(refused.value)


def test_listening_at_every_kind_of_address() -> None:
    for host, shown in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]")):
        with bind(host, 0) as listener:
            assert url_of(listener) == f"http://{shown}:{listener.getsockname()[1]}"


def test_ipv6(installation: Installation) -> None:
    server = installation.serve("--host", "::1")
    with socket.create_connection(("::1", server.port), DEADLINE) as sock:
        sock.sendall(b"GET /health HTTP/1.0\r\nHost: [::1]\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.0 200 ")


@pytest.mark.parametrize("obstacle", ["no database", "a newer schema", "no folder"])
def test_a_store_that_cannot_be_opened(installation: Installation, obstacle: str) -> None:
    if obstacle == "no folder":
        installation.store.parent.write_text("a file in the folder's place")
    else:
        installation.store.parent.mkdir()
        installation.store.write_bytes(b"no database at all" * 1000)
    if obstacle == "a newer schema":
        installation.store.unlink()
        assert installation.run("migrate").returncode == 0
        _pretend_newer(installation.store)
    refused = installation.run("serve", "--port", "0")
    assert (refused.returncode, refused.stdout) == (2, "")
    [line] = refused.stderr.splitlines()
    assert str(installation.store) in line
    assert ("newer" in line) is (obstacle == "a newer schema")


def _pretend_newer(store: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(store)
    with connection:
        columns = "(name, applied) VALUES ('9999_later', '2031-01-01 00:00:00.000000')"
        connection.execute(f"INSERT INTO schema_migrations {columns}")
    connection.close()


def test_what_cannot_start_says_why_and_is_not_tried_again(installation: Installation) -> None:
    failed = installation.run("serve", "--port", "0", env={"STANDIN_FAILS": "1"})
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.count("something is missing") == 1
    assert "Traceback" not in failed.stderr
    assert installation.serve().stop() == 0


def test_nobody_has_to_read_what_it_says(installation: Installation) -> None:
    installation.serve().stop()
    reading, writing = os.pipe()
    os.close(reading)
    port = _free_port()
    command = installation.command("serve", "--port", str(port))
    process = subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == b"services started\n"
        with socket.create_connection(("127.0.0.1", port), DEADLINE) as sock:
            sock.sendall(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert sock.recv(65536).startswith(b"HTTP/1.0 200 ")
    finally:
        process.terminate()
        said = process.communicate(timeout=DEADLINE)[1]
    assert process.returncode == 0
    assert b"Traceback" not in said


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


# -- stopping --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("whole_group", [False, True], ids=["parent", "group"])
def test_calls_under_way_may_end(
    installation: Installation, number: signal.Signals, whole_group: bool
) -> None:
    server = installation.serve()
    with Stream(server, "/stream") as stream:
        (server.send_all if whole_group else server.send)(number)
        assert stream.rest() == b"data: ended"
    assert server.wait() == 0
    said = server.stderr.wait_for_end()
    assert said.index("services drain 10") < said.index("services stopped")
    assert "Traceback" not in said


def test_nothing_is_accepted_while_it_stops(installation: Installation) -> None:
    server = installation.serve()
    with Stream(server, "/stuck"):
        server.send(signal.SIGTERM)
        server.stderr.wait_for("services drain")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), DEADLINE)
        server.send(signal.SIGINT)
        assert server.wait() == 0


def test_a_second_ctrl_c_stops_at_once(installation: Installation) -> None:
    server = installation.serve()
    with Stream(server, "/stuck"):
        server.send_all(signal.SIGINT)
        server.stderr.wait_for("services drain")
        server.send_all(signal.SIGINT)
        assert server.wait() == 0
    said = server.stderr.wait_for_end()
    assert "Ctrl-C again" in said
    assert "services stopped" not in said


def test_idle_connections_do_not_hold_it_up(installation: Installation) -> None:
    server = installation.serve()
    unused = socket.create_connection(("127.0.0.1", server.port), DEADLINE)
    kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE)
    kept.request("GET", "/health")
    kept.getresponse().read()
    assert server.stop() == 0
    assert "services stopped" in server.stderr.wait_for_end()
    for connection in (unused, kept.sock):
        assert connection.recv(1) == b""
        connection.close()


def test_started_with_nohup_it_outlives_the_terminal(installation: Installation) -> None:
    command = installation.command("serve", "--port", "0")
    server = ServerProcess(["nohup", *command], cwd=installation.folder)
    try:
        server.send(signal.SIGHUP)
        assert ask(server) == 200
        assert server.stop() == 0
    finally:
        server.close()


def test_where_there_is_no_gunicorn(installation: Installation) -> None:
    server = installation.serve(env={"STANDIN_THREADED": "1"})
    assert server.workers() == []
    assert ask(server) == 200
    with Stream(server, "/stream") as stream:
        server.send(signal.SIGINT)
        assert stream.rest() == b"data: ended"
    assert server.wait() == 0
    said = server.stderr.wait_for_end()
    assert said.index("services drain 10") < said.index("services stopped")
    assert "Traceback" not in said


# -- killed ----------------------------------------------------------------------------------------


def test_after_kill_9_of_all_of_it_the_next_one_starts(installation: Installation) -> None:
    server = installation.serve()
    server.send_all(signal.SIGKILL)
    server.wait()
    eventually(lambda: find_server(installation.store) is None)
    assert ask(installation.serve("--port", str(server.port))) == 200


def test_after_kill_9_of_the_parent_its_worker_goes_too(installation: Installation) -> None:
    server = installation.serve()
    [worker] = server.workers()
    with Stream(server, "/stuck"):
        server.send(signal.SIGKILL)
        server.wait()
        following = installation.serve("--port", str(server.port))
    assert is_gone(worker)
    assert ask(following) == 200
    assert following.stop() == 0


def test_a_worker_that_dies_is_replaced(installation: Installation) -> None:
    server = installation.serve()
    [worker] = server.workers()
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: server.stderr.text.count("services started") == 2)
    assert ask(server) == 200
    assert find_server(installation.store) is not None
    assert server.stdout.text.count("Base URL") == 1
    assert server.stop() == 0


def test_the_lock_is_given_back_by_whoever_fails_to_start(tmp_path: Path) -> None:
    lock = ServerLock.acquire(tmp_path / "x.db")
    with pytest.raises(UsageError, match="just starting"):
        ServerLock.acquire(tmp_path / "x.db")
    lock.release()
    ServerLock.acquire(tmp_path / "x.db").release()


def test_an_announcement_without_a_server_is_not_believed(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    address = {"url": "http://127.0.0.1:1", "pid": 1, "started_at": "", "version": "0"}
    (tmp_path / "x.db.server.json").write_text(json.dumps(address))
    assert find_server(store) is None
    (tmp_path / "x.db.server.lock").touch()
    assert find_server(store) is None


# -- what it says ----------------------------------------------------------------------------------


def test_the_banner_holds_what_a_person_needs(installation: Installation) -> None:
    installation.config.write_text('[server]\ntoken = "a-token-of-mine"\n')
    server = installation.serve("--demo")
    text = server.stdout.wait_for("curl .*\n").string
    assert re.findall(r"http://\S+", text)[:2] == [f"{server.url}/ui/", f"{server.url}/v1"]
    for needed in (
        str(installation.store),
        "demo (scripted, no model)",
        "xgw tail",
        "xgw show",
        "Authorization: Bearer $XGW_TOKEN",
    ):
        assert needed in text
    assert "a-token-of-mine" not in text


def test_commands_are_called_by_a_path_where_their_name_does_not(tmp_path: Path) -> None:
    program = tmp_path / "xgw"
    program.write_text(f"#!{sys.executable}\nfrom xgw.cli import main\nmain(prog_name='xgw')\n")
    program.chmod(0o755)
    with installed(tmp_path, program=[str(program)]) as one:
        for path, called in (("/usr/bin:/bin", program), (f"{tmp_path}:/usr/bin:/bin", "xgw")):
            server = one.serve("--demo", env={"PATH": path})
            text = server.stdout.wait_for("curl .*\n").string
            assert f"follow:     {called} tail" in text
            assert f"look at:    {called} show" in text
            server.stop()


@pytest.fixture
def a_browser(tmp_path: Path) -> Path:
    """A program that writes down the addresses it is asked to show."""
    program, shown = tmp_path / "browser", tmp_path / "shown"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$1" >> {shlex.quote(str(shown))}\n')
    program.chmod(0o755)
    return program


def test_the_dashboard_opens_in_the_browser_once(tmp_path: Path, a_browser: Path) -> None:
    shown = tmp_path / "shown"
    with installed(tmp_path, program=STANDIN) as installation:
        server = installation.serve("--demo", "--open", env={"BROWSER": f"{a_browser} %s"})
        eventually(shown.exists)
        [worker] = server.workers()
        os.kill(worker, signal.SIGKILL)
        server.stderr.wait_for("(?s)services started.*services started")
        assert ask(server) == 200
        assert server.stop() == 0
        assert shown.read_text() == f"{server.url}/ui/\n"
        assert "no browser" not in server.stderr.text


@pytest.mark.parametrize("browser", ["", "no-such-program %s"])
def test_where_there_is_no_browser_it_serves_all_the_same(
    installation: Installation, browser: str
) -> None:
    nowhere = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": browser, "PATH": ""}
    server = installation.serve("--demo", "--open", env=nowhere)
    line = server.stderr.wait_for("no browser .*\n")[0]
    assert line == f"no browser can be opened here: the dashboard is at {server.url}/ui/\n"
    assert ask(server) == 200
    assert server.stop() == 0


def test_no_browser_opens_unasked(tmp_path: Path, a_browser: Path) -> None:
    with installed(tmp_path, program=STANDIN) as installation:
        server = installation.serve("--demo", env={"BROWSER": f"{a_browser} %s"})
        assert ask(server) == 200
        assert server.stop() == 0
        assert not (tmp_path / "shown").exists()


def test_the_printed_curl_line_gets_a_streamed_answer_and_a_line_tells_of_it(
    tmp_path: Path,
) -> None:
    with installed(tmp_path, program=XGW) as installation:
        server = installation.serve("--demo")
        [_, _, url, *options] = shlex.split(server.stdout.wait_for("curl .*\n")[0])
        given = dict(zip(options[::2], options[1::2], strict=True))
        name, _, value = given["-H"].partition(": ")
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE)
        path = url.removeprefix(server.url)
        connection.request("POST", path, given["-d"], {name: value})
        response = connection.getresponse()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert response.read().strip().endswith(b"data: [DONE]")
        connection.close()
        turn_id = response.headers["X-Turn-Id"]
        line = server.stdout.wait_for(f".*{turn_id}.*\n")[0]
        assert "success" in line
        assert server.stop() == 0
        assert server.stderr.wait_for_end() == ""


def test_the_curl_line(tmp_path: Path) -> None:
    url = "http://127.0.0.1:8787"
    plain = curl_line(Config(providers=(DEMO,)), url)
    assert plain.startswith(f"curl -N {url}/v1/chat/completions -H ")
    assert '"model":"demo"' in plain
    assert "Authorization" not in plain
    route = Route(model="it's mine", targets=("demo/x",))
    routes = (Route(model="gpt-*", targets=("demo/x",)), route)
    quoted = curl_line(Config(providers=(DEMO,), routes=routes), url)
    assert "it'\"'\"'s mine" in quoted
    openai = Provider(name="openai", api_key="sk-upstream-key")
    secured = Config(
        server=Server(token="the-token"), providers=(openai,), keys=(ClientKey(key="client-key"),)
    )
    said = banner(secured, url, 1_234_567)
    assert '-H "Authorization: Bearer $XGW_TOKEN"' in said
    assert '"model":"MODEL"' in said
    assert "(1.2 MB)" in said
    assert not any(secret in said for secret in secured.secrets())
    assert "not asked" not in said
    claude = Provider(name="claude", kind="anthropic")
    assert "not asked:  claude (" in banner(Config(providers=(openai, claude)), url, 1)


def envelope(seq: int = 1, **payload: Any) -> Envelope:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5)
    return Envelope(seq, "turn.completed", at, "default", "sess_1", "turn_1", None, None, payload)


def test_a_line_for_a_turn() -> None:
    line = turn_line(
        envelope(
            status="success",
            final_provider_name="demo",
            final_model="demo",
            input_tokens=1234,
            output_tokens=0,
            cached_tokens=1000,
            latency_ms=1250,
            cost_usd=0.00123,
            error=None,
        )
    )
    told = line.split("  ", 1)[1]
    assert told == ("success    turn_1  demo/demo  1,234 → 0 tokens (1,000 cached)  1.2 s  $0.0012")


def test_a_line_for_a_turn_that_failed() -> None:
    error = {"type": "upstream_error", "message": "no\n\x1b[31m luck" + "x" * 1000}
    line = turn_line(envelope(status="error", input_tokens=None, output_tokens=7, error=error))
    assert "error      turn_1  ? → 7 tokens  upstream_error: no��[31m luck" in line
    assert line.isprintable()
    assert len(line) < 300
    assert turn_line(envelope()).endswith("turn_1")


class Terminal(io.StringIO):
    """Where lines are printed, and waited for."""

    def __init__(self, closes_after: int | None = None) -> None:
        super().__init__()
        self._lines = threading.Semaphore(0)
        self._left = closes_after

    def write(self, text: str) -> int:
        if self._left == 0:
            raise BrokenPipeError
        written = super().write(text)
        for _ in range(text.count("\n")):
            self._left = None if self._left is None else self._left - 1
            self._lines.release()
        return written

    def wait_for_line(self) -> None:
        assert self._lines.acquire(timeout=DEADLINE)


def test_turns_are_printed_as_they_complete() -> None:
    hub, terminal = Hub(), Terminal()
    TurnPrinter(hub, terminal).start()
    eventually(lambda: hub.watched)
    started = envelope(1)
    hub.publish([Envelope(1, "turn.started", *_rest(started))])
    hub.publish([envelope(2, status="success"), envelope(3, status="error")])
    for _ in range(2):
        terminal.wait_for_line()
    assert [line.split("  ")[1].strip() for line in terminal.getvalue().splitlines()] == [
        "success",
        "error",
    ]


def test_printing_ends_with_whoever_reads_it() -> None:
    hub, terminal = Hub(), Terminal(closes_after=1)
    TurnPrinter(hub, terminal).start()
    eventually(lambda: hub.watched)
    hub.publish([envelope(1)])
    terminal.wait_for_line()
    hub.publish([envelope(2)])
    eventually(lambda: not hub.watched)
    assert len(terminal.getvalue().splitlines()) == 1


def _rest(one: Envelope) -> tuple[Any, ...]:
    return (one.at, "default", "sess_1", "turn_1", None, None, {})
