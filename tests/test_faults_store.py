"""A store that cannot be written for a while, under eight streams: clients hardly notice.

One request waits 2 s for it in all; rows wait in memory and are written when the store is back.
"""

from __future__ import annotations

import contextlib
import re
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults import CONFIG, Running, Talker, assert_is_error, check_said, running, talking
from gateway_fixtures import PROVIDER_KEY
from locking import holder
from scripted_model import Model, chat, named, says
from servers import eventually, installed

CLIENTS = 8
LOCKED_SECONDS = 10.0
LONGEST = 0.9 * LOCKED_SECONDS
"""Several times the 2 s that a request may wait, and less than the store is away."""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as gate:
        yield gate


@contextlib.contextmanager
def no_space(gate: Running) -> Iterator[None]:
    """The server's files cannot grow: what a full disk is to it."""
    [worker] = gate.server.workers()
    before = resource.prlimit(worker, resource.RLIMIT_FSIZE)
    resource.prlimit(worker, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(worker, resource.RLIMIT_FSIZE, before)


def answers(talkers: list[Talker]) -> int:
    return sum(len(talker.said) for talker in talkers)


def everyone_gets(talkers: list[Talker], more: int) -> None:
    """Wait until each of them has got so many answers more."""
    wanted = [len(talker.said) + more for talker in talkers]
    eventually(lambda: all(len(t.said) >= n for t, n in zip(talkers, wanted, strict=True)))


def is_written(gate: Running) -> bool:
    health = gate.health()
    return bool(health["status"] == "ok" and health["writer"]["queue_depth"] == 0)


def check_that_nobody_noticed(gate: Running, talkers: list[Talker]) -> None:
    eventually(lambda: is_written(gate))
    assert gate.health()["writer"]["dropped"] == {"bodies": 0, "turns": 0}
    assert max(said.seconds for talker in talkers for said in talker.said) < LONGEST
    check_said(gate, talkers)
    assert gate.server.stop() == 0
    assert "Traceback" not in gate.server.stderr.text


@pytest.mark.slow
def test_a_store_that_is_locked_for_ten_seconds(gate: Running) -> None:
    with holder(gate.store.path) as other, talking(gate, CLIENTS) as talkers:
        everyone_gets(talkers, 2)
        other.take()
        before = answers(talkers)
        eventually(lambda: gate.health()["writer"]["down"])
        health = gate.health()
        assert health["status"] == "degraded"
        assert any("locked" in reason for reason in health["reasons"])
        assert gate.get("/turns?limit=1").status == 200
        threading.Event().wait(LOCKED_SECONDS)
        assert gate.health()["status"] == "degraded"
        assert answers(talkers) - before > 5 * CLIENTS, "most have waited for the store"
        other.release()
        eventually(lambda: gate.health()["status"] == "ok")
        everyone_gets(talkers, 2)
    check_that_nobody_noticed(gate, talkers)


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while(gate: Running) -> None:
    with talking(gate, CLIENTS) as talkers:
        everyone_gets(talkers, 2)
        with no_space(gate):
            eventually(lambda: gate.health()["writer"]["down"])
            assert gate.health()["status"] == "degraded"
            everyone_gets(talkers, 10)
            assert gate.health()["status"] == "degraded"
        eventually(lambda: gate.health()["status"] == "ok")
        everyone_gets(talkers, 2)
    check_that_nobody_noticed(gate, talkers)


def test_a_server_that_starts_on_a_locked_store(tmp_path: Path) -> None:
    """One request waits in vain, the next ones do not; what only the store can do is refused."""
    model = Model()
    model.always(says("all the same"))
    config = CONFIG.format(url=model.url, key=PROVIDER_KEY)
    with contextlib.closing(model), installed(tmp_path, config) as one:
        assert one.run("migrate").returncode == 0
        with holder(one.store) as other:
            other.take()
            gate = Running(one.serve(), model, one.store)
            replies = [gate.post(chat(**named("kept"))) for _ in range(20)]
            assert {reply.text for reply in replies} == {"all the same"}
            assert gate.health()["writer"]["down"]
            refused = gate.post({"session_key": "later"}, "/sessions")
            assert_is_error(refused, 503)
            assert int(refused.headers["retry-after"]) >= 1
            assert gate.get("/sessions").json["data"] == []
            other.release()
        eventually(lambda: is_written(gate))
        turns = gate.turns("kept")
        assert [turn["id"] for turn in turns] == [r.headers["x-turn-id"] for r in replies]
        assert {turn["final_output"] for turn in turns} == {"all the same"}
        assert gate.session("later")["turn_count"] == 0
        gate.store.close()


def test_a_server_that_ends_on_a_locked_store_says_what_is_lost(tmp_path: Path) -> None:
    model = Model()
    model.always(says("all the same"))
    config = CONFIG.format(url=model.url, key=PROVIDER_KEY)
    with contextlib.closing(model), installed(tmp_path, config) as one:
        server = one.serve()
        with holder(one.store) as other:
            other.take()
            gate = Running(server, model, one.store)
            turn_id = gate.post(chat()).headers["x-turn-id"]
            assert server.stop() == 1
            gate.store.close()
            other.release()
        (line,) = [ln for ln in server.stderr.wait_for_end().splitlines() if "lost" in ln]
        assert "ERROR the store could not be written before the end (database is locked)" in line
        assert re.search(rf"\d units of work are lost \(turns: {turn_id}\)$", line)
