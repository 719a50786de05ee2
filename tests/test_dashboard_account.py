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
from xgw import clock
from xgw.events import Envelope
from xgw.recording.facts import Scope
from xgw.store.models import Step
from xgw.values import Delta

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


# -- limits ----------------------------------------------------------------------------------------


def run_of_agent(pages: FilledPages, status: str, **columns: Any) -> tuple[str, str]:
    """A turn of one run with a checkpoint of 12:00:05, which it reached after 5 s of work, 2 s of
    them in the model's calls; `status` is the run's."""
    is_open = columns.get("ended_at") is None
    kept = {"at": clock.to_rfc3339(at(5 * SECONDS)), "elapsed_ms": 5000, "busy_ms": 2000}
    checkpoint = {"next": "llm_call", "pending_tool_calls": [], **kept, **columns.pop("kept", {})}
    turn = turn_of_agent(
        pages, status="running" if is_open else "cancelled", ended_at=columns.get("ended_at")
    )
    checkpointed = pages.filled.json(checkpoint)
    return turn, pages.filled.run(turn, status=status, checkpoint=checkpointed, **columns)


@pytest.mark.parametrize("status", ["waiting_tool", "paused"])
def test_the_time_that_a_person_takes_does_not_count(pages: FilledPages, status: str) -> None:
    turn, _ = run_of_agent(pages, status)
    shown = panel(pages, turn)
    assert stops(shown)["time"] == "5.00 s of 2 min 00 s"
    assert not [e for e in shown.one(class_="stops").walk() if "data-since" in e.attributes]


def test_what_was_cancelled_while_a_person_was_awaited_had_worked_until_then(
    pages: FilledPages,
) -> None:
    ended = {
        "ended_at": at(60),
        "ended_by": "user_cancel",
        "busy_ms": 2000,
        "latency_ms": 3_600_000,
    }
    turn, run = run_of_agent(pages, "cancelled", **ended, kept={"next": "decisions"})
    dropped = {"step_type": "tool_call", "status": "cancelled", "error_type": "no_result"}
    pages.filled.step(run, turn, 60, **dropped, ended_at=at(60))
    assert stops(panel(pages, turn))["time"] == "5.00 s of 2 min 00 s"


def test_what_ended_while_it_worked_had_worked_to_its_end(pages: FilledPages) -> None:
    ended = {"ended_at": at(60), "ended_by": "finished", "latency_ms": 3_600_000}
    turn, _ = run_of_agent(pages, "success", **ended, busy_ms=5500)
    assert stops(panel(pages, turn))["time"] == "8.50 s of 2 min 00 s"


def test_a_tool_that_was_cancelled_had_worked_to_its_end(pages: FilledPages) -> None:
    ended = {"ended_at": at(11 * SECONDS), "ended_by": "user_cancel", "latency_ms": 11_000}
    turn, run = run_of_agent(pages, "cancelled", **ended, busy_ms=2000)
    dropped = {"step_type": "tool_call", "status": "cancelled", "error_type": "no_result"}
    pages.filled.step(run, turn, 3 * SECONDS, **dropped, ended_at=at(11 * SECONDS))
    assert stops(panel(pages, turn))["time"] == "11.0 s of 2 min 00 s"


def test_the_time_of_a_turn_under_way_goes_on(pages: FilledPages) -> None:
    turn, _ = run_of_agent(pages, "running", kept={"at": clock.to_rfc3339(at(300))})
    [ticks] = [
        e for e in panel(pages, turn).one(class_="stops").walk() if "data-since" in e.attributes
    ]
    since = clock.parse_time(ticks.attributes["data-since"])
    assert abs((since - at(300 - 5 * SECONDS)).total_seconds()) < 0.01


def test_the_time_for_tools_results_goes_on(pages: FilledPages) -> None:
    filled = pages.filled
    turn = filled.turn(filled.session("s"), status="running", ended_at=None)
    run = filled.run(turn, status="waiting_tool")
    waits = {"step_type": "tool_call", "name": "look", "tool_call_id": "c1", "status": "running"}
    filled.step(run, turn, 2, **waits, ended_at=None)
    [ticks] = [
        e for e in panel(pages, turn).one(class_="stops").walk() if "data-since" in e.attributes
    ]
    assert ticks.attributes["data-since"] == clock.to_rfc3339(at(2))


