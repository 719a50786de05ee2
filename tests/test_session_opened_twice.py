"""Two processes open a session of one key at the same time: there is one, and both get it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recorded import Recorded
from xgw.exchange.calls import Calls
from xgw.gateway.control import Control
from xgw.gateway.state import Sessions
from xgw.recording.facts import SessionFacts

PROJECT, KEY = "default", "shared"
WANTED = SessionFacts("", KEY, PROJECT, "managed", model="m")


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
