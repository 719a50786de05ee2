"""Recovery: what a process left behind when it died is closed as it stands, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recorded import KNOWN, Recorded, Request, ended, recorded, result, tool
from servers import DEADLINE, ROOT, eventually
from xgw import clock
from xgw.recording import owner
from xgw.recording.edits import Edits
from xgw.recording.recovery import wait_for
from xgw.store.transaction import Transaction

OWNER = """
import sys
from xgw.recording import owner
from xgw.recording.edits import Edits
print(owner.own(), flush=True)
sys.stdin.read()
"""


class Other:
    """Another process that records."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", OWNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        self.owner = self._process.stdout.readline().strip()
        assert self.owner

    def become_a_zombie(self) -> None:
        """Dead, but nobody has asked for its exit code yet."""
        self._process.kill()
        path = Path(f"/proc/{self._process.pid}/stat")
        eventually(lambda: path.read_text().rpartition(")")[2].split()[0] == "Z")

    def die(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=DEADLINE)


@pytest.fixture
def other() -> Iterator[Other]:
    process = Other()
    yield process
    process.die()


@pytest.fixture
def dead(other: Other) -> str:
    """The owner of what a process left behind."""
    other.die()
    return other.owner


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Recorded]:
    with recorded(tmp_path / "xgw.db") as one:
        yield one


def write(scene: Recorded, statement: str, *params: Any) -> None:
    """Change rows, as the process that is gone did while it lived."""

    def work(tx: Transaction) -> None:
        tx.execute(statement, params)

    assert scene.writer.submit(work).wait(DEADLINE)


def arrived(scene: Recorded, request: Request, text: str, at: datetime) -> None:
    """This much of an answer had been written when its process was last heard of."""
    write(scene, "UPDATE steps SET partial_output = ? WHERE id = ?", text, request.step)
    write(scene, "UPDATE runs SET heartbeat_at = ? WHERE id = ?", at, request.scope.run_id)


def reconcile(scene: Recorded) -> int:
    """How many runs were closed."""
    tickets = scene.recovery.reconcile()
    assert wait_for(tickets, DEADLINE)
    assert [ticket.error for ticket in tickets] == [None] * len(tickets)
    return len(tickets)


# -- who is gone -----------------------------------------------------------------------------------


def test_an_owner_is_alive_as_long_as_its_process(other: Other) -> None:
    assert owner.is_alive(owner.own())
    assert owner.is_alive(other.owner)
    other.become_a_zombie()
    assert not owner.is_alive(other.owner)
    other.die()
    assert not owner.is_alive(other.owner)


def test_an_owner_is_a_process_of_this_boot_with_its_start(other: Other) -> None:
    boot, pid, started = other.owner.split(":")
    assert not owner.is_alive(f"another-boot:{pid}:{started}")
    assert not owner.is_alive(f"{boot}:{pid}:{int(started) + 1}")
    for odd in (None, "", "::", "a:b", f"{boot}:{pid}", f"{boot}:x:{started}", f"{boot}::"):
        assert not owner.is_alive(odd)


# -- what is closed --------------------------------------------------------------------------------


