"""Compaction: what is oldest is summarised by the model, kept in the history, and sent no more."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from agent_gates import GATES
from agents_fixtures import AgentGate, a_test_with, agent, agents, asks, requested
from dashboard import Browser
from gateway_fixtures import Reading
from scripted_model import (
    DONE,
    HANG,
    Row,
    delta,
    finish,
    result,
    said,
    stream,
    streams,
    usage,
    user,
    whole,
)
from servers import eventually
from xgw.agents.context import SUMMARY
from xgw.store.models import Event, Message, Step

LONG = "the order A-17 was sent on Monday " * 20
OVERFLOW = whole(
    {"error": {"message": "too long", "code": "context_length_exceeded"}}, status="400 Bad"
)
BRIEF = {"role": "system", "content": "Be brief."}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    plain = {"tools": ("note", "stuck")}
    named = {
        "a": agent(**plain, context={"window": 900, "compact_at": 0.7, "keep_last_turns": 1}),
        "wide": agent(**plain, context={"window": 100_000, "keep_last_turns": 2}),
        "tight": agent(**plain, context={"window": 400, "keep_last_turns": 1}),
        "unknown": agent(**plain, context={"keep_last_turns": 1}),
        "spent": agent(
            **plain,
            context={"window": 900, "compact_at": 0.7, "keep_last_turns": 1},
            limits={"max_turn_tokens": 12},
        ),
    }
    with agents(tmp_path_factory.mktemp("compaction"), agents=named) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def summary(text: str) -> Row:
    """The summary as the model gets it."""
    return user(f"{SUMMARY}\n\n{text}")


def talk(gate: AgentGate, *messages: str, name: str = "a") -> str:
    """A session with these turns, each answered with its own text."""
    session: str | None = None
    for message in messages:
        gate.model.will(streams(f"so: {message}"))
        session = gate.say(message, session, name=name)["sessionId"]
    assert session is not None
    return session


def compacted(gate: AgentGate, session: str) -> list[Row]:
    """What `context.compacted` told in a session."""
    events = gate.gate.all(Event, Event.session_id == session, Event.type == "context.compacted")
    return [event["payload"] for event in events]


def taken_out(gate: AgentGate, session: str) -> list[str]:
    """The texts of the messages that are not in the context any more."""
    rows = gate.gate.all(Message, Message.session_id == session, by=Message.message_index)
    return [row["content"] for row in rows if row["compacted_by_step_id"]]


def compact(gate: AgentGate, session: str) -> Row:
    reply = gate.post(f"/sessions/{session}/compact", {})
    assert reply.status == 200, reply.body
    shown: Row = reply.json
    return shown


# -- at the threshold ------------------------------------------------------------------------------


def test_older_turns_are_summarised_before_the_context_is_too_long(gate: AgentGate) -> None:
    session = talk(gate, LONG, "second", LONG)
    gate.model.will(streams("A-17 was ", "sent."), streams("on Monday"))
    answer = gate.say("when?", session)
    assert answer["message"]["content"] == "on Monday"
    assert gate.story(answer)[1:] == [
        "turn.started",
        "run.started",
        "message.added user",
        "step.started memory_write",
        "step.started llm_call",
        "step.completed success",
        "step.completed success",
        "context.compacted",
        "session.updated",
        "step.started llm_call",
        "step.completed success",
        "message.added assistant",
        "run.completed success",
        "turn.completed success finished",
    ]
    *_, asked, sent = (request.json for request in gate.model.asked)
    assert "tools" not in asked
    assert LONG.strip() in asked["messages"][1]["content"]
    assert "second" in asked["messages"][1]["content"]
    assert sent["messages"] == [
        BRIEF,
        summary("A-17 was sent."),
        user(LONG),
        said(f"so: {LONG}"),
        user("when?"),
    ]


def test_what_was_compacted_stands_in_the_record(gate: AgentGate) -> None:
    session = talk(gate, LONG, "second", LONG)
    gate.model.will(streams("sent"), streams("ok"))
    answer = gate.say("when?", session)
    (told,) = compacted(gate, session)
    gone = [LONG, f"so: {LONG}", "second", "so: second"]
    assert taken_out(gate, session) == gone
    assert (told["trigger"], told["strategy"], told["summary"]) == ("threshold", "summary", "sent")
    assert told["reason"] is None
    assert told["before_tokens"] > 630 > told["after_tokens"] > 0
    step, call, _ = gate.steps(answer)
    assert (step["step_type"], step["name"]) == ("memory_write", "compaction")
    assert (call["parent_step_id"], call["metadata"]) == (step["id"], {"purpose": "compaction"})
    shown = gate.gate.get(f"/steps/{step['id']}").json
    assert shown["input_payload"]["compacted_message_ids"] == told["compacted_message_ids"]
    assert shown["output_payload"] == {
        name: told[name]
        for name in (
            "strategy",
            "reason",
            "before_tokens",
            "after_tokens",
            "compacted_message_ids",
            "summary",
        )
    }
    listed = gate.gate.get(f"/sessions/{session}/messages?order=asc").json["data"]
    marked = [one["id"] for one in listed if one["compacted_by_step_id"] == step["id"]]
    assert marked == told["compacted_message_ids"]
    assert gate.gate.get(f"/sessions/{session}").json["session_summary"] == "sent"


def test_its_call_counts_as_the_turns(gate: AgentGate) -> None:
    session = talk(gate, LONG, "second", LONG)
    gate.model.will(streams("sent"), streams("ok"))
    answer = gate.say("when?", session)
    assert answer["tokenUsage"]["total"] == 20
    assert (answer["attempts"], answer["finishReason"]) == (2, "stop")
    assert answer["tokenUsage"]["sessionTotal"] == 50


def test_the_earlier_summary_is_part_of_the_next(gate: AgentGate) -> None:
    session = talk(gate, LONG, "second", LONG)
    gate.model.will(streams("first summary"), streams(LONG))
    gate.say("third", session)
    gate.model.will(streams("second summary"), streams("ok"))
    gate.say("fourth", session)
    asked, sent = (request.json["messages"] for request in gate.model.asked[-2:])
    assert "first summary" in asked[1]["content"]
    assert sent[:2] == [BRIEF, summary("second summary")]
    assert not any("first summary" in str(message) for message in sent)
    assert [told["summary"] for told in compacted(gate, session)] == [
        "first summary",
        "second summary",
    ]


def test_nothing_of_a_summary_is_streamed_as_an_answer(gate: AgentGate) -> None:
    session = talk(gate, LONG, "second", LONG)
    is_heard, is_read = threading.Event(), threading.Event()
    ends = finish(), usage(1, 1), DONE
    gate.model.will(
        stream(delta("the summary"), is_heard, *ends), stream(delta("the answer"), is_read, *ends)
    )
    message = {"message": "when?", "sessionId": session}
    reading = Reading(gate.gate.send(message, "/agents/a/chat/stream", "POST"))
    reading.until(b'"purpose":"compaction"')
    is_heard.set()
    reading.until(b"the answer")
    is_read.set()
    told = [block for block in reading.rest().body.split(b"\n\n") if b"step.delta" in block]
    assert any(b"the answer" in block for block in told)
    assert not any(b"the summary" in block for block in told)


def test_without_a_summary_the_oldest_turns_are_dropped(gate: AgentGate) -> None:
    session = talk(gate, LONG, "second", LONG)
    gate.model.will(whole({"error": {"message": "on fire"}}, status="500 No"), streams("ok"))
    answer = gate.say("when?", session)
    assert answer["status"] == "success"
    (told,) = compacted(gate, session)
    assert (told["strategy"], told["summary"]) == ("drop", None)
    assert told["reason"] == "upstream_error: on fire"
    assert gate.sent(-1) == [BRIEF, user(LONG), said(f"so: {LONG}"), user("when?")]
    assert [s["status"] for s in gate.steps(answer)] == ["success", "error", "success"]
    assert any(told.startswith("llm.error") for told in gate.story(answer))


def test_an_empty_summary_is_none(gate: AgentGate) -> None:
    session = talk(gate, LONG, "second", LONG)
    gate.model.will(streams(" "), streams("ok"))
    gate.say("when?", session)
    assert compacted(gate, session)[0]["reason"] == "the model's summary is empty"


def test_a_limit_that_a_summary_reaches_ends_the_turn(gate: AgentGate) -> None:
    session = talk(gate, LONG, "second", LONG, name="spent")
    gate.model.will(stream(delta("sum"), finish(), usage(10, 5), DONE))
    answer = gate.say("when?", session, name="spent")
    assert (answer["limitReached"], answer["message"]["content"]) == ("turn_tokens", None)
    assert [told["strategy"] for told in compacted(gate, session)] == ["summary"]


TABS = ("summary", "sent", "received", "changes", "attempts", "timing", "usage", "raw")


def test_pages_show_it(gate: AgentGate) -> None:
    session = talk(gate, LONG, "second", LONG)
    gate.model.will(streams("the summary"), streams("ok"))
    answer = gate.say("when?", session)
    browser = Browser(gate.gate.url)
    compaction, call, _ = gate.steps(answer)
    page = browser.open(f"/ui/sessions/{session}")
    assert page.status == 200
    assert b"compacted" in page.body
    assert f"/ui/steps/{compaction['id']}".encode() in page.body
    assert browser.open(f"/ui/turns/{answer['turnId']}").status == 200
    for step in (compaction, call):
        for tab in TABS:
            assert browser.open(f"/ui/steps/{step['id']}?tab={tab}").status == 200, tab
    assert b"the summary" in browser.open(f"/ui/steps/{compaction['id']}").body


# -- in a turn -------------------------------------------------------------------------------------


def noted(number: int) -> tuple[str, str, str]:
    return (f"c{number}", "note", f'{{"text": "{number} {LONG.strip()}"}}')


def test_the_rounds_of_a_long_turn_are_compacted_but_for_the_last(gate: AgentGate) -> None:
    gate.model.will(asks(noted(1)), asks(noted(2)), streams("noted twice"), streams("done"))
    answer = gate.say("note it")
    assert answer["message"]["content"] == "done"
    sent = gate.sent(-1)
    assert sent[:3] == [BRIEF, summary("noted twice"), user("note it")]
    assert [message["role"] for message in sent[3:]] == ["assistant", "tool"]
    assert sent[3] == requested(noted(2))
    assert sent[4]["tool_call_id"] == "c2"
    gate.model.will(streams("next"))
    gate.say("on", answer["sessionId"])
    assert gate.sent(-1)[:-1] == [*sent, said("done")]


def test_what_fits_nowhere_is_not_sent(gate: AgentGate) -> None:
    answer = gate.say(LONG * 3, name="tight")
    assert answer["limitReached"] == "context"
    assert compacted(gate, answer["sessionId"]) == []


def test_turns_that_were_to_be_kept_go_where_nothing_else_helps(gate: AgentGate) -> None:
    session = talk(gate, LONG, name="tight")
    gate.model.will(streams("short"), streams("ok"))
    gate.say("second " + LONG, session, name="tight")
    assert gate.sent(-1) == [BRIEF, summary("short"), user("second " + LONG)]


# -- a provider that refuses -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wide", "unknown"])
def test_a_context_that_the_provider_refuses_is_compacted_once(gate: AgentGate, name: str) -> None:
    session = talk(gate, "one", "two", "three", name=name)
    gate.model.will(OVERFLOW, streams("sum"), streams("ok"))
    answer = gate.say("four", session, name=name)
    assert (answer["status"], answer["message"]["content"]) == ("success", "ok")
    (told,) = compacted(gate, session)
    assert told["trigger"] == "overflow"
    assert gate.sent(-1)[:2] == [BRIEF, summary("sum")]
    (refused,) = gate.gate.all(Event, Event.turn_id == answer["turnId"], Event.type == "llm.error")
    assert (refused["payload"]["next"], refused["payload"]["will_retry"]) == ("retry", True)


def test_a_second_refusal_ends_the_turn(gate: AgentGate) -> None:
    session = talk(gate, "one", "two", "three", name="wide")
    gate.model.will(OVERFLOW, streams("sum"), OVERFLOW)
    answer = gate.say("four", session, name="wide")
    assert answer["error"]["type"] == "context_overflow"
    assert len(compacted(gate, session)) == 1
    gate.model.will(streams("on"))
    assert gate.say("five", session, name="wide")["status"] == "success"


def test_the_results_of_tools_are_told_once_where_their_call_is_sent_again(gate: AgentGate) -> None:
    gate.model.will(asks(("c1", "note", '{"text": "t"}')), asks(("c2", "note", '{"text": "u"}')))
    gate.model.will(OVERFLOW, streams("sum"), streams("ok"))
    answer = gate.say("go", name="wide")
    assert gate.story(answer).count("tool.results_sent") == 2
    assert gate.sent(-1)[1:] == [
        summary("sum"),
        user("go"),
        requested(("c2", "note", '{"text": "u"}')),
        result("c2", "kept: u"),
    ]


# -- when asked for --------------------------------------------------------------------------------


def test_compacting_by_request(gate: AgentGate) -> None:
    session = talk(gate, "one", "two", "three", "four", name="wide")
    gate.model.will(streams("sum"))
    shown = compact(gate, session)
    assert shown["session_summary"] == "sum"
    (told,) = compacted(gate, session)
    assert (told["trigger"], told["strategy"]) == ("request", "summary")
    assert shown["context"]["used"] == told["after_tokens"]
    assert taken_out(gate, session) == ["one", "so: one", "two", "so: two"]
    gate.model.will(streams("ok"))
    answer = gate.say("five", session, name="wide")
    assert [m["content"] for m in gate.sent(-1)[2:]] == [
        "three",
        "so: three",
        "four",
        "so: four",
        "five",
    ]
    assert gate.steps(answer)[0]["history"] == "rewritten"


def test_it_is_recorded_with_the_newest_turn(gate: AgentGate) -> None:
    session = talk(gate, "one", "two", "three", name="wide")
    gate.model.will(streams("sum"))
    compact(gate, session)
    turns = gate.gate.get(f"/sessions/{session}/turns").json["data"]
    assert [(turn["status"], turn["attempts"]) for turn in turns] == [
        ("success", 2),
        ("success", 1),
        ("success", 1),
    ]
    whole_turn = gate.gate.get(f"/turns/{turns[0]['id']}").json
    (run,) = whole_turn["runs"]
    assert run["status"] == "success"
    assert [step["step_type"] for step in run["steps"]] == ["llm_call", "memory_write", "llm_call"]
    assert (whole_turn["total_tokens"], whole_turn["final_output"]) == (20, "so: three")


def test_where_there_is_nothing_to_compact(gate: AgentGate) -> None:
    fresh = gate.post("/sessions", {"agent": "wide"}).json["id"]
    for session in (fresh, talk(gate, "one", "two", name="wide")):
        reply = gate.post(f"/sessions/{session}/compact", {})
        assert (reply.status, reply.error["code"]) == (409, "nothing_to_compact")


def test_a_model_alone_summarises_its_own_conversation(gate: AgentGate) -> None:
    session: str | None = None
    for message in ("one", "two", "three", "four", "five"):
        gate.model.will(streams(f"so: {message}"))
        session = gate.say(message, session, name="chat", model="m")["sessionId"]
    assert session is not None
    gate.model.will(streams("sum"))
    assert compact(gate, session)["session_summary"] == "sum"
    assert gate.model.asked[-1].json["model"] == "m"
    assert taken_out(gate, session) == ["one", "so: one"]


def test_a_clients_own_session_is_not_compacted(gate: AgentGate) -> None:
    session = gate.post("/sessions", {}).json["id"]
    reply = gate.post(f"/sessions/{session}/compact", {})
    assert (reply.status, reply.error["code"]) == (409, "no_agent")


def test_not_while_a_turn_is_under_way(gate: AgentGate) -> None:
    session = talk(gate, "one", "two", "three", name="wide")
    gate.model.will(asks(("c1", "stuck", "{}")))
    turn = gate.say("go", session, name="wide", wait=0)
    assert GATES["stuck runs"].wait(30)
    reply = gate.post(f"/sessions/{session}/compact", {})
    assert (reply.status, reply.error["code"]) == (409, "session_busy")
    gate.model.will(streams("ok"))
    GATES["free"].set()
    assert gate.ended(turn)["status"] == "success"


def test_a_message_that_comes_meanwhile_waits(gate: AgentGate) -> None:
    session = talk(gate, "one", "two", "three", name="wide")
    go_on = threading.Event()
    gate.model.will(stream(delta("su"), go_on, delta("m"), finish(), usage(1, 1), DONE))
    asking = threading.Thread(target=compact, args=(gate, session))
    asking.start()
    eventually(lambda: len(gate.model.asked) == 4)
    gate.model.will(streams("ok"))
    answer = gate.say("four", session, name="wide", wait=0)
    assert answer["status"] == "queued"
    go_on.set()
    asking.join(10)
    assert gate.ended(answer)["status"] == "success"
    assert gate.sent(-1)[1] == summary("sum")


def test_a_turn_that_is_cancelled_in_a_compaction_changes_nothing(gate: AgentGate) -> None:
    session = talk(gate, LONG, "second", LONG)
    gate.model.will(stream(delta("half a summ"), HANG))
    turn = gate.say("when?", session, wait=0)
    eventually(lambda: len(gate.steps(turn, "llm_call")) == 1)
    eventually(lambda: len(gate.model.asked) == 4)
    gate.cancel(turn["turnId"])
    assert gate.ended(turn)["status"] == "cancelled"
    assert [s["status"] for s in gate.steps(turn)] == ["cancelled", "cancelled"]
    assert (compacted(gate, session), taken_out(gate, session)) == ([], [])
    assert [m["role"] for m in gate.gate.messages(gate.turn(turn))] == ["user"]
    gate.model.will(streams("sum"), streams("ok"))
    assert gate.say("again", session)["status"] == "success"


def test_no_step_is_left_open(gate: AgentGate) -> None:
    assert gate.gate.all(Step, Step.status == "running") == []
