"""The recorder: rows and their events in one commit, in the published order; sums that hold."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recorded import KNOWN, Recorded, Request, ended, message, recorded, result, tool
from servers import DEADLINE
from xgw import clock, ids
from xgw.events import TEXT_LIMIT, TYPES, Envelope
from xgw.frozen import changed
from xgw.recording.facts import SessionFacts, TurnEnd, TurnFacts
from xgw.recording.lifecycle import IllegalMove
from xgw.recording.requests import Closing, Ending, Opening
from xgw.store.writer import Patience

SUMS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "total_tokens")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Recorded]:
    with recorded(tmp_path / "xgw.db") as one:
        yield one


# -- the order of events ---------------------------------------------------------------------------


def test_a_plain_turn(scene: Recorded) -> None:
    request = scene.turn(scene.session(), first=True)
    request.succeed()
    expected = [
        "session.created",
        "turn.started",
        "run.started",
        "message.added",
        "step.started",
        "step.completed",
        "message.added",
        "run.completed",
        "turn.completed",
    ]
    assert scene.types() == expected
    assert scene.publications() == scene.events()
    assert [e.seq for e in scene.events()] == list(range(1, len(expected) + 1))
    started, completed = scene.events()[1], scene.events()[-1]
    assert started.payload["completed_at"] is None
    assert clock.parse_time(completed.payload["completed_at"]) == completed.at
    kept = {name: completed.payload[name] for name in started.payload}
    assert kept | {"completed_at": None} == started.payload
    assert completed.payload["status"] == "success"
    assert completed.payload["final_output"] == "Hi"
    assert completed.payload["error"] is None


def test_attempts_that_fail(scene: Recorded) -> None:
    request = scene.turn()
    request.retry("retry")
    request.retry("fallback")
    request.fail()
    attempt = ["step.started", "llm.error", "step.completed"]
    assert scene.types() == [
        *("turn.started", "run.started", "message.added"),
        *attempt * 3,
        *("run.completed", "turn.completed"),
    ]
    errors = [e.payload for e in scene.events() if e.type == "llm.error"]
    shown = [(e["attempt"], e["will_retry"], e["next"], e["wait_ms"], e["target"]) for e in errors]
    assert shown == [
        (1, True, "retry", 250, None),
        (2, True, "fallback", 250, "other/model"),
        (3, False, "give_up", None, None),
    ]
    assert scene.events()[-1].payload["error"] == {
        "type": "upstream_timeout",
        "message": "too slow",
    }
    turn = scene.row("turns", request.scope.turn_id)
    assert (turn["attempts"], turn["llm_calls"], turn["status"]) == (3, 1, "error")
    steps = scene.rows("steps")
    assert [step["attempt_reason"] for step in steps] == ["initial", "retry", "fallback"]
    assert [step["step_index"] for step in steps] == [0, 1, 2]


def test_tools_of_the_client(scene: Recorded) -> None:
    request = scene.turn(scene.session(), first=True)
    tools = tool(1), tool(2)
    request.ask_for_tools(*tools)
    before = len(scene.types())
    assert scene.types()[5:] == [
        "step.completed",
        "tool.requested",
        "message.added",
        "step.started",
        "step.started",
        "run.updated",
    ]
    assert scene.row("runs", request.scope.run_id)["status"] == "waiting_tool"
    assert scene.row("turns", request.scope.turn_id)["status"] == "running"
    second = scene.again(request, resumed="tool_result", results=tuple(map(result, tools)))
    assert scene.types()[before:] == [
        "run.updated",
        *("step.completed", "message.added") * 2,
        "tool.results_sent",
        "step.started",
    ]
    second.succeed()
    assert scene.types()[-4:] == [
        "step.completed",
        "message.added",
        "run.completed",
        "turn.completed",
    ]
    turn = scene.row("turns", request.scope.turn_id)
    assert (turn["tool_calls"], turn["attempts"], turn["status"]) == (2, 2, "success")
    calls = scene.rows("steps", "step_type = 'tool_call'")
    assert [call["status"] for call in calls] == ["success", "success"]
    assert {call["parent_step_id"] for call in calls} == {request.step}


def test_a_result_that_comes_late_is_a_step_of_its_own(scene: Recorded) -> None:
    request = scene.turn(scene.session(), first=True)
    one, two = tool(1), tool(2)
    request.ask_for_tools(one, two)
    scene.again(request, resumed="tool_result", results=(result(one),)).succeed()
    late = changed(result(two).end, step_id=ids.mint("step"), name="look_up", late=True)
    count = len(scene.types())
    arrived = changed(result(two), end=late)
    scene.again(request, reopened="tool_result", results=(arrived,)).succeed()
    assert scene.types()[count : count + 6] == [
        "turn.updated",
        "run.updated",
        "step.started",
        "step.completed",
        "message.added",
        "tool.results_sent",
    ]
    [step] = scene.rows("steps", "id = ?", late.step_id)
    assert step["tool_call_id"] == "call_2"
    assert '"late":true' in step["metadata"]


def test_reopening_keeps_the_totals_and_says_why(scene: Recorded) -> None:
    request = scene.turn(scene.session(), first=True)
    request.fail()
    again = scene.again(request, reopened="turn_key")
    updated = [e for e in scene.events() if e.type == "turn.updated"]
    assert [e.payload["cause"] for e in updated] == ["turn_key"]
    turn = scene.row("turns", request.scope.turn_id)
    cleared = ("ended_at", "ended_by", "error_type", "error_message", "latency_ms")
    assert [turn[name] for name in cleared] == [None] * 5
    again.succeed()
    turn = scene.row("turns", request.scope.turn_id)
    assert (turn["status"], turn["attempts"], turn["llm_calls"]) == ("success", 2, 2)
    assert turn["total_tokens"] == KNOWN.total_tokens
    assert scene.types().count("turn.completed") == 2


def test_a_turn_that_ends_because_another_one_begins(scene: Recorded) -> None:
    session = scene.session()
    waiting = scene.turn(session, first=True)
    call = tool(1)
    waiting.ask_for_tools(call)
    count = len(scene.types())
    over = TurnEnd("superseded", clock.now(), None, keep_final=True)
    unanswered = result(call, status="cancelled", output=None, error_type="no_result").end
    scene.turn(session, closings=(Closing(waiting.scope, (unanswered,), over),)).succeed()
    assert scene.types()[count : count + 5] == [
        "step.completed",
        "run.completed",
        "turn.completed",
        "turn.started",
        "run.started",
    ]
    turn = scene.row("turns", waiting.scope.turn_id)
    assert (turn["status"], turn["ended_by"]) == ("cancelled", "superseded")
    [step] = scene.rows("steps", "tool_call_id = 'call_1'")
    assert (step["status"], step["error_type"]) == ("cancelled", "no_result")


def test_turns_whose_time_ran_out(scene: Recorded) -> None:
    session = scene.session()
    requests = [scene.turn(session, first=not n) for n in range(2)]
    closings = []
    for number, request in enumerate(requests):
        call = tool(number)
        request.ask_for_tools(call)
        end = result(call, status="cancelled", output=None, error_type="no_result").end
        over = TurnEnd("finished", clock.now(), 5, finish_reason="tool_calls", keep_final=True)
        closings.append(Closing(request.scope, (end,), over))
    assert scene.recorder.close_turns(closings).wait(DEADLINE)
    turns = scene.rows("turns")
    assert [turn["status"] for turn in turns] == ["success"] * 2
    assert [turn["finish_reason"] for turn in turns] == ["tool_calls"] * 2
    assert scene.row("sessions", session.id)["active_turn_id"] is None


def test_a_request_that_xgw_refuses_is_a_turn(scene: Recorded) -> None:
    request = Request(scene, scene.turn().scope)
    turn = ids.mint("turn")
    scope = changed(request.scope, turn_id=turn, run_id=ids.mint("run"))
    count = len(scene.types())
    at = clock.now()
    facts = TurnFacts(scope, at, "chat.completions", None, None)
    error = TurnEnd("gateway", at, 0, error_type="invalid_request_error", error_message="bad")
    ticket = scene.recorder.refuse(Opening(scope, at, turn=facts), error, ())
    assert ticket.wait(DEADLINE)
    assert scene.types()[count:] == [
        "turn.started",
        "run.started",
        "run.completed",
        "turn.completed",
    ]
    row = scene.row("turns", turn)
    shown = [row[name] for name in ("session_id", "status", "ended_by", "error_type", "attempts")]
    assert shown == [None, "error", "gateway", "invalid_request_error", 0]


def test_every_event_has_the_fields_that_the_table_names(scene: Recorded) -> None:
    session = scene.session()
    request = scene.turn(session, first=True)
    request.retry()
    call = tool(1)
    request.ask_for_tools(call)
    scene.again(request, resumed="tool_result", results=(result(call),)).fail()
    scene.again(request, reopened="turn_key").succeed()
    seen = set()
    for envelope in scene.events():
        seen.add(envelope.type)
        for name in _fields(envelope):
            assert name in envelope.payload, f"{name} of {envelope.type}"
        assert envelope.project_id == "default"
        assert envelope.session_id == session.id
        if envelope.type.startswith("step."):
            assert envelope.step_id is not None
    written = {type for type in TYPES if type.split(".")[0] in ("turn", "run", "step", "llm")}
    assert seen >= written - {
        *("turn.queued", "turn.backfilled", "step.delta", "step.progress"),
    }


def _fields(envelope: Envelope) -> list[str]:
    """The names in the table's text; those of tools only for tools, the optional ones never."""
    always = re.sub(r"; (?:in a handoff|`\w+` (?:where|of)) .*", "", TYPES[envelope.type])
    common, _, of_tools = always.partition("; for tools ")
    is_tool = "tool_call_id" in envelope.payload and envelope.type.startswith("step.")
    names = re.findall(r"`(\w+)`", of_tools if is_tool else common)
    if envelope.type == "tool.requested":
        [call] = envelope.payload["calls"]
        assert set(names[1:]) == set(call)
        return ["calls"]
    return [] if envelope.type == "session.created" else names


