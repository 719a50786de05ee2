"""What `xgw show` tells about a run: how it went, its timeline, each of its steps."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from xgw import clock, spelling
from xgw.cli import agent_page, texts, timeline
from xgw.cli.going_on import name_call
from xgw.cli.pages import Page, spelled_json
from xgw.cli.terminal import role_of
from xgw.queries import payloads
from xgw.queries.pages import Row
from xgw.queries.wording import error_words, first_token_words, joined, speed_words, usage_words
from xgw.recording.checkpoints import list_undecided
from xgw.store.database import Store
from xgw.web import serialize

STEP_INDENT = 3
CALL_SHOWN = 200
CAUSES = {
    "provider": "its answer failed",
    "client_disconnect": "the client left",
    "user_cancel": "by a person",
    "limit": "a limit was reached",
    "superseded": "a newer turn took its place",
    "gateway": "refused by xgw",
    "shutdown": "xgw was shut down",
    "crash": "xgw was killed meanwhile",
    "resumed": "went on in a new run",
}


def render_run(page: Page, store: Store, run: Row) -> None:
    """A run with its `steps`."""
    now = clock.now()
    page.head(f"run {run['id']}", run["status"], role_of(run["status"]))
    page.field("turn", run["turn_id"])
    page.field("run", f"{run['run_index'] + 1}, {run['kind']}")
    page.field("from", joined(run["from_run_id"], run["from_step_id"]))
    render_times(page, run, now)
    render_next(page, run)
    shown = {**run, "checkpoint": serialize.checkpoint(run["checkpoint"])}
    for name in ("checkpoint", "overrides", "metadata"):
        page.field(name.replace("_", " "), spelled_json(shown[name]) if shown[name] else None)
    render_error(page, run)
    render_steps(page, store, run)


def render_next(page: Page, run: Row) -> None:
    """What a person can do so that a run goes on, where that is needed."""
    if run["status"] == "paused":
        page.field("go on with", f"xgw resume {run['id']}")
    if run["status"] != "waiting_tool":
        return
    waiting = list_undecided(run["checkpoint"])
    calls = [(call["tool_call_id"], call["asked_by"]) for call in waiting]
    for call, named in zip(waiting, calls, strict=True):
        words = texts.one_line(f"{call['name']} {call['arguments']}", CALL_SHOWN)
        asking = f" of agent {call['agent_name']}" if call["agent_name"] else ""
        page.field("waits for", f"{words}{asking} ({call['tool_call_id']})")
        page.field(
            "decide with", f"xgw approve {run['id']} {name_call(*named, calls)}, or xgw deny"
        )


def render_error(page: Page, row: Row) -> None:
    """Why something failed, where it did."""
    if words := error_words(row):
        page.section("Error")
        page.text(words, role="bad")


def render_times(page: Page, row: Row, now: datetime.datetime) -> None:
    """When a turn or a run began, how long it took, and what ended it.

    Of a turn with several runs the newest one's time is told: between two there was no work.
    """
    page.field("ended by", _cause(row))
    begun = row["started_at"] or row.get("queued_at")
    if begun is not None:
        page.field("started", f"{spelling.moment(begun)}, {spelling.ago(begun, now)}")
    runs: Sequence[Row] = row.get("runs") or ()
    timed = runs[-1] if len(runs) > 1 else row
    took, busy = spelling.duration(_elapsed(timed, page.until)), spelling.duration(timed["busy_ms"])
    if timed["ended_at"] is None:
        took += " so far"
    elif timed["busy_ms"] is not None and busy != took and _may_have_waited(timed):
        took += f", {busy} without waits for tools and people"
    page.field("took", f"{took}, run {len(runs)} of {len(runs)}" if timed is not row else took)


def _may_have_waited(row: Row) -> bool:
    """Whether a turn or a run had tools: it waits for their results, and for people to decide."""
    steps = [step for run in row.get("runs") or (row,) for step in run["steps"]]
    return any(step["step_type"] != "llm_call" for step in steps)


def render_steps(page: Page, store: Store, run: Row) -> None:
    """A run's timeline, then each of its steps."""
    steps: list[Row] = run["steps"]
    took = spelling.duration(_elapsed(run, page.until))
    words = joined(run["id"], run["kind"], run["status"], took)
    page.section(f"Run {run['run_index'] + 1}", words)
    page.add(timeline.render(page.screen, steps, page.until))
    if not steps:
        page.line("no steps")
        return
    agent_page.render_plan(page, run["planner_state"])
    page.section("Steps")
    for number, step in enumerate(steps, 1):
        following = next((s for s in steps[number:] if s["step_type"] == "llm_call"), None)
        _step(page, store, number, step, following)


