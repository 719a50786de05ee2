"""What `xgw show` tells about a turn."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from xgw import clock, spelling
from xgw.cli.pages import Page, spelled_json
from xgw.cli.run_page import render_error, render_next, render_steps, render_times
from xgw.cli.terminal import role_of
from xgw.queries import payloads, sessions
from xgw.queries.overview import state_of_turn
from xgw.queries.pages import Row
from xgw.queries.wording import client_words, counted, joined, nth, usage_with_total
from xgw.store.database import Store
from xgw.store.models import RequestLog

_SETTINGS_OF_THE_CALL = ("model", "tools")


def render_turn(page: Page, store: Store, turn: Row) -> None:
    """A turn with its `runs`: everything about it."""
    now = clock.now()
    run = turn["runs"][-1] if turn["runs"] else None
    state = state_of_turn(turn["status"], run["status"] if run else None)
    state = "success" if state == "done" else state
    page.head(f"turn {turn['id']}", joined(state, turn["finish_reason"]), role_of(state))
    _fields(page, store, turn, now)
    if run is not None:
        render_next(page, run)
    render_error(page, turn)
    page.section("Input")
    page.text(turn["user_input"] or "(no user message)")
    if turn["final_output"]:
        partly = "" if turn["status"] in ("success", "running") else "what had arrived"
        page.section("Output", partly)
        page.text(turn["final_output"])
    elif partial := _arrived(turn):
        page.section("Output", "so far")
        page.text(partial)
    for each in turn["runs"]:
        render_steps(page, store, each)


# -- the head --------------------------------------------------------------------------------------


def _fields(page: Page, store: Store, turn: Row, now: datetime.datetime) -> None:
    page.field("session", _session_words(store, turn))
    page.field("key", turn["turn_key"])
    page.field("task", turn["task_id"])
    page.field("agent", turn["agent_name"])
    page.field("answered by", _served(page, turn))
    render_times(page, turn, now)
    page.field("first token", _first_token(turn))
    page.field("tokens", usage_with_total(turn))
    page.field("cost", spelling.usd(turn["cost_usd"]))
    page.field("work", _work(turn))
    page.field("asked with", _settings(store, turn))
    page.field("client", _client(store, turn))
    page.field("parent", turn["parent_turn_id"])
    page.field("trace", turn["trace_id"])
    page.field("metadata", _metadata(turn))


def _arrived(turn: Row) -> str | None:
    """What an answer under way has said."""
    steps = [step for run in turn["runs"] for step in run["steps"] if step["status"] == "running"]
    return next((s["partial_output"] for s in reversed(steps) if s["partial_output"]), None)


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
        nobody = "nobody" if turn["ended_at"] else "nobody yet"
        served = f"{served or nobody}, asked for {asked}"
    last = steps[-1]["attempt"] if steps else None
    tries = f", {nth(last)} attempt" if last and last > 1 and turn["status"] == "success" else ""
    return served + tries if served else None


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
    return ", ".join(counted(count, noun) for count, noun in counts)


def _settings(store: Store, turn: Row) -> str | None:
    """The call's parameters and the names of its tools."""
    key = turn["config_snapshot"]
    sent = payloads.bodies(store, [key]).get(key) if key else None
    if not isinstance(sent, Mapping):
        return None
    given = [f"{k} {spelled_json(v)}" for k, v in sent.items() if k not in _SETTINGS_OF_THE_CALL]
    tools = sent.get("tools")
    named = tools if isinstance(tools, Sequence) and tools else []
    names = [str(t.get("name") if isinstance(t, Mapping) else t) for t in named]
    return joined(*given, f"tools: {', '.join(names)}" if names else None) or None


def _client(store: Store, turn: Row) -> str | None:
    client = (turn["metadata"] or {}).get("client")
    if client is None:
        first = RequestLog.select(RequestLog.client).where(RequestLog.turn_id == turn["id"])
        row = store.fetch_one(first.order_by(RequestLog.started_at))
        client = row and row["client"]
    return client_words(client)


def _metadata(turn: Row) -> str | None:
    kept = {k: v for k, v in (turn["metadata"] or {}).items() if k != "client" and v is not None}
    return spelled_json(kept) if kept else None
