"""Agents against two stand-ins for a provider that others wrote: what they send is understood.

Steps, events and totals are held against what the stand-in put on the wire and says it was asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from agents_fixtures import AgentGate, agent, requested, tools
from fakes import Calls, Fake, Refuses, Says, Script, aimock, llmock
from gateway_fixtures import gateway
from scripted_model import Row, result, said, user
from xgw.config import Retry, Route
from xgw.store.models import Event

STORY = "Once upon a time there was a king who had no land."
SCRIPT: Script = {
    "weather?": [Calls("look", {"city": "Oslo"}), Says("It is 21 degrees.")],
    "busy?": [Refuses(0.2), Says("Now there is time.")],
    "story?": [Says(STORY, breaks_off=True)],
    "and then?": [Says("He found some.")],
    "milk!": [Calls("note", {"text": "milk and bread"}, broken=True), Says("That went wrong.")],
    "again!": [Says("All is well.")],
}
SYSTEM = {"role": "system", "content": "Be brief."}
BEGINS = ["session.created", "turn.started", "run.started", "message.added user"]
ANSWERED = ["step.started llm_call", "step.completed success"]
REQUESTED = [*ANSWERED, "tool.requested", "message.added assistant", "step.started tool_call"]
RETURNED = ["message.added tool", "tool.results_sent"]
FINISHED = ["message.added assistant", "run.completed success", "turn.completed success finished"]
COUNTS = ("input_tokens", "output_tokens", "total_tokens")
ON_WIRE = ("prompt_tokens", "completion_tokens", "total_tokens")


@pytest.fixture(scope="module", params=[llmock, aimock], ids=["llmock", "aimock"])
def fake(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fake]:
    with request.param(tmp_path_factory.mktemp("fake"), SCRIPT) as running:
        yield running


@pytest.fixture(scope="module")
def gate(fake: Fake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    route = Route(model="m", targets=("p1/m",), retry=Retry(max_attempts=2, base_delay_ms=1))
    folder = tmp_path_factory.mktemp("gate")
    given = {"agents": {"a": agent()}, "tools": tools(), "routes": (route,)}
    with gateway(folder, fake, **given) as running:
        yield AgentGate(running)


def say(gate: AgentGate, fake: Fake, message: str, session: str | None = None) -> Row:
    """The answer to a message, whose totals are right."""
    fake.plan(message)
    answer = gate.say(message, session)
    fake.check()
    assert_adds_up(gate, answer)
    return answer


def assert_adds_up(gate: AgentGate, answer: Row) -> None:
    """Every number of a turn is what the wire says, or the sum of it, wherever it stands."""
    turn, calls = gate.turn(answer), gate.steps(answer, "llm_call")
    for call, request in zip(calls, gate.gate.requests(turn), strict=True):
        on_wire = reported(gate.gate.payload(request["response_body"]))
        if on_wire is not None:
            assert [call[name] for name in COUNTS] == [on_wire[name] for name in ON_WIRE]
            assert call["usage_source"] == "provider"
        elif call["http_status"] == 429:
            assert [call[name] for name in COUNTS] == [None, None, None]
    totals = {name: sum(call[name] or 0 for call in calls) for name in COUNTS}
    counted = {
        "llm_calls": sum(call["attempt"] == 1 for call in calls),
        "tool_calls": len(gate.steps(answer, "tool_call")),
        "attempts": len(calls),
        "cached_tokens": None,
        "cost_usd": None,
        **totals,
    }
    assert {name: turn[name] for name in counted} == counted
    (ended,) = gate.gate.all(Event, Event.turn_id == turn["id"], Event.type == "turn.completed")
    assert {name: ended["payload"][name] for name in counted} == counted
    assert [call["cost_usd"] for call in calls] == [None] * len(calls)
    assert (answer["iterations"], answer["attempts"]) == (counted["llm_calls"], len(calls))
    assert (answer["costUsd"], len(answer["toolCalls"])) == (None, counted["tool_calls"])
    used = answer["tokenUsage"]
    assert [used[name] for name in ("input", "output", "total")] == list(totals.values())
    session = gate.gate.session(answer["sessionId"])
    everything = sum(one["total_tokens"] for one in gate.gate.turns(answer["sessionId"]))
    assert session["total_tokens"] == used["sessionTotal"] == everything
    assert session["cost_usd"] is None


def reported(body: bytes) -> Row | None:
    """The usage in an answer as it came."""
    events = [block.removeprefix(b"data: ") for block in body.split(b"\n\n")]
    chunks = [orjson.loads(event) for event in events if event[:1] == b"{"]
    return next((chunk["usage"] for chunk in chunks if chunk.get("usage")), None)


def delivered(gate: AgentGate, answer: Row) -> str:
    """The text of its last request as it came."""
    last = gate.gate.requests(gate.turn(answer))[-1]
    events = gate.gate.payload(last["response_body"]).split(b"\n\n")
    chunks = [orjson.loads(event[6:]) for event in events if event.startswith(b"data: {")]
    return "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks)


def asked(fake: Fake, number: int) -> Any:
    """The messages of one of the requests that it got."""
    return fake.asked()[number]["messages"]


def test_a_conversation_with_a_tool(gate: AgentGate, fake: Fake) -> None:
    answer = say(gate, fake, "weather?")
    assert (answer["message"]["content"], answer["status"]) == ("It is 21 degrees.", "success")
    assert gate.story(answer) == [
        *BEGINS,
        *REQUESTED,
        "step.completed success",
        *RETURNED,
        *ANSWERED,
        *FINISHED,
    ]
    (call,) = answer["toolCalls"]
    assert (call["name"], call["arguments"], call["success"]) == ("look", {"city": "Oslo"}, True)
    sent = orjson.loads(asked(fake, -1)[2]["tool_calls"][0]["function"]["arguments"])
    assert sent == {"city": "Oslo"}
    returned = result(call["id"], '{"city":"Oslo","degrees":21,"unit":"c"}')
    assert [asked(fake, -1)[number] for number in (0, 1, 3)] == [SYSTEM, user("weather?"), returned]


def test_what_is_refused_is_asked_again_after_the_time_it_names(
    gate: AgentGate, fake: Fake
) -> None:
    answer = say(gate, fake, "busy?")
    assert (answer["message"]["content"], answer["status"]) == ("Now there is time.", "success")
    assert gate.story(answer) == [
        *BEGINS,
        "step.started llm_call",
        "llm.error upstream_rate_limit retry",
        "step.completed error",
        *ANSWERED,
        *FINISHED,
    ]
    refused, again = gate.steps(answer)
    assert (refused["http_status"], refused["error_type"]) == (429, "upstream_rate_limit")
    assert (again["attempt"], again["attempt_reason"], again["waited_ms"]) == (2, "retry", 200)
    turn = gate.turn(answer)
    (failed,) = gate.gate.all(Event, Event.turn_id == turn["id"], Event.type == "llm.error")
    told = failed["payload"]
    assert (told["http_status"], told["will_retry"], told["wait_ms"]) == (429, True, 200)
    assert turn["latency_ms"] >= turn["busy_ms"] >= 200
    assert asked(fake, -1) == asked(fake, -2) == [SYSTEM, user("busy?")]


def test_an_answer_that_breaks_off_is_kept_as_far_as_it_came(gate: AgentGate, fake: Fake) -> None:
    answer = say(gate, fake, "story?")
    text = answer["message"]["content"]
    assert text == delivered(gate, answer)
    assert STORY.startswith(text)
    assert 0 < len(text) < len(STORY)
    assert (answer["status"], answer["error"]["type"]) == ("error", "upstream_truncated")
    assert gate.story(answer) == [
        *BEGINS,
        "step.started llm_call",
        "llm.error upstream_truncated give_up",
        "step.completed error",
        "message.added assistant",
        "run.completed error",
        "turn.completed error provider",
    ]
    (call,) = gate.steps(answer)
    assert (call["usage_source"], call["finish_reason"]) == ("estimated", None)
    assert call["input_tokens"] > 0
    assert call["output_tokens"] > 0
    say(gate, fake, "and then?", answer["sessionId"])
    told = [SYSTEM, user("story?"), said(text), user("and then?")]
    assert asked(fake, -1) == told


def test_arguments_that_are_no_json_are_not_run_and_the_model_hears_why(
    gate: AgentGate, fake: Fake
) -> None:
    answer = say(gate, fake, "milk!")
    assert (answer["message"]["content"], answer["status"]) == ("That went wrong.", "success")
    assert gate.story(answer) == [
        *BEGINS,
        *REQUESTED,
        "step.completed error",
        *RETURNED,
        *ANSWERED,
        *FINISHED,
    ]
    (call,) = answer["toolCalls"]
    assert (call["success"], call["error"]["type"]) == (False, "tool_error")
    broken = call["arguments"]
    assert broken.startswith('{"text"')
    assert not broken.endswith("}")
    (step,) = gate.steps(answer, "tool_call")
    assert (step["status"], step["metadata"]["arguments"]) == ("error", broken)
    say(gate, fake, "again!", answer["sessionId"])
    assert asked(fake, -1) == [
        SYSTEM,
        user("milk!"),
        requested((call["id"], "note", broken)),
        result(call["id"], "Error: the arguments are not a JSON object: it was not run"),
        said("That went wrong."),
        user("again!"),
    ]
