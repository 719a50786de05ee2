"""Two processes open a session of one key at the same time: nothing of either is lost."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_fixtures import Gate, Reply, a_test_of, gate_and_model
from recorded import Recorded
from scripted_model import Row, chat, named, says
from servers import DEADLINE, eventually
from xgw import ids
from xgw.exchange.calls import Calls
from xgw.gateway.control import Control
from xgw.gateway.sessions import Sessions
from xgw.recording.facts import SessionFacts

PROJECT, KEY = "default", "shared"
WANTED = SessionFacts("", KEY, PROJECT, "managed", model="m")

ANOTHER = (
    "INSERT INTO sessions (id, session_key, project_id, kind, status, source, created_at, "
    "updated_at) VALUES (?, ?, ?, 'chat', 'active', 'metadata', ?, ?)"
)


class Process:
    """What a process on a store knows of its sessions, and what opens them there."""

    def __init__(self, path: Path) -> None:
        self.recorded = Recorded(path)
        self.sessions = Sessions(self.recorded.store)
        calls, recorder = Calls(8), self.recorded.recorder
        self.control = Control(self.recorded.store, self.sessions, calls, recorder, lambda: None)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[list[Process]]:
    both = [Process(tmp_path / "xgw.db") for _ in range(2)]
    yield both
    for process in both:
        process.recorded.close()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with gate_and_model(tmp_path) as gate, a_test_of(gate):
        yield gate


def test_whoever_comes_second_gets_the_session_of_the_first(processes: list[Process]) -> None:
    first, second = processes
    looked_up = second.sessions.take(PROJECT, KEY)
    assert not looked_up.exists
    opened, is_new = first.control.open_session(WANTED)
    assert is_new
    assert second.control.open_session(WANTED) == (opened, False)
    assert second.control.open_session(WANTED) == (opened, False)
    [row] = first.recorded.rows("sessions")
    assert (row["id"], row["session_key"]) == (opened, KEY)
    assert first.recorded.types() == ["session.created"]
    with second.sessions.held(looked_up) as found:
        assert (found.session_id, found.exists, found.is_empty) == (opened, True, True)


def test_turns_of_a_session_whose_key_was_taken_before_it_was_written_are_kept(gate: Gate) -> None:
    """Somebody else has the store, and opens a session of the key that a request brings."""
    gate.model.always(says("yes"))
    replies: list[Reply] = []
    asking = threading.Thread(target=lambda: replies.append(gate.post(chat("one", **named(KEY)))))
    with sqlite3.connect(gate.store.path, isolation_level=None) as another:
        another.execute("BEGIN IMMEDIATE")
        asking.start()
        eventually(lambda: gate.get("/health").json["writer"]["queue_depth"] == 2)
        at = "2026-01-01 00:00:00.000000"
        another.execute(ANOTHER, (ids.mint("sess"), KEY, PROJECT, at, at))
        another.execute("COMMIT")
    another.close()
    asking.join(DEADLINE)
    replies.append(gate.post(chat("two", **named(KEY))))
    turns: list[Row] = [gate.ended(reply) for reply in replies]
    assert [(turn["user_input"], turn["status"]) for turn in turns] == [
        ("one", "success"),
        ("two", "success"),
    ]
    [session_id] = {turn["session_id"] for turn in turns}
    session = gate.get(f"/sessions/{session_id}").json
    assert (session["session_key"], session["turn_count"]) == (session_id, 2)
    assert session["metadata"] == {"wanted_key": KEY}
    assert gate.session(KEY)["turn_count"] == 0
