"""What the panel of a turn tells: how it stands, its figures and limits; of the run shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_stores import run
from filled_pages import FilledPages, filled_pages
from filled_store import at
from live_pages import Element

LIMITS = {"max_iterations": 8, "max_turn_tokens": 40_000, "max_turn_cost_usd": 1.0}
SECONDS = 1 / 60
AGENTS: dict[str, Any] = {"agent_name": "a", "endpoint": None}


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[FilledPages]:
    with filled_pages(tmp_path) as pages:
        yield pages


def turn_of_agent(pages: FilledPages, **columns: Any) -> str:
    """A turn with limits, in a session of its own."""
    filled = pages.filled
    config = filled.body({"limits": {**LIMITS, "max_seconds": 120}, "context": {"window": 128_000}})
    session = filled.session("s", kind="agent", agent_name="a")
    return filled.turn(session, **{**AGENTS, "config_snapshot": config, **columns})


def panel(pages: FilledPages, turn: str, run: str = "") -> Element:
    path = f"/ui/turns/{turn}?run={run}" if run else f"/ui/turns/{turn}"
    return pages.open(path).tree.one("section", class_="turn-panel")


def truth(panel: Element) -> str:
    return panel.one(class_="truth").text


def boxes(panel: Element) -> list[str]:
    return [box.text for box in panel.one(class_="boxes").all(class_="figure")]


def stops(panel: Element) -> dict[str, str]:
    rows = panel.one("dl", class_="stops").all("div")
    return {row.one("dt").text: row.all("dd")[-1].text for row in rows}


# -- of several runs -------------------------------------------------------------------------------


def run_twice(pages: FilledPages, **second: Any) -> tuple[str, str, str]:
    """A turn of 2.5 s that was run again 16 minutes later, in 1.5 s, and its two runs."""
    filled = pages.filled
    ended = at(16 + 1.5 * SECONDS)
    turn = turn_of_agent(
        pages,
        ended_at=ended,
        latency_ms=961_500,
        busy_ms=3900,
        input_tokens=300,
        output_tokens=30,
        total_tokens=330,
        usage_source="provider",
        llm_calls=2,
        attempts=3,
        final_provider_name="p",
        final_model="m",
        finish_reason="stop",
        **{name: second[name] for name in ("status", "ended_by", "error_type") if name in second},
    )
    first = filled.run(turn, ended_at=at(2.5 * SECONDS), latency_ms=2500, busy_ms=2400)
    again = {"kind": "rerun", "run_index": 1, "from_run_id": first, "busy_ms": 1500}
    other = filled.run(turn, 16, ended_at=ended, latency_ms=1500, **{**again, **second})
    used = {"provider_name": "p", "model": "m", "usage_source": "provider", "finish_reason": "stop"}
    tokens = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    filled.step(first, turn, latency_ms=2400, **used, **tokens)
    failed = {"status": "error", "error_type": "upstream_timeout"}
    filled.step(other, turn, 16, latency_ms=200, **failed)
    tokens = {"input_tokens": 200, "output_tokens": 20, "total_tokens": 220}
    more = {"step_index": 1, "attempt": 2, "attempt_reason": "retry"}
    filled.step(other, turn, 16.01, latency_ms=900, **more, **used, **tokens)
    return turn, first, other


def test_each_run_tells_of_itself(pages: FilledPages) -> None:
    turn, first, other = run_twice(pages)
    shown = panel(pages, turn, first)
    assert truth(shown) == "Done in 2.50 s · p/m · finish reason stop"
    assert boxes(shown) == ["100 input tokens", "10 output", "– cache hit", "1 round-trip"]
    assert stops(shown)["turn tokens"] == "110 of 40,000"
    assert stops(shown)["time"] == "2.50 s of 2 min 00 s"
    assert "Its 2 runs together used 300 in → 30 out tokens." in shown.one(class_="run-words").text
    for shown in (panel(pages, turn, other), panel(pages, turn)):
        told = "Done in 1.50 s · p/m · served by the 2nd attempt · finish reason stop"
        assert truth(shown) == told
        assert boxes(shown)[:2] == ["200 input tokens", "20 output"]
        assert boxes(shown)[3] == "1 round-trip +1 failed"
        assert stops(shown)["time"] == "1.50 s of 2 min 00 s"
        assert not shown.one(class_="stops").all(class_="is-high")
    fields = [field.text for field in shown.one("details", id=f"more-{turn}").all("dt")]
    assert {"busy of 2 runs", "tokens of 2 runs"} <= set(fields)


def test_a_run_that_failed_is_no_fault_of_the_one_before(pages: FilledPages) -> None:
    failed = {"status": "error", "ended_by": "provider", "error_type": "upstream_timeout"}
    turn, first, _ = run_twice(pages, **failed)
    newest = panel(pages, turn)
    assert truth(newest) == "Failed after 1.50 s · upstream timeout · the provider failed"
    assert newest.one(class_="error-box").text == "upstream timeout"
    shown = panel(pages, turn, first)
    assert truth(shown).startswith("Done in 2.50 s")
    assert not shown.all(class_="error-box")


def test_a_run_that_is_over_stays_over_while_another_goes_on(pages: FilledPages) -> None:
    turn, first, other = run_twice(pages)
    under_way = {"status": "running", "ended_at": None}
    pages.filled.change("turns", turn, **under_way, latency_ms=None)
    pages.filled.change("runs", other, **under_way, latency_ms=None)
    assert truth(panel(pages, turn, first)).startswith("Done in 2.50 s")
    shown = panel(pages, turn)
    [timer] = [e for e in shown.one(class_="truth").walk() if "data-timer" in e.attributes]
    assert timer.attributes["data-timer"] == "2026-01-02T12:16:00.000000Z"
    assert shown.all("button", class_="danger")


def test_lists_tell_the_time_of_the_newest_run(pages: FilledPages) -> None:
    turn, _, _ = run_twice(pages)
    tree = pages.open("/ui/sessions/s").tree
    assert tree.one(id=f"line-{turn}").one(class_="line-time").text == "1.50 s"
    foot = tree.one(id=f"foot-{turn}").text
    assert (
        foot == "Turn 1 done done · run 2 in 1.50 s · p/m · 300 → 30 tokens of 2 runs · 3 attempts"
    )


def test_a_terminal_tells_the_time_of_the_newest_run(pages: FilledPages, tmp_path: Path) -> None:
    turn, _, _ = run_twice(pages)
    told = run(tmp_path / "xgw.db", "show", turn).stdout
    assert "took        1.50 s, run 2 of 2\n" in told
    [line] = [
        one for one in run(tmp_path / "xgw.db", "show", "s").stdout.splitlines() if turn in one
    ]
    assert "1.50 s" in line