def test_an_answer_that_was_under_way(scene: Recorded, dead: str) -> None:
    session = scene.session()
    request = scene.turn(session, first=True, owner=dead)
    last = request.started + timedelta(seconds=7)
    arrived(scene, request, "Hel", last)
    count = len(scene.types())
    assert reconcile(scene) == 1
    assert scene.types()[count:] == [
        "step.completed",
        "message.added",
        "run.completed",
        "turn.completed",
    ]
    [said] = scene.rows("messages", "role = 'assistant'")
    assert (said["content"], said["metadata"]) == ("Hel", '{"partial":true}')

    step = scene.row("steps", request.step)
    assert (step["status"], step["error_type"]) == ("error", "interrupted")
    assert (step["partial_output"], step["output_payload"]) == ("Hel", None)
    assert step["ended_at"] == clock.to_db(last)
    assert step["latency_ms"] == 7000
    assert (step["output_tokens"], step["total_tokens"]) == (None, None)
    run = scene.row("runs", request.scope.run_id)
    assert (run["status"], run["ended_by"]) == ("error", "crash")
    turn = scene.row("turns", request.scope.turn_id)
    assert (turn["status"], turn["ended_by"]) == ("error", "crash")
    assert turn["error_type"] == "interrupted"
    assert turn["final_output"] == "Hel"
    assert turn["ended_at"] == clock.to_db(last)
    assert turn["latency_ms"] == 7000
    assert (turn["attempts"], turn["output_tokens"], turn["cost_usd"]) == (1, None, None)
    [log] = scene.rows("request_logs")
    assert (log["error_type"], log["ended_at"]) == ("interrupted", clock.to_db(last))
    assert scene.row("sessions", session.id)["active_turn_id"] is None
    told = scene.publications()[-1]
    assert told.payload["error"]["type"] == "interrupted"
    assert reconcile(scene) == 0


def test_an_answer_of_which_nothing_had_come(scene: Recorded, dead: str) -> None:
    request = scene.turn(owner=dead)
    last = scene.events()[-1].at
    assert reconcile(scene) == 1
    step, turn = scene.row("steps", request.step), scene.row("turns", request.scope.turn_id)
    assert (step["status"], step["partial_output"]) == ("error", None)
    assert (turn["status"], turn["final_output"]) == ("error", None)
    assert turn["ended_at"] == clock.to_db(last)
    assert (turn["usage_source"], turn["total_tokens"]) == (None, None)


def test_a_second_attempt_that_was_under_way(scene: Recorded, dead: str) -> None:
    request = scene.turn(owner=dead)
    first = request.step
    request.retry()
    assert reconcile(scene) == 1
    assert scene.row("steps", first)["error_type"] == "upstream_error"
    assert scene.row("steps", request.step)["error_type"] == "interrupted"
    turn = scene.row("turns", request.scope.turn_id)
    assert (turn["attempts"], turn["llm_calls"]) == (2, 1)


def test_requests_of_one_turn_that_were_under_way(scene: Recorded, dead: str) -> None:
    request = scene.turn(scene.session(), first=True, owner=dead)
    beside = scene.again(request)
    call = tool(1)
    request.end(ended("success", usage=KNOWN, answered=True), tools=(call,))
    arrived(scene, beside, "half", clock.now())
    assert reconcile(scene) == 1
    steps = {row["id"]: row for row in scene.rows("steps")}
    assert steps[request.step]["status"] == "success"
    assert steps[beside.step]["error_type"] == "interrupted"
    assert (steps[call.step_id]["status"], steps[call.step_id]["error_type"]) == (
        "cancelled",
        "no_result",
    )
    turn = scene.row("turns", request.scope.turn_id)
    assert (turn["status"], turn["final_output"], turn["usage_source"]) == (
        "error",
        "half",
        "partial",
    )
    assert scene.rows("steps", "status = 'running'") == []


def test_a_reopened_turn_that_was_under_way(scene: Recorded, dead: str) -> None:
    request = scene.turn(scene.session(), first=True)
    request.succeed("first")
    scene.again(request, reopened="turn_key")
    write(scene, "UPDATE runs SET owner = ?", dead)
    assert reconcile(scene) == 1
    turn = scene.row("turns", request.scope.turn_id)
    assert (turn["status"], turn["ended_by"], turn["attempts"]) == ("error", "crash", 2)
    assert turn["total_tokens"] == KNOWN.total_tokens


def test_every_orphan_is_closed(scene: Recorded, dead: str) -> None:
    session = scene.session()
    requests = [scene.turn(session, first=not n, owner=dead) for n in range(20)]
    requests += [scene.turn(owner=dead) for _ in range(20)]
    assert reconcile(scene) == 40
    assert {turn["status"] for turn in scene.rows("turns")} == {"error"}
    assert scene.rows("steps", "status = 'running'") == []
    assert scene.rows("runs", "status = 'running'") == []