def test_long_texts_are_cut_in_events_and_whole_in_rows(scene: Recorded) -> None:
    long = "ü" * TEXT_LIMIT
    request = scene.turn(messages=(message("user", long),))
    request.succeed(long)
    for envelope in scene.events():
        texts = [value for value in envelope.payload.values() if isinstance(value, str)]
        assert all(len(text.encode()) <= TEXT_LIMIT for text in texts)
        assert envelope.payload.get("truncated") is (long[:9] in str(envelope.payload) or None)
    assert scene.row("turns", request.scope.turn_id)["final_output"] == long
    assert [row["content"] for row in scene.rows("messages")] == [long, long]


# -- one commit ------------------------------------------------------------------------------------


def test_no_change_without_its_event_and_no_event_without_its_change(scene: Recorded) -> None:
    request = scene.turn(scene.session(), first=True)
    request.succeed()
    before = [scene.rows(table) for table in ("sessions", "turns", "runs", "steps", "events")]
    end = ended("success", usage=KNOWN, answered=True)
    turn = TurnEnd("finished", clock.now(), 5)
    ticket = scene.recorder.finish(Ending(request.scope, request.attempt, end, turn=turn), ())
    assert ticket.wait(DEADLINE)
    assert isinstance(ticket.error, IllegalMove)
    after = [scene.rows(table) for table in ("sessions", "turns", "runs", "steps", "events")]
    assert after == before


