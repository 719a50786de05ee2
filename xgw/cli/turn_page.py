"""What `xgw show` tells about a turn, and about one run of it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from xgw import clock
from xgw.cli import spelling, timeline
from xgw.cli.overview import state_of_turn
from xgw.cli.pages import Page, joined, spelled_json
from xgw.cli.terminal import role_of
from xgw.queries import payloads, sessions
from xgw.queries.pages import Row
from xgw.store.database import Store
from xgw.store.models import RequestLog

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
_SETTINGS_OF_THE_CALL = ("model", "tools")
STEP_INDENT = 3


def render_turn(page: Page, store: Store, turn: Row) -> None:
    """A turn with its `runs`: everything about it."""
    now = clock.now()
    run = turn["runs"][-1] if turn["runs"] else None
    state = state_of_turn(turn["status"], run["status"] if run else None)
    state = "success" if state == "done" else state
    page.head(f"turn {turn['id']}", joined(state, turn["finish_reason"]), role_of(state))
    _fields(page, store, turn, now)
    render_error(page, turn)
    page.section("Input")
    page.text(turn["user_input"] or "(no user message)")
    if turn["final_output"]:
        partly = "" if turn["status"] in ("success", "running") else "what had arrived"
        page.section("Output", partly)
        page.text(turn["final_output"])
    for each in turn["runs"]:
        render_steps(page, store, each, now)


def render_run(page: Page, store: Store, run: Row) -> None:
    """A run with its `steps`."""
    now = clock.now()
    page.head(f"run {run['id']}", run["status"], role_of(run["status"]))
    page.field("turn", run["turn_id"])
    page.field("run", f"{run['run_index'] + 1}, {run['kind']}")
    page.field("from", joined(run["from_run_id"], run["from_step_id"]))
    _times(page, run, now)
    for name in ("planner_state", "checkpoint", "overrides", "metadata"):
        page.field(name.replace("_", " "), spelled_json(run[name]) if run[name] else None)
    render_error(page, run)
    render_steps(page, store, run, now)


def render_error(page: Page, row: Row) -> None:
    """Why something failed, where it did."""
    kind, message = row["error_type"], row["error_message"]
    if kind is None and message is None:
        return
    page.section("Error")
    page.text(": ".join(part for part in (kind, message) if part), role="bad")


def usage_words(row: Row) -> str:
    """Tokens in and out with their parts, marked by their source."""
    source = row["usage_source"]
    if row["input_tokens"] is None and row["output_tokens"] is None:
        return spelling.UNKNOWN
    told = f"{spelling.count(row['input_tokens'], source)} in"
    parts = []
    if row["cached_tokens"] is not None:
        parts.append(f"{row['cached_tokens']:,} cached")
    if row.get("cache_write_tokens"):
        parts.append(f"{row['cache_write_tokens']:,} written to the cache")
    told += f" ({', '.join(parts)})" if parts else ""
    told += f" → {spelling.count(row['output_tokens'], source)} out"
    return told + (f" ({row['reasoning_tokens']:,} reasoning)" if row["reasoning_tokens"] else "")


def usage_with_total(row: Row) -> str:
    """The same with the sum, and where the figures come from."""
    if row["total_tokens"] is None:
        return usage_words(row)
    total = spelling.count(row["total_tokens"], row["usage_source"])
    told = {"provider": "as reported", "estimated": "estimated", "partial": "as far as known"}
    return f"{usage_words(row)} = {total}, {told.get(row['usage_source'] or '', 'source unknown')}"


def render_steps(page: Page, store: Store, run: Row, now: datetime.datetime) -> None:
    """A run's timeline, then each of its steps."""
    steps: list[Row] = run["steps"]
    took = spelling.duration(_elapsed(run, now))
    words = joined(run["kind"], run["status"], took, run["id"])
    page.section(f"Run {run['run_index'] + 1}", words)
    page.add(timeline.render(page.screen, steps, now))
    if not steps:
        page.line("no steps")
        return
    page.section("Steps")
    for number, step in enumerate(steps, 1):
        following = next((s for s in steps[number:] if s["step_type"] == "llm_call"), None)
        _step(page, store, number, step, following)


# -- the head --------------------------------------------------------------------------------------


def _fields(page: Page, store: Store, turn: Row, now: datetime.datetime) -> None:
    page.field("session", _session_words(store, turn))
    page.field("key", turn["turn_key"])
    page.field("task", turn["task_id"])
    page.field("agent", turn["agent_name"])
    page.field("answered by", _served(page, turn))
    _times(page, turn, now)
    page.field("first token", _first_token(turn))
    page.field("tokens", usage_with_total(turn))
    page.field("cost", spelling.usd(turn["cost_usd"]))
    page.field("work", _work(turn))
    page.field("asked with", _settings(store, turn))
    page.field("client", _client(store, turn))
    page.field("parent", turn["parent_turn_id"])
    page.field("trace", turn["trace_id"])
    page.field("metadata", _metadata(turn))


def _cause(row: Row) -> str | None:
    """Who or what ended it, where it did not simply finish."""
    cause = row["ended_by"]
    if cause in (None, "finished"):
        return None
    return f"{cause}: {CAUSES[cause]}" if cause in CAUSES else str(cause)


def _session_words(store: Store, turn: Row) -> str | None:
    if turn["session_id"] is None:
        return "none"
    session = sessions.find_session(store, turn["session_id"])
    if session is None:
        return str(turn["session_id"])
    place = f"turn {turn['turn_index'] + 1} of {session['turn_count']}"
    if session["session_key"] == session["id"]:
        return f"{session['id']}, {place}"
    return f"{session['session_key']} ({session['id']}), {place}"


