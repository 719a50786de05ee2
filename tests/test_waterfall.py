"""The axis of a turn's timeline: round moments, whatever the turn took."""

from __future__ import annotations

import datetime

import pytest

from xgw.web.waterfall import waterfall_of

START = datetime.datetime(2026, 1, 2, 3, 4, 5)

AXES: tuple[tuple[float, list[str]], ...] = (
    (0.35, ["0", "100 ms", "200 ms", "300 ms"]),
    (7.4, ["0", "2 s", "4 s", "6 s"]),
    (50, ["0", "15 s", "30 s", "45 s"]),
    (100, ["0", "30 s", "60 s", "90 s"]),
    (290, ["0", "2 min", "4 min"]),
    (800, ["0", "5 min", "10 min"]),
    (4000, ["0", "20 min", "40 min", "60 min"]),
    (30_000, ["0", "6 h"]),
    (400_000, ["0", "48 h", "96 h"]),
)
"""How long a turn takes, in seconds, and the moments of its axis."""


@pytest.mark.parametrize(("seconds", "labels"), AXES)
def test_the_axis_has_round_moments(seconds: float, labels: list[str]) -> None:
    end = START + datetime.timedelta(seconds=seconds)
    step = {
        "id": "step_1",
        "step_type": "tool_call",
        "name": "search",
        "status": "success",
        "attempt": None,
        "waited_ms": None,
        "ttft_ms": None,
        "latency_ms": round(seconds * 1000),
        "started_at": START,
        "ended_at": end,
        "parent_step_id": None,
        "error_type": None,
        "http_status": None,
        "model": None,
        "provider_name": None,
        "tool_call_id": None,
    }

    drawn = waterfall_of([step], end)

    assert drawn is not None
    assert [tick.label for tick in drawn.ticks] == labels