def test_a_turn_of_a_session_that_is_gone_fails_alone(scene: Recorded) -> None:
    turn = ids.mint("turn")
    request = scene.turn()
    scope = changed(request.scope, session_id="sess_gone", turn_id=turn, run_id=ids.mint("run"))
    facts = TurnFacts(scope, clock.now(), "chat.completions", "x", None)
    opening = Opening(scope, clock.now(), turn=facts, attempt=Request(scene, scope).attempt)
    ticket = scene.recorder.begin(opening, ())
    scene.recorder.writer.wait(ticket, Patience(DEADLINE))
    assert isinstance(ticket.error, sqlite3.IntegrityError)
    request.succeed()
    assert [row["id"] for row in scene.rows("turns")] == [request.scope.turn_id]


def test_the_columns_of_a_turn_as_it_goes(scene: Recorded) -> None:
    session = scene.session()
    request = scene.turn(session, first=True)
    turn, run, step = (
        scene.row("turns", request.scope.turn_id),
        scene.row("runs", request.scope.run_id),
        scene.row("steps", request.step),
    )
    assert (turn["status"], run["status"], step["status"]) == ("running",) * 3
    assert (turn["turn_index"], run["run_index"], step["step_index"]) == (0, 0, 0)
    assert turn["trace_id"] == step["trace_id"] == ids.trace_id_of(turn["id"])
    assert step["observation_id"] == ids.observation_id_of(step["id"])
    assert run["owner"] == scene.recorder.owner
    assert (step["input_tokens"], step["usage_source"]) == (7, "estimated")
    assert (turn["input_tokens"], turn["ended_at"], step["ended_at"]) == (None, None, None)
    assert scene.row("sessions", session.id)["active_turn_id"] == turn["id"]
    request.succeed()
    turn, step = scene.row("turns", turn["id"]), scene.row("steps", step["id"])
    assert (turn["status"], turn["ended_by"], turn["finish_reason"]) == (
        "success",
        "finished",
        "stop",
    )
    assert turn["latency_ms"] >= 0
    assert (step["input_tokens"], step["usage_source"]) == (10, "provider")
    assert step["usage_raw"] == '{"prompt_tokens":10}'
    [log] = scene.rows("request_logs")
    assert (log["step_id"], log["input_tokens"], log["stream"]) == (step["id"], 10, 1)
    row = scene.row("sessions", session.id)
    assert (row["turn_count"], row["message_count"], row["request_count"]) == (1, 2, 1)
    assert (row["model"], row["provider_name"], row["context_tokens"]) == ("served", "up", 30)
    assert row["active_turn_id"] is None


