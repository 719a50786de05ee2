"""What happened, told in order: sessions, their turns, runs and steps, with what was said."""

from __future__ import annotations

from collections.abc import Iterator

from xgw import spelling
from xgw.portable.formats.blocks import Block, Facts, Heading, Overview
from xgw.portable.formats.harmless import one_line
from xgw.portable.formats.said import content_of
from xgw.portable.formats.shelf import Row, Shelf
from xgw.portable.formats.step_story import tell_step
from xgw.portable.formats.telling import failure, known, moment, spoken, took
from xgw.queries.overview import state_of_turn
from xgw.queries.wording import counted, joined, served_words, usage_with_total

_NO_SESSION = ""


def story(shelf: Shelf) -> Iterator[Block]:
    """All blocks of a report."""
    yield Heading(1, _title(shelf))
    yield Facts(_pairs(shelf))
    yield from _masked(shelf)
    for session in shelf.rows("sessions"):
        yield from _session(shelf, session)
    alone = list(shelf.rows("turns", _NO_SESSION))
    if alone:
        yield Heading(2, "Turns without a session")
        for turn in alone:
            yield from _turn(shelf, turn)
    yield from _loose(shelf)


def _title(shelf: Shelf) -> str:
    if shelf.counts["sessions"] == 1:
        return f"Report of {_name(next(shelf.rows('sessions')))}"
    return f"Report of {counted(shelf.counts['sessions'], 'session')}"


def _pairs(shelf: Shelf) -> tuple[tuple[str, str], ...]:
    head = shelf.head
    counts = [counted(shelf.counts[table], noun) for table, noun in _NOUNS.items()]
    return known(
        ("exported", moment(head["exported_at"])),
        ("asked for", ", ".join(head["asked_for"]) or _sought(head["filter"]) or "all"),
        ("holds", joined(*counts)),
        ("xgw", f"{head['xgw']['version']} on Python {head['xgw']['python']}"),
        ("platform", head["xgw"]["platform"]),
    )


def _sought(filter: Row | None) -> str:
    """How the rows were found, in words."""
    told = filter or {}
    where = [f"{name}:{text}" for name, texts in told.get("where", {}).items() for text in texts]
    project = [f"project {told['project']}"] if "project" in told else []
    sought = " ".join([*where, told.get("q", "")]).strip()
    of = [f"{told['of']} {sought}".strip()] if "of" in told else [sought] if sought else []
    return ", ".join([*of, *project])


_NOUNS = {
    "sessions": "session",
    "turns": "turn",
    "runs": "run",
    "steps": "step",
    "messages": "message",
    "request_logs": "request",
}


def _masked(shelf: Shelf) -> Iterator[Block]:
    redaction = shelf.tail["redaction"]
    if not redaction["on"]:
        yield Facts((("masked", "nothing: redaction was off"),))
        return
    rows = tuple(
        ("", (one["placeholder"], str(one["count"]), _first_place(one)))
        for one in redaction["masked"]
    )
    if rows:
        yield Heading(2, "What was masked")
        yield Overview(("stands for a value", "times", "first in"), rows)


def _first_place(masked: Row) -> str:
    places = masked["places"]
    return f"{places[0]['field']} of {places[0]['id']}" if places else ""


# -- sessions and turns ----------------------------------------------------------------------------


def _session(shelf: Shelf, session: Row) -> Iterator[Block]:
    state = session["status"] if session["status"] != "active" else ""
    yield Heading(2, f"Session {_name(session)}", state, anchor=session["id"])
    yield Facts(
        known(
            ("id", session["id"]),
            ("key", session["session_key"] if session["session_key"] != session["id"] else None),
            ("agent", session["agent_name"]),
            ("task", session["task_id"]),
            ("user", session["end_user_id"]),
            ("last answered by", served_words(session["provider_name"], session["model"])),
            ("begun", moment(session["created_at"])),
            ("last turn", moment(session["last_turn_at"])),
            ("tokens", usage_with_total(session)),
            ("cost", spelling.usd(session["cost_usd"])),
        )
    )
    turns = tuple(_turn_row(turn) for turn in shelf.rows("turns", session["id"]))
    if len(turns) > 1:
        yield Overview(_TURN_COLUMNS, turns)
    if session["session_summary"]:
        yield from spoken("summary of the session", session["session_summary"], "text")
    for turn in shelf.rows("turns", session["id"]):
        yield from _turn(shelf, turn)


_TURN_COLUMNS = ("turn", "state", "asked", "answered by", "took", "tokens", "cost")


def _turn_row(turn: Row) -> tuple[str, tuple[str, ...]]:
    asked = turn["user_input"]
    return turn["id"], (
        f"Turn {turn['turn_index'] + 1}",
        state_of_turn(turn["status"], None),
        one_line(asked, 60) if isinstance(asked, str) else spelling.UNKNOWN,
        served_words(turn["final_provider_name"], turn["final_model"]) or spelling.UNKNOWN,
        spelling.duration(turn["latency_ms"]),
        spelling.count(turn["total_tokens"], turn["usage_source"]),
        spelling.usd(turn["cost_usd"]),
    )