def an_hour_ago(scene: Recorded, request: Request) -> None:
    """The request's turn began an hour before it did."""
    began = clock.to_db(request.started - timedelta(hours=1))
    for table, row_id in (("turns", request.scope.turn_id), ("runs", request.scope.run_id)):
        write(scene, f"UPDATE {table} SET started_at = ? WHERE id = ?", began, row_id)


def test_a_turn_that_had_waited_was_not_busy_meanwhile(scene: Recorded, dead: str) -> None:
    request, call, other = scene.turn(scene.session(), first=True), tool(1), tool(2)
    request.ask_for_tools(call, other)
    an_hour_ago(scene, request)
    later = scene.again(request, resumed="tool_result", results=(result(call),))
    arrived(scene, later, "half", later.started + timedelta(seconds=7))
    write(scene, "UPDATE runs SET owner = ? WHERE id = ?", dead, request.scope.run_id)
    assert reconcile(scene) == 1
    run, turn = scene.row("runs", later.scope.run_id), scene.row("turns", later.scope.turn_id)
    assert (turn["ended_by"], turn["latency_ms"] >= 3_600_000) == ("crash", True)
    assert (run["busy_ms"], turn["busy_ms"]) == (7005, 7005)
    step = scene.row("steps", other.step_id)
    ended_at, started_at = clock.from_db(step["ended_at"]), clock.from_db(step["started_at"])
    assert step["latency_ms"] == round((ended_at - started_at).total_seconds() * 1000)


def test_a_turn_that_waits_was_not_busy_since(scene: Recorded) -> None:
    request = scene.turn(scene.session(), first=True)
    request.ask_for_tools(tool(1))
    an_hour_ago(scene, request)
    assert Edits(scene.writer).end_turn(request.scope.turn_id).wait(DEADLINE)
    turn = scene.row("turns", request.scope.turn_id)
    assert (turn["ended_by"], turn["busy_ms"]) == ("user_cancel", 5)
    assert turn["latency_ms"] >= 3_600_000


# -- what is left alone ----------------------------------------------------------------------------


def test_a_turn_that_waits_for_its_client_goes_on_waiting(scene: Recorded, dead: str) -> None:
    request = scene.turn(scene.session(), first=True, owner=dead)
    call = tool(1)
    request.ask_for_tools(call)
    assert reconcile(scene) == 0
    assert scene.row("runs", request.scope.run_id)["status"] == "waiting_tool"
    assert scene.row("steps", call.step_id)["status"] == "running"
    later = scene.again(request, resumed="tool_result", results=(result(call),))
    assert scene.row("runs", request.scope.run_id)["owner"] == scene.recorder.owner
    later.succeed()
    turn = scene.row("turns", request.scope.turn_id)
    assert (turn["status"], turn["final_output"]) == ("success", "Hi")


def test_work_of_processes_that_live_is_left_alone(scene: Recorded, other: Other) -> None:
    theirs, ours = scene.turn(owner=other.owner), scene.turn()
    before = [scene.rows(table) for table in ("turns", "runs", "steps", "events")]
    assert reconcile(scene) == 0
    assert [scene.rows(table) for table in ("turns", "runs", "steps", "events")] == before
    other.die()
    assert reconcile(scene) == 1
    assert scene.row("turns", theirs.scope.turn_id)["ended_by"] == "crash"
    ours.succeed()


def test_what_has_ended_is_left_alone(scene: Recorded, dead: str) -> None:
    scene.turn(owner=dead).succeed()
    scene.turn(owner=dead).fail()
    before = [scene.rows(table) for table in ("turns", "runs", "steps", "events")]
    assert reconcile(scene) == 0
    assert [scene.rows(table) for table in ("turns", "runs", "steps", "events")] == before


