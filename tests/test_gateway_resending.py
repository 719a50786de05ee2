"""Long histories that are sent again: passed on, masked, judged and recorded as new ones are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from gateway_fixtures import PROVIDER_KEY, Gate, Reply, a_test_of, gate_and_model, provider
from scripted_model import (
    Model,
    Row,
    asks_for,
    call,
    chat,
    named,
    result,
    said,
    says,
    streams,
    user,
)
from xgw.config import Route

PROSE = " ".join(f"word{n}" for n in range(400))
HISTORY: list[Row] = [{"role": "system", "content": f"be kind {PROSE}"}]
for number in range(9):
    HISTORY += [user(f"question {number} {PROSE}"), said(f"answer {number} {PROSE} ü🙂")]
assert len(orjson.dumps(HISTORY)) > 50_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    model = Model()
    tables = {
        "providers": (provider(model),),
        "routes": (
            Route(model="m", targets=("p1/m",)),
            Route(model="renamed", targets=("p1/another name",)),
        ),
    }
    with gate_and_model(tmp_path_factory.mktemp("resending"), model, **tables) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        served.model.always(says("ok"))
        yield served


def spaced(body: Row) -> bytes:
    return json.dumps(body).encode()


def wide(body: Row) -> bytes:
    return json.dumps(body, indent=1, ensure_ascii=False).encode()


def backwards(body: Row) -> bytes:
    return orjson.dumps(dict(reversed(body.items())))


def check(gate: Gate, reply: Reply, sent: bytes) -> Row:
    """The request went out whole, and the record has every byte of it; returns its turn."""
    assert reply.status == 200, reply.body
    turn = gate.turn(reply)
    (step,) = gate.steps(turn, "llm_call")
    asked = gate.model.asked[-1].body
    assert gate.payload(step["input_payload"]) == asked
    elements = orjson.loads(asked)["messages"]
    assert elements == orjson.loads(sent)["messages"]
    counted = gate.services.counter.estimate_request(elements, None, "m")
    (started,) = [e for e in gate.events(turn) if e["type"] == "step.started"]
    assert started["payload"]["input_tokens"] == counted
    return turn


@pytest.mark.parametrize("spell", [orjson.dumps, spaced, wide, backwards])
@pytest.mark.parametrize("model", ["m", "renamed"])
@pytest.mark.parametrize("streamed", [False, True])
def test_each_request_passes_whole_and_adds_what_is_new(
    gate: Gate, spell: Callable[[Row], bytes], model: str, streamed: bool
) -> None:
    gate.model.always(streams("ok") if streamed else says("ok"))
    session = f"{spell.__name__} {model} {streamed}"
    messages = [*HISTORY, user(f"first of {session}")]
    for number in range(4):
        body = spell(chat(*messages, model=model, stream=streamed, **named(session, f"t{number}")))
        turn = check(gate, gate.post(body), body)
        plain = {"model": model, "messages": messages, "stream": streamed}
        assert orjson.loads(gate.payload(turn["input_payload"])) == plain
        assert turn["user_input"] == messages[-1]["content"]
        told = [m["content"] for m in gate.messages(turn)]
        if number:
            assert told == [messages[-1]["content"], "ok"]
            (step,) = gate.steps(turn, "llm_call")
            assert step["history"] == "appended"
        messages += [said("ok"), user(f"next {number} {PROSE}")]
    expected = {"model": "another name"} if model == "renamed" else {"model": "m"}
    assert orjson.loads(gate.model.asked[-1].body).items() >= expected.items()


def test_what_goes_out_is_what_came_byte_for_byte(gate: Gate) -> None:
    messages = [*HISTORY, user("as it is")]
    for _ in range(3):
        body = spaced(chat(*messages))
        check(gate, gate.post(body, x_session_id="as it is"), body)
        assert gate.model.asked[-1].body == body
        messages += [said("ok"), user(PROSE)]


EDITS: dict[str, Callable[[list[Row]], list[Row]]] = {
    "the same again": lambda sent: sent,
    "the last one anew": lambda sent: [*sent[:-1], user("on second thoughts")],
    "two fewer": lambda sent: sent[:-2],
    "another first one": lambda sent: [{"role": "system", "content": "be rude"}, *sent[1:]],
    "one in the middle": lambda sent: [*sent[:5], user("changed"), *sent[6:]],
    "the last ones gone, and others": lambda sent: [*sent[:-3], user("a"), said("b"), user("c")],
    "a prompt at the end": lambda sent: [*sent, {"role": "developer", "content": "be brief"}],
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_history_that_was_edited(gate: Gate, edit: str) -> None:
    messages = [*HISTORY, user(f"before {edit}")]
    for number in range(3):
        body = orjson.dumps(chat(*messages, **named(edit, f"a{number}")))
        check(gate, gate.post(body), body)
        edited = EDITS[edit](messages)
        body = orjson.dumps(chat(*edited, **named(edit, f"b{number}")))
        turn = check(gate, gate.post(body), body)
        (step,) = gate.steps(turn, "llm_call")
        assert step["history"] == (
            "appended" if edited[: len(messages)] == messages else "rewritten"
        )
        messages += [said("ok"), user(f"next {number}")]


def test_results_of_tools_and_the_question_before_them(gate: Gate) -> None:
    messages = [*HISTORY, user("look it up")]
    gate.model.will(asks_for("c1"))
    asked = gate.turn(gate.post(chat(*messages, **named("tools"))))
    messages += [said(None, call("c1")), result("c1")]
    gate.model.will(asks_for("c2"))
    body = orjson.dumps(chat(*messages, **named("tools")))
    answered = gate.post(body)
    assert gate.turn(answered)["id"] == asked["id"]
    messages += [said(None, call("c2")), result("c2", "more")]
    body = orjson.dumps(chat(*messages, **named("tools", "a turn of its own")))
    turn = check(gate, gate.post(body), body)
    assert turn["user_input"] == "look it up"
    tools = [(s["tool_call_id"], s["status"]) for s in gate.steps(asked, "tool_call")]
    assert tools == [("c1", "success"), ("c2", "success")]


def test_a_secret_behind_what_is_known(gate: Gate) -> None:
    messages = [*HISTORY, user("before the secret")]
    gate.post(orjson.dumps(chat(*messages, **named("secret"))))
    messages += [said("ok"), user(f"my key is {PROVIDER_KEY}")]
    for number in range(2):
        body = orjson.dumps(chat(*messages, **named("secret")))
        turn = gate.turn(gate.post(body))
        assert orjson.loads(gate.model.asked[-1].body)["messages"] == messages
        kept = gate.payload(turn["input_payload"])
        assert PROVIDER_KEY.encode() not in kept
        assert kept.count(b"my key is [masked]") == 1
        assert len(orjson.loads(kept)["messages"]) == len(messages)
        messages += [said("ok"), user(f"and on {number}")]


def listed(messages: list[Any]) -> bytes:
    return orjson.dumps(messages)[1:-1]


KNOWN = [*HISTORY, user("what is known")]
BEHIND: dict[str, bytes] = {
    "cut": b"",
    "cut in an element": b',{"role":"user","content":"x',
    "no comma": b'{"role":"user","content":"x"}]}',
    "an empty place": b',,{"role":"user","content":"x"}]}',
    "not an object": b',"x"]}',
    "not a number": b',{"role":"user","content":NaN}]}',
    "bad UTF-8": b',{"role":"user","content":"\xff"}]}',
    "too deep": b',{"role":"user","content":' + b"[" * 250 + b"]" * 250 + b"}]}",
    "more behind": b"]} and more",
    "a wrong stream": b'],"stream":"yes"}',
    "a wrong session": b'],"metadata":{"session_id":7}}',
}


@pytest.mark.parametrize("behind", BEHIND)
def test_what_cannot_be_taken_is_refused_in_the_same_words(gate: Gate, behind: str) -> None:
    session = {"x_session_id": f"refused {behind}"}
    opening = b'{"model":"m","messages":[' + listed([*KNOWN, said(behind)])
    first = gate.post(opening + BEHIND[behind], **session)
    assert first.status == 400
    assert gate.post(opening + b"]}", **session).status == 200
    again = gate.post(opening + BEHIND[behind], **session)
    assert (again.status, again.json) == (400, first.json)


LENIENT: dict[str, bytes] = {
    "half a character": b',{"role":"user","content":"\\ud800"}]}',
    "beyond a double": b',{"role":"user","content":"x","n":1e999}]}',
    "a second list": b',{"role":"user","content":"x"}],"messages":[{"role":"user","content":"y"}]}',
    "a list elsewhere": b',{"role":"user","content":"x"}],"x":{"messages":[{"role":"user"}]}}',
    "a gap": b' ,\n {"role":"user","content":"x"} ]}',
    "the same name twice": b',{"role":"user","role":"user","content":"a","content":"x"}]}',
}


@pytest.mark.parametrize("behind", LENIENT)
def test_what_is_odd_is_read_as_ever(gate: Gate, behind: str) -> None:
    session = {"x_session_id": f"odd {behind}"}
    opening = b'{"model":"m","messages":[' + listed([*KNOWN, said(behind)])
    assert gate.post(opening + b"]}", **session).status == 200
    turns = [gate.turn(gate.post(opening + LENIENT[behind], **session)) for _ in range(2)]
    for turn in turns:
        assert gate.payload(turn["input_payload"]) == gate.model.asked[-1].body
        assert gate.model.asked[-1].body == opening + LENIENT[behind]
        wanted = {"a second list": "y", "half a character": "\ufffd"}.get(behind, "x")
        assert turn["user_input"] == wanted


def test_a_list_that_only_seems_to_be_the_one(gate: Gate) -> None:
    known = chat(*KNOWN, said("ok"), user("seeming"))
    assert gate.post(orjson.dumps(known)).status == 200
    body = orjson.dumps({"extra": known, "messages": [user("the real one")], "model": "m"})
    turn = check(gate, gate.post(body), body)
    assert turn["user_input"] == "the real one"
    assert gate.payload(turn["input_payload"]) == body
