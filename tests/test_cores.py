"""The core of the threads that relay calls: which one it is, who is bound to it and who is not."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from agents_fixtures import asks
from faults import Running
from gateway_fixtures import CHAT, PROVIDER_KEY
from scripted_model import Model, chat, says
from servers import XGW, eventually, installed
from xgw.cli.cores import LOOK_SECONDS, Core, Load, Loads, read_loads

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="threads are bound on Linux, where there are several cores",
)
LATER = 1e9
CONFIG = """
[[providers]]
name = "p1"
base_url = "{url}"
api_key = "{key}"
[agents.a]
description = "Looks"
model = "m"
tools = ["cores"]
[tools.cores]
python = "{folder}/mine.py:cores"
"""
TOOL = '''
import os, subprocess, sys

def cores() -> list:
    """The cores that a tool may use, and those of a program that it starts."""
    asked = "import os; print(len(os.sched_getaffinity(0)))"
    child = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    return [len(os.sched_getaffinity(0)), int(child.stdout)]
'''


class Cores:
    """What each core was busy with, in shares of the time between two looks at it."""

    def __init__(self) -> None:
        self.busy = dict.fromkeys(os.sched_getaffinity(0), 0)
        self._idle = dict.fromkeys(self.busy, 0)
        self._looks = 0

    def read(self) -> Loads:
        self._looks += 1
        for core, percent in self.busy.items():
            self._idle[core] += 100 - percent
        return {core: Load(idle, 100 * self._looks) for core, idle in self._idle.items()}


def in_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_the_quietest_core_is_taken_and_a_thread_that_leaves_has_all_of_them() -> None:
    cores, seen = Cores(), []
    core = Core(cores.read)
    quiet = max(cores.busy)
    cores.busy = {number: 0 if number == quiet else 60 for number in cores.busy}
    core.choose()

    def work() -> None:
        core.join()
        seen.append(os.sched_getaffinity(0))
        in_a_thread(lambda: (core.leave(), seen.append(os.sched_getaffinity(0))))

    in_a_thread(work)
    assert seen == [{quiet}, set(cores.busy)]
    assert core.number == quiet


def test_where_others_take_the_core_all_threads_go_to_another_one() -> None:
    cores, seen = Cores(), []
    core = Core(cores.read)
    first, other = list(cores.busy)[:2]
    cores.busy = {number: 0 if number == first else 60 for number in cores.busy}
    core.choose()
    cores.busy = {number: 5 if number == other else 95 for number in cores.busy}

    def work() -> None:
        core.join()
        core.look(0.0)
        seen.append(os.sched_getaffinity(0))
        core.look(LATER)
        seen.append(os.sched_getaffinity(0))

    in_a_thread(work)
    assert seen == [{first}, {other}]


def test_where_all_cores_are_taken_alike_it_stays() -> None:
    cores = Cores()
    core = Core(cores.read)
    core.choose()
    before = core.number
    cores.busy = dict.fromkeys(cores.busy, 90)
    core.look(LATER)
    core.look(LATER + max(LOOK_SECONDS))
    assert core.number == before


def test_where_nothing_is_told_of_the_cores_nothing_is_bound() -> None:
    core = Core(dict)
    core.choose()
    core.join()
    assert core.number is None
    assert len(os.sched_getaffinity(0)) > 1


def test_every_core_that_may_be_used_has_a_load() -> None:
    assert os.sched_getaffinity(0) <= read_loads().keys()


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.check()
    model.close()


def test_calls_have_one_core_and_tools_and_what_they_start_have_all(
    model: Model, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(TOOL)
    config = CONFIG.format(url=model.url, key=PROVIDER_KEY, folder=tmp_path)
    every = len(os.sched_getaffinity(0))
    with installed(tmp_path, config, XGW) as installation:
        gate = Running(installation.serve(), model, installation.store)
        with contextlib.closing(gate.store):
            model.will(says("answered"), asks(("c1", "cores", "{}")), says("seen"))
            assert gate.post(chat("hello"), CHAT).status == 200
            gate.post({"message": "look", "sessionId": "k", "wait": 20}, "/agents/a/chat")
            (worker,) = gate.server.workers()
            eventually(lambda: len(set(bound_threads(worker).values())) == 1)
            assert len(bound_threads(worker)) >= 4
            told = model.asked[-1].json["messages"][-1]["content"]
            assert orjson.loads(told) == [every, every]


def bound_threads(pid: int) -> dict[int, int]:
    """The threads of a process that are bound to a core, and to which one."""
    tasks = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    allowed = {task: os.sched_getaffinity(task) for task in tasks}
    return {task: next(iter(cores)) for task, cores in allowed.items() if len(cores) == 1}