def test_an_agent_s_run_is_paused_and_holds_its_session(scene: Recorded, dead: str) -> None:
    request = scene.turn(owner=dead)
    taken = "exclusive_key = session_id"
    write(scene, f"UPDATE turns SET endpoint = NULL, agent_name = 'a', {taken}")
    assert reconcile(scene) == 1
    assert scene.row("steps", request.step)["error_type"] == "interrupted"
    turn = scene.row("turns", request.scope.turn_id)
    assert (turn["status"], turn["exclusive_key"]) == ("running", turn["session_id"])
    run = scene.row("runs", request.scope.run_id)
    assert (run["status"], run["ended_at"]) == ("paused", None)


def test_a_tool_that_ran_here_was_interrupted(scene: Recorded, dead: str) -> None:
    request = scene.turn(owner=dead)
    served = """UPDATE steps SET step_type = 'tool_call', metadata = '{"side": "server"}'"""
    write(scene, served)
    assert reconcile(scene) == 1
    step = scene.row("steps", request.step)
    assert (step["status"], step["error_type"]) == ("error", "interrupted")


def test_a_run_that_someone_took_over_meanwhile_is_left_alone(scene: Recorded, dead: str) -> None:
    """Between the look and the commit: the unit looks again."""
    request = scene.turn(owner=dead)
    left = scene.turn(owner=dead)
    entered, go = threading.Event(), threading.Event()

    def work(tx: Transaction) -> None:
        entered.set()
        assert go.wait(DEADLINE)
        tx.execute(
            "UPDATE runs SET owner = ? WHERE id = ?",
            (scene.recorder.owner, request.scope.run_id),
        )

    scene.writer.submit(work)
    assert entered.wait(DEADLINE)
    twice = [*scene.recovery.reconcile(), *scene.recovery.reconcile()]
    assert len(twice) == 4
    go.set()
    assert wait_for(twice, DEADLINE)
    assert [ticket.error for ticket in twice] == [None] * 4
    assert scene.row("runs", request.scope.run_id)["status"] == "running"
    assert scene.row("runs", left.scope.run_id)["status"] == "error"
    assert scene.types().count("turn.completed") == 1
    request.succeed()


# -- the thread ------------------------------------------------------------------------------------


def test_it_looks_at_once_and_goes_on_looking(
    scene: Recorded, dead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xgw.recording.recovery.EVERY_SECONDS", 0.05)
    first = scene.turn(owner=dead)
    scene.recovery.start()
    eventually(lambda: scene.row("turns", first.scope.turn_id)["status"] == "error")
    second = scene.turn(owner=dead)
    eventually(lambda: scene.row("turns", second.scope.turn_id)["status"] == "error")
    scene.recovery.stop()
    third = scene.turn(owner=dead)
    assert scene.row("turns", third.scope.turn_id)["status"] == "running"


def test_a_store_that_cannot_be_read_is_looked_at_again(
    scene: Recorded, dead: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("xgw.recording.recovery.EVERY_SECONDS", 0.05)
    scene.recovery.start()
    write(scene, "ALTER TABLE runs RENAME TO hidden")
    eventually(lambda: "could not be looked at" in caplog.text)
    write(scene, "ALTER TABLE hidden RENAME TO runs")
    request = scene.turn(owner=dead)
    eventually(lambda: scene.row("turns", request.scope.turn_id)["status"] == "error")


def test_a_clock_that_was_turned_back(scene: Recorded, dead: str) -> None:
    """What was recorded last counts, even if the clock was turned back since."""
    request = scene.turn(owner=dead)
    past = request.started - timedelta(hours=1)
    write(scene, "UPDATE turns SET started_at = ?", clock.now() + timedelta(hours=1))
    arrived(scene, request, "x", past)
    assert reconcile(scene) == 1
    turn = scene.row("turns", request.scope.turn_id)
    assert turn["latency_ms"] == 0
    assert turn["ended_at"] >= clock.to_db(request.started)