def test_tokens_follow_the_call_under_way(pages: FilledPages) -> None:
    turn, run = run_of_agent(pages, "running")
    used = {"input_tokens": 100, "output_tokens": 11, "total_tokens": 111}
    pages.filled.step(run, turn, usage_source="provider", **used)
    pages.filled.change("turns", turn, output_tokens=11, usage_source="provider")
    call = pages.filled.step(run, turn, 1, step_index=1, status="running", ended_at=None)
    assert stops(panel(pages, turn))["turn tokens"] == "111 of 40,000"
    scope = Scope("default", None, turn, run, turn[5:])
    step = pages.services.recorder.live.start(scope, call)
    step.input_tokens = 130
    step.add([Delta("text", 0, "x" * 40)])
    shown = panel(pages, turn)
    assert stops(shown)["turn tokens"] == "111 + ~140 of 40,000"
    assert boxes(shown)[1] == "11 + ~10 output, so far"
    screen = pages.screen("turn", id=turn)
    told = {**step.told(clock.monotonic()), "output_tokens": 20}
    more = Envelope(None, "step.progress", at(2), "default", None, turn, run, call, told)
    drawn = {swap.target: swap.html for swap in screen.drawn(more)}
    assert drawn[f"adds-{call}"] == " + ~150"
    assert drawn[f"more-{call}"] == " + ~20"


def test_output_stays_told_while_a_tool_is_awaited(pages: FilledPages) -> None:
    filled = pages.filled
    used = {"output_tokens": 11, "usage_source": "provider"}
    turn = filled.turn(filled.session("s"), status="running", ended_at=None, **used)
    run = filled.run(turn, status="waiting_tool")
    waits = {"step_type": "tool_call", "name": "look", "tool_call_id": "c1", "status": "running"}
    filled.step(run, turn, **used)
    filled.step(run, turn, 2, step_index=1, **waits, ended_at=None)
    assert boxes(panel(pages, turn))[1] == "11 output, so far"


def test_what_nobody_knows_is_not_nothing(pages: FilledPages) -> None:
    turn, run = run_of_agent(pages, "success", ended_at=at(1))
    failed = {"status": "error", "error_type": "upstream_timeout", "context_tokens": 20}
    pages.filled.step(run, turn, **failed)
    told = stops(panel(pages, turn))
    assert told["turn cost"] == "– of $1.00"
    assert told["turn tokens"] == "– of 40,000"
    assert told["context window"] == "~20 of 128,000"


def test_tokens_of_which_some_are_unknown_are_marked(pages: FilledPages) -> None:
    turn, run = run_of_agent(pages, "success", ended_at=at(1))
    known = {"total_tokens": 30, "usage_source": "provider", "cost_usd": 0.5}
    pages.filled.step(run, turn, **known)
    pages.filled.step(run, turn, step_index=1, status="error", error_type="upstream_timeout")
    told = stops(panel(pages, turn))
    assert (told["turn tokens"], told["turn cost"]) == ("≥30 of 40,000", "$0.5000 of $1.00")


def test_results_that_never_came_are_told(pages: FilledPages) -> None:
    filled = pages.filled
    ended = {"latency_ms": 904_000, "finish_reason": "tool_calls", "ended_by": "finished"}
    turn = filled.turn(filled.session("s"), **ended, final_model="m")
    run = filled.run(turn)
    filled.step(run, turn, finish_reason="tool_calls")
    dropped = {"step_type": "tool_call", "status": "cancelled", "error_type": "no_result"}
    for number, name in enumerate(("look", "look", "note"), 1):
        filled.step(run, turn, step_index=number, name=name, tool_call_id=f"c{number}", **dropped)
    told = "Ended after 15 min 04 s: the results of look, note never came · m"
    assert truth(panel(pages, turn)) == f"{told} · finish reason tool_calls"


# -- how fast it was -------------------------------------------------------------------------------


def test_how_fast_an_answer_came_stays_told_once_it_is_there(pages: FilledPages) -> None:
    turn, run = run_of_agent(pages, "success", ended_at=at(1))
    took = {"latency_ms": 2400, "ttft_ms": 400, "output_tokens": 114, "usage_source": "provider"}
    step = pages.filled.step(run, turn, **took)
    page = pages.open(f"/ui/turns/{turn}").tree
    assert " · first token 400 ms · 57 tokens/s" in page.one(class_="truth").text
    entry = page.one(id=f"step-{step}").one("header", class_="entry-head").text
    assert entry.endswith(" · 114 tokens · 2.40 s · first token 400 ms · 57 tokens/s")


def test_how_fast_the_runs_answer_was_is_told_of_the_run(pages: FilledPages) -> None:
    turn, first, _ = run_twice(pages)
    [step] = [s for s in pages.filled.store.fetch(Step.select()) if s["run_id"] == first]
    pages.filled.change("steps", step["id"], ttft_ms=400)
    told = "Done in 2.50 s · first token 400 ms · 5 tokens/s · p/m · finish reason stop"
    assert truth(panel(pages, turn, first)) == told
    assert "first token" not in truth(panel(pages, turn))
