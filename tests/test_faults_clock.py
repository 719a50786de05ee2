"""A wall clock that jumps during calls: durations are never negative, order is that of indexes."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import peewee
import pytest

from faults import CONFIG, Running
from gateway_fixtures import PROVIDER_KEY
from scripted_model import (
    DONE,
    Model,
    Row,
    asks_for,
    call,
    chat,
    delta,
    finish,
    named,
    result,
    said,
    says,
    stream,
    usage,
    user,
)
from servers import ROOT, installed
from xgw.store.models import Event, Message, RequestLog, Run, Step, Turn

PROGRAM = (sys.executable, str(ROOT / "tests" / "turned_clock.py"))
HOUR = 3600
TABLES: tuple[type[peewee.Model], ...] = (Turn, Run, Step, RequestLog)


@dataclass(frozen=True)
class Clock:
    """The wall clock of the server."""

    path: Path

    def turn(self, seconds: int) -> None:
        """From now on it is so far from the true time."""
        new = self.path.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self.path)


@contextlib.contextmanager
def turned(folder: Path) -> Iterator[tuple[Running, Clock]]:
    clock = Clock(folder / "clock")
    clock.turn(0)
    model = Model()
    tables = CONFIG.format(url=model.url, key=PROVIDER_KEY)
    with contextlib.closing(model), installed(folder, tables, PROGRAM) as one:
        server = one.serve(env={"CLOCK_FILE": str(clock.path)})
        gate = Running(server, model, one.store)
        with contextlib.closing(gate.store):
            yield gate, clock


def durations(gate: Running) -> dict[str, int]:
    """Every time span that the store knows."""
    return {
        f"{table.__name__}.{name} of {row['id']}": value
        for table in TABLES
        for row in gate.all(table)
        for name, value in row.items()
        if name.endswith("_ms") and value is not None
    }


def ask_across(gate: Running, clock: Clock, seconds: int, session: str) -> Row:
    """A stream in the midst of which the clock is turned."""
    go_on = threading.Event()
    gate.model.will(stream(delta("before "), go_on, delta("after"), finish(), usage(7, 2), DONE))
    reading = gate.open(chat("q", stream=True, **named(session)))
    reading.until(b"before")
    clock.turn(seconds)
    go_on.set()
    assert reading.rest().body.endswith(DONE)
    turn = gate.turn(reading)
    assert (turn["status"], turn["final_output"]) == ("success", "before after")
    lasted = turn["ended_at"] - turn["started_at"]
    assert abs(lasted.total_seconds()) > HOUR / 2, "the clock was turned in between"
    return turn


@pytest.mark.parametrize("first", [-HOUR, HOUR])
def test_a_clock_that_jumps(tmp_path: Path, first: int) -> None:
    with turned(tmp_path) as (gate, clock):
        ask_across(gate, clock, first, "jumps")
        ask_across(gate, clock, 0, "jumps")
        gate.model.will(asks_for("c1"))
        waiting = gate.turn(gate.post(chat("look", **named("jumps"))))
        clock.turn(first // 8)
        gate.model.will(says("found it"))
        history = [user("look"), said(None, call("c1")), result("c1")]
        turn = gate.turn(gate.post(chat(*history, **named("jumps"))))
        assert turn["id"] == waiting["id"]
        assert (turn["status"], turn["llm_calls"]) == ("success", 2)
        assert [s["status"] for s in gate.steps(turn, "tool_call")] == ["success"]
        check(gate)


def check(gate: Running) -> None:
    negative = {name: value for name, value in durations(gate).items() if value < 0}
    assert negative == {}
    for step in gate.all(Step):
        assert step["latency_ms"] < 1000 * HOUR / 8, "a step's time comes from the monotonic clock"
    turns = gate.turns("jumps")
    assert [turn["turn_index"] for turn in turns] == [0, 1, 2]
    listed = gate.get("/turns?order=asc").json["data"]
    assert {turn["id"] for turn in listed} == {turn["id"] for turn in turns}
    session = gate.session("jumps")["id"]
    of_session = gate.get(f"/sessions/{session}/turns?order=asc").json["data"]
    assert [turn["turn_index"] for turn in of_session] == [0, 1, 2]
    messages = gate.all(Message, by=Message.message_index)
    assert [m["role"] for m in messages][:4] == ["user", "assistant"] * 2
    seqs = [told["seq"] for told in gate.all(Event)]
    assert seqs == sorted(seqs)
    for turn in turns:
        types = [told["type"] for told in gate.all(Event, Event.turn_id == turn["id"])]
        assert types[-1] == "turn.completed"
