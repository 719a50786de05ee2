"""Commands while the server of their store is stopped (SIGSTOP): each ends, and says why."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway_fixtures import Client
from scripted_model import Model, asks_for, chat, named
from scripted_upstream import Peer, Upstream
from servers import DEADLINE, Installation, ServerProcess, installed
from xgw.cli import asking
from xgw.cli.asking import Silent, ask
from xgw.cli.server import ServerAddress

CONFIG = """
[[providers]]
name = "p1"
base_url = "{url}"
api_key = "sk-of-the-provider-0123456789"
"""
ASKING = (
    ("cancel", "last"),
    ("chat", "hello", "-m", "m"),
    ("prune", "--older-than", "2999-01-01"),
    ("rerun", "last"),
)
READING = (
    ("sessions",),
    ("show", "last"),
    ("requests",),
    ("stats",),
    ("export",),
    ("keys", "list"),
    ("agents",),
    ("prune", "--older-than", "2999-01-01", "--dry-run"),
    ("backup", "copy.db"),
)


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.check()
    model.close()


@pytest.fixture
def place(tmp_path: Path, model: Model) -> Iterator[Installation]:
    with installed(tmp_path, CONFIG.format(url=model.url)) as place:
        yield place


@pytest.fixture
def stopped(place: Installation, model: Model) -> ServerProcess:
    server = place.serve()
    model.will(asks_for("c1"))
    Client(server.url).post(chat(**named("waits")))
    server.send_all(signal.SIGSTOP)
    return server


def told(server: ServerProcess, so: str) -> str:
    pid = server.popen.pid
    return (
        f"the server at {server.url.removesuffix('/v1')} (process {pid}) does not answer{so}: "
        f"let it go on if it was stopped (kill -CONT {pid}), or end it and start `xgw serve` anew"
    )


def test_what_is_for_the_server_to_do_is_not_asked_of_one_that_is_stopped(
    place: Installation, stopped: ServerProcess
) -> None:
    commands = [place.start(*command) for command in ASKING]
    doctor, tail = place.start("doctor", "--offline"), place.start("tail")
    tail.stderr.wait_for(r"process \d+\) does not answer; reading the store instead")
    tail.send(signal.SIGINT)
    for command in commands:
        assert command.wait() == 1
        assert command.stdout.wait_for_end() == ""
        said = told(stopped, ", nothing was asked of it")
        assert command.stderr.wait_for_end() == f"xgw: {said}\n"
    assert doctor.wait() == 1
    assert f"kill -CONT {stopped.popen.pid}" in doctor.stdout.wait_for_end()
    stopped.send_all(signal.SIGCONT)
    (session,) = orjson.loads(place.run("sessions", "--json").stdout)["data"]
    turn = orjson.loads(place.run("show", "last", "--json").stdout)
    assert (session["session_key"], session["turn_count"]) == ("waits", 1)
    assert (turn["status"], len(turn["runs"])) == ("running", 1)
    assert place.run("cancel", "last").returncode == 0
    assert stopped.stop() == 0


def test_what_only_reads_goes_on(place: Installation, stopped: ServerProcess) -> None:
    for command in READING:
        done = place.run(*command)
        assert done.returncode == 0, (command, done.stderr)
    stopped.send_all(signal.SIGCONT)
    assert stopped.stop() == 0


def healthy(peer: Peer) -> None:
    peer.request()
    peer.answer(b"{}")


def silent(peer: Peer) -> None:
    peer.request()
    assert peer.sock.recv(1) == b""


def prune(upstream: Upstream) -> Any:
    server = ServerAddress(upstream.url, 4711, "2026-01-02T03:04:05Z", "0.1.0")
    return ask(server, "POST", "/prune", seconds=None)


def test_one_that_is_stopped_in_the_midst_of_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "ALIVE_SECONDS", 0.2)
    upstream = Upstream(healthy, silent, silent)
    with pytest.raises(Silent, match=r"process 4711\) does not answer, what it was asked for may"):
        prune(upstream)
    upstream.close()


def test_one_that_takes_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ALIVE_SECONDS", 0.2)
    was_looked_at = threading.Event()

    def healthy_again(peer: Peer) -> None:
        healthy(peer)
        was_looked_at.set()

    def slow(peer: Peer) -> None:
        peer.request()
        assert was_looked_at.wait(DEADLINE)
        peer.answer(b'{"object": "pruned"}')

    upstream = Upstream(healthy, slow, healthy_again, *[healthy] * 100)
    assert prune(upstream) == {"object": "pruned"}
    upstream.close()
