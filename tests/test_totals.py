"""Totals: sums that hold when requests run at once, and that never take unknown for zero."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recorded import KNOWN, Recorded, ended, recorded
from servers import DEADLINE
from xgw import clock
from xgw.frozen import changed
from xgw.recording.facts import TurnEnd
from xgw.values import Usage

SUMS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "total_tokens")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Recorded]:
    with recorded(tmp_path / "xgw.db") as one:
        yield one


def test_sums_and_indexes_hold_when_requests_run_at_once(scene: Recorded) -> None:
    session = scene.session()
    scene.turn(session, first=True).succeed()
    threads, per_thread = 6, 25
    go = threading.Barrier(threads)

    def work(number: int) -> None:
        go.wait(DEADLINE)
        for n in range(per_thread):
            request = scene.turn(session)
            usage = changed(KNOWN, input_tokens=number, cached_tokens=None)
            if n % 5 == 0:
                request.retry()
            request.succeed(usage=usage)

    running = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(DEADLINE)
    count = threads * per_thread
    row = scene.row("sessions", session.id)
    assert row["turn_count"] == count + 1
    assert row["message_count"] == 2 * (count + 1)
    assert row["request_count"] == count + 1 + count // 5
    assert row["input_tokens"] == 10 + per_thread * sum(range(threads))
    assert row["output_tokens"] == 20 * (count + 1)
    assert row["cached_tokens"] == 4
    assert (row["cost_usd"], row["usage_source"]) == (None, "provider")
    indexes = [turn["turn_index"] for turn in scene.rows("turns")]
    assert sorted(indexes) == list(range(count + 1))
    said = [m["message_index"] for m in scene.rows("messages")]
    assert sorted(said) == list(range(2 * (count + 1)))
    assert row["active_turn_id"] is None


def test_requests_of_one_turn_at_once(scene: Recorded) -> None:
    request = scene.turn(scene.session(), first=True)
    others = [scene.again(request) for _ in range(4)]
    for other in others:
        other.succeed(turn=None)
    assert scene.row("turns", request.scope.turn_id)["status"] == "running"
    request.succeed("the last")
    turn = scene.row("turns", request.scope.turn_id)
    assert (turn["attempts"], turn["total_tokens"]) == (5, 150)
    assert (turn["status"], turn["final_output"]) == ("success", "the last")
    steps = scene.rows("steps")
    assert sorted(step["step_index"] for step in steps) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", [*SUMS, "cost_usd"])
def test_unknown_is_never_zero(scene: Recorded, name: str) -> None:
    session = scene.session()
    values: dict[str, Any] = {n: 8 for n in SUMS if n != name}
    cost = None if name == "cost_usd" else 0.25
    request = scene.turn(session, first=True)
    end = ended("success", usage=Usage(**values, source="provider"), answered=True, cost_usd=cost)
    request.end(end, turn=TurnEnd("finished", clock.now(), 5))
    expected = dict.fromkeys(SUMS, 8) | {"cost_usd": 0.25, name: None}
    for row in (scene.row("turns", request.scope.turn_id), scene.row("sessions", session.id)):
        assert {n: row[n] for n in expected} == expected
    request = scene.turn(session)
    zero = ended(
        "success", usage=Usage(0, 0, 0, 0, 0, 0, {}, "provider"), answered=True, cost_usd=0
    )
    request.end(zero, turn=TurnEnd("finished", clock.now(), 5))
    row = scene.row("sessions", session.id)
    assert {n: row[n] for n in expected} == expected | {name: 0}


P, E, N = "provider", "estimated", None


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([P], P),
        ([E], E),
        ([N], N),
        ([N, N], N),
        ([P, P], P),
        ([P, E], E),
        ([E, P], E),
        ([P, N], "partial"),
        ([N, P], "partial"),
        ([N, N, P, P], "partial"),
        ([P, N, P], "partial"),
        ([E, N], E),
        ([N, E], E),
        ([P, N, E], E),
        (["failed", P], P),
        ([P, "failed"], P),
        (["failed"], N),
        (["cut", P], "partial"),
        ([P, "cut"], "partial"),
        (["cut", E], E),
        (["cut"], N),
    ],
)
def test_where_a_sum_comes_from(scene: Recorded, sources: list[Any], expected: str | None) -> None:
    """`failed`: no answer at all; `cut`: a part of one, of unknown size."""
    session = scene.session()
    request = scene.turn(session, first=True)
    for position, source in enumerate(sources):
        other = request if position == 0 else scene.again(request)
        if source == "failed":
            end = ended("error", error_type="upstream_error")
        elif source == "cut":
            end = ended("error", error_type="interrupted", answered=True, partial_output="Hel")
        else:
            usage = Usage(source=source) if source is None else changed(KNOWN, source=source)
            end = ended("success", usage=usage, answered=True)
        other.end(end)
    assert scene.row("turns", request.scope.turn_id)["usage_source"] == expected
    assert scene.row("sessions", session.id)["usage_source"] == expected