def _cause(row: Row) -> str | None:
    """Who or what ended it, where it did not simply finish."""
    cause = row["ended_by"]
    if cause in (None, "finished"):
        return None
    return f"{cause}: {CAUSES[cause]}" if cause in CAUSES else str(cause)


def _elapsed(row: Row, now: datetime.datetime) -> float | None:
    if row["latency_ms"] is not None and row["ended_at"] is not None:
        return float(row["latency_ms"])
    if row["started_at"] is None:
        return None
    return float(((row["ended_at"] or now) - row["started_at"]).total_seconds() * 1000)


def _step(page: Page, store: Store, number: int, step: Row, following: Row | None) -> None:
    status = str(step["http_status"]) if step["http_status"] and step["status"] == "error" else None
    took = None if step["latency_ms"] is None else spelling.duration(step["latency_ms"])
    ended = joined(step["status"], step["finish_reason"], status, took)
    page.head(f"{number} {step['step_type']} {_step_name(step)}", ended, timeline.role_of(step))
    page.line(joined(step["id"], step["tool_call_id"]), STEP_INDENT, "faint")
    if step["step_type"] == "llm_call":
        _call(page, step)
    else:
        _tool(page, store, step)
    if error := error_words(step):
        page.text(error, STEP_INDENT, "bad", most=4)
    if step["status"] == "error" and following is not None and (following["attempt"] or 1) > 1:
        page.line(_what_followed(following), STEP_INDENT, "faint")


def _step_name(step: Row) -> str:
    """What was called; of tools without their kind, which stands before it."""
    return timeline.name_of(step).removeprefix(f"{step['step_type']} ")


def _call(page: Page, step: Row) -> None:
    first = first_token_words(step)
    known = step["input_tokens"] is not None or step["output_tokens"] is not None
    cost = None if step["cost_usd"] is None else spelling.usd(step["cost_usd"])
    figures = joined(usage_words(step) if known else None, first, speed_words(step), cost)
    if figures:
        page.line(figures, STEP_INDENT)
    for call in step["tool_calls"] or ():
        broken = "" if call.get("arguments_json_valid", True) else "  (no valid JSON)"
        words = f"{call.get('name')} {call.get('arguments')}{broken}"
        page.text(words, STEP_INDENT, most=4, mark="asks for ")


def _what_followed(following: Row) -> str:
    wait = following["waited_ms"]
    after = f" after {spelling.duration(wait)}" if wait else " at once"
    return f"→ {following['attempt_reason']}{after}: {timeline.name_of(following)}"


def _tool(page: Page, store: Store, step: Row) -> None:
    arguments = (step["metadata"] or {}).get("arguments")
    if arguments is not None:
        page.text(str(arguments), STEP_INDENT, most=4, mark="arguments ")
    compaction = agent_page.find_compaction(store, step)
    if compaction is not None:
        agent_page.render_compaction(page, step, compaction, STEP_INDENT)
        return
    key = step["output_payload"]
    output = payloads.find_body(store, key) if key else None
    if (words := payloads.pruned_words(store, None if output else key)) is not None:
        page.line(f"result    {words}", STEP_INDENT, "faint")
    if output is not None:
        page.text(output.decode(errors="replace"), STEP_INDENT, most=6, mark="result    ")