# -- sessions ------


def test_the_last_started_turn_that_is_open_is_the_active_one(scene: Recorded) -> None:
    session = scene.session()
    first = scene.turn(session, first=True)
    second, third = scene.turn(session), scene.turn(session)

    def active() -> Any:
        return scene.row("sessions", session.id)["active_turn_id"]

    assert active() == third.scope.turn_id
    second.succeed()
    assert active() == third.scope.turn_id
    third.succeed()
    assert active() == first.scope.turn_id
    first.succeed()
    assert active() is None


def test_sessions_wake_and_take_over_who_uses_them(scene: Recorded) -> None:
    session = scene.session()
    scene.turn(session, first=True).succeed()
    changes = {"task_id": "task", "end_user_id": None}
    scene.turn(session, session_changes=changes).succeed()
    assert scene.row("sessions", session.id)["task_id"] == "task"
    updates = [e.payload for e in scene.events() if e.type == "session.updated"]
    assert updates == [{"task_id": "task"}]


def test_session_facts_are_the_row(scene: Recorded) -> None:
    facts = SessionFacts(
        ids.mint("sess"), "key", "default", "header", org_id="o", task_id="t", end_user_id="u"
    )
    scene.turn(facts, first=True).succeed()
    row = scene.row("sessions", facts.id)
    names = ("session_key", "source", "org_id", "task_id", "end_user_id", "status", "kind")
    assert [row[name] for name in names] == ["key", "header", "o", "t", "u", "active", "chat"]