def _served(page: Page, turn: Row) -> str | None:
    steps = [s for run in turn["runs"] for s in run["steps"] if s["step_type"] == "llm_call"]
    served = page.served(turn["final_provider_name"], turn["final_model"])
    asked = next((s["model_requested"] for s in steps if s["model_requested"]), None)
    if asked and asked != turn["final_model"]:
        served = f"{served or spelling.UNKNOWN}, asked for {asked}"
    last = steps[-1]["attempt"] if steps else None
    tries = f", {_nth(last)} attempt" if last and last > 1 and turn["status"] == "success" else ""
    return served + tries if served else None


def _nth(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0)
    return f"{number}{ending or 'th'}"


def _times(page: Page, row: Row, now: datetime.datetime) -> None:
    page.field("ended by", _cause(row))
    begun = row["started_at"] or row.get("queued_at")
    if begun is not None:
        page.field("started", f"{spelling.moment(begun)}, {spelling.ago(begun, now)}")
    took, busy = spelling.duration(_elapsed(row, now)), spelling.duration(row["busy_ms"])
    if row["ended_at"] is None:
        took += " so far"
    elif row["busy_ms"] is not None and busy != took:
        took += f", {busy} without waits for tools and people"
    page.field("took", took)


def _elapsed(row: Row, now: datetime.datetime) -> float | None:
    if row["latency_ms"] is not None and row["ended_at"] is not None:
        return float(row["latency_ms"])
    if row["started_at"] is None:
        return None
    return float(((row["ended_at"] or now) - row["started_at"]).total_seconds() * 1000)


def _first_token(turn: Row) -> str | None:
    """After the turn's start, attempts that failed included."""
    for step in (step for run in turn["runs"] for step in run["steps"]):
        if step["ttft_ms"] is not None and step["status"] != "error" and turn["started_at"]:
            before = (step["started_at"] - turn["started_at"]).total_seconds() * 1000
            return f"after {spelling.duration(max(0.0, before) + step['ttft_ms'])}"
    return None


def _work(turn: Row) -> str:
    counts = (
        (turn["llm_calls"], "model call"),
        (turn["attempts"], "attempt"),
        (turn["tool_calls"], "tool call"),
    )
    return ", ".join(f"{n:,} {noun}{'' if n == 1 else 's'}" for n, noun in counts)


def _settings(store: Store, turn: Row) -> str | None:
    """The call's parameters and the names of its tools."""
    key = turn["config_snapshot"]
    sent = payloads.bodies(store, [key]).get(key) if key else None
    if not isinstance(sent, Mapping):
        return None
    given = [f"{k} {spelled_json(v)}" for k, v in sent.items() if k not in _SETTINGS_OF_THE_CALL]
    tools = sent.get("tools")
    names = [str(t) for t in tools] if isinstance(tools, Sequence) and tools else []
    return joined(*given, f"tools: {', '.join(names)}" if names else None) or None


def _client(store: Store, turn: Row) -> str | None:
    client = (turn["metadata"] or {}).get("client")
    if client is None:
        first = RequestLog.select(RequestLog.client).where(RequestLog.turn_id == turn["id"])
        row = store.fetch_one(first.order_by(RequestLog.started_at))
        client = row and row["client"]
    return client_words(client)


def client_words(client: Any) -> str | None:
    """Who called, in words."""
    if not isinstance(client, Mapping):
        return None
    key = f"key {client['key']}" if client.get("key") else None
    address = f"from {client['address']}" if client.get("address") else None
    return joined(client.get("user_agent"), address, key) or None


def _metadata(turn: Row) -> str | None:
    kept = {k: v for k, v in (turn["metadata"] or {}).items() if k != "client" and v is not None}
    return spelled_json(kept) if kept else None


# -- steps -----------------------------------------------------------------------------------------


def _step(page: Page, store: Store, number: int, step: Row, following: Row | None) -> None:
    status = str(step["http_status"]) if step["http_status"] and step["status"] == "error" else None
    took = None if step["latency_ms"] is None else spelling.duration(step["latency_ms"])
    ended = joined(step["status"], step["finish_reason"], status, took)
    page.head(f"{number} {step['step_type']} {step_name(step)}", ended, timeline.role_of(step))
    page.line(joined(step["id"], step["tool_call_id"]), STEP_INDENT, "faint")
    if step["step_type"] == "llm_call":
        _call(page, step)
    else:
        _tool(page, store, step)
    error = ": ".join(part for part in (step["error_type"], step["error_message"]) if part)
    if error:
        page.text(error, STEP_INDENT, "bad", most=4)
    if step["status"] == "error" and following is not None and (following["attempt"] or 1) > 1:
        page.line(_what_followed(following), STEP_INDENT, "faint")


def step_name(step: Row) -> str:
    """What was called; of tools without their kind, which stands before it."""
    return timeline.name_of(step).removeprefix(f"{step['step_type']} ")


def _call(page: Page, step: Row) -> None:
    first = None if step["ttft_ms"] is None else f"first token {spelling.duration(step['ttft_ms'])}"
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


def speed_words(step: Row) -> str | None:
    """Tokens a second after the first one."""
    ms = (step["latency_ms"] or 0) - (step["ttft_ms"] or 0)
    if step["ttft_ms"] is None or not step["output_tokens"] or ms < 50:
        return None
    return f"{step['output_tokens'] * 1000 / ms:.0f} tokens/s"


def _tool(page: Page, store: Store, step: Row) -> None:
    arguments = (step["metadata"] or {}).get("arguments")
    if arguments is not None:
        page.text(str(arguments), STEP_INDENT, most=4, mark="arguments ")
    key = step["output_payload"]
    output = payloads.find_body(store, key) if key else None
    if output is not None:
        page.text(output.decode(errors="replace"), STEP_INDENT, most=6, mark="result    ")