def _turn(shelf: Shelf, turn: Row) -> Iterator[Block]:
    runs = list(shelf.rows("runs", turn["id"]))
    state = state_of_turn(turn["status"], runs[-1]["status"] if runs else None)
    aside = joined(turn["finish_reason"], None if state == "done" else turn["ended_by"])
    yield Heading(3, f"Turn {turn['turn_index'] + 1}", state, aside, turn["id"])
    yield Facts(
        known(
            ("id", turn["id"]),
            ("key", turn["turn_key"]),
            ("agent", turn["agent_name"]),
            ("answered by", served_words(turn["final_provider_name"], turn["final_model"])),
            ("started", moment(turn["started_at"] or turn["queued_at"])),
            ("took", took(turn)),
            ("tokens", usage_with_total(turn)),
            ("cost", spelling.usd(turn["cost_usd"])),
            ("work", _work(turn)),
            ("trace", turn["trace_id"]),
        )
    )
    yield from failure(turn)
    told_by_steps = _results_of_steps(shelf, runs)
    has_messages = False
    for message in shelf.rows("messages", turn["id"]):
        has_messages = True
        if message["kind"] != "tool_result" or message["tool_call_id"] not in told_by_steps:
            yield from _message(shelf, message)
    if not has_messages:
        yield from spoken("user", turn["user_input"], "user")
        yield from spoken("assistant", turn["final_output"], "assistant")
    for run in runs:
        yield from _run(shelf, run, several=len(runs) > 1)


def _results_of_steps(shelf: Shelf, runs: list[Row]) -> set[str]:
    """The tool calls whose steps tell their results."""
    steps = (step for run in runs for step in shelf.rows("steps", run["id"]))
    return {
        step["tool_call_id"]
        for step in steps
        if step["step_type"] == "tool_call" and step["output_payload"]
    }


def _work(turn: Row) -> str:
    tried, is_vectors = turn["attempts"] - turn["llm_calls"], turn["endpoint"] == "embeddings"
    return joined(
        counted(turn["llm_calls"], "embeddings call" if is_vectors else "model answer"),
        f"{counted(turn['attempts'], 'attempt')}" if tried else None,
        counted(turn["tool_calls"], "tool call") if turn["tool_calls"] else None,
    )


def _run(shelf: Shelf, run: Row, *, several: bool) -> Iterator[Block]:
    if several or run["kind"] != "first" or run["status"] in ("paused", "waiting_tool"):
        state = state_of_turn(run["status"], run["status"]) if run["status"] else ""
        aside = joined(run["kind"], run["ended_by"])
        yield Heading(4, f"Run {run['run_index'] + 1}", state, aside, run["id"])
        yield Facts(
            known(
                ("id", run["id"]),
                ("from", run["from_run_id"]),
                ("started", moment(run["started_at"])),
                ("took", took(run)),
            )
        )
        yield from failure(run)
    requests: dict[str | None, list[Row]] = {}
    for log in shelf.rows("request_logs", run["turn_id"]):
        requests.setdefault(log["step_id"], []).append(log)
    for step in shelf.rows("steps", run["id"]):
        yield from tell_step(shelf, step, requests.get(step["id"], []))


# -- messages --------------------------------------------------------------------------------------


def _message(shelf: Shelf, message: Row) -> Iterator[Block]:
    who = _who(message)
    aside = joined(
        "history" if (message["metadata"] or {}).get("history") else None,
        "compacted" if message["compacted_by_step_id"] else None,
    )
    content = content_of(shelf, message)
    kind = message["role"] or message["kind"]
    if content not in (None, ""):
        yield from spoken(who, content, kind, aside)
    for call in message["tool_calls"] or ():
        asked = call if isinstance(call, dict) else {}
        function = asked.get("function")
        told = function if isinstance(function, dict) else {"arguments": call}
        named = f"{who} calls {told.get('name') or 'a tool'}"
        yield from spoken(named, told.get("arguments"), "call", str(asked.get("id") or ""))


def _who(message: Row) -> str:
    if message["kind"] == "tool_result":
        return joined("result", message["name"], message["tool_call_id"])
    if message["kind"] in ("status", "error"):
        return str(message["kind"])
    return joined(message["role"] or "unknown role", message["name"])


def _loose(shelf: Shelf) -> Iterator[Block]:
    """Messages from before there were turns, and requests of none."""
    messages = list(shelf.rows("messages", ""))
    if messages:
        yield Heading(2, "Messages of no turn")
        for message in messages:
            yield from _message(shelf, message)


def _name(session: Row) -> str:
    return one_line(str(session["title"] or session["session_key"]), 100)
