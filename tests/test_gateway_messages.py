"""Which elements of a resent history are new, and how they become messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model, gateway
from scripted_model import (
    DONE,
    Model,
    Row,
    asks_for,
    call,
    chat,
    completion,
    delta,
    finish,
    named,
    result,
    said,
    says,
    stream,
    user,
    whole,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("messages")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        served.model.always(says("ok"))
        yield served


def system(text: str, role: str = "system") -> Row:
    return {"role": role, "content": text}


def told(gate: Gate, session: str) -> list[tuple[str, str]]:
    """Role and text of a session's messages, in order."""
    found = [m for turn in gate.turns(session) for m in gate.messages(turn)]
    assert [m["message_index"] for m in found] == list(range(len(found)))
    return [(m["role"], m["content"]) for m in found]


# -- what is new -----------------------------------------------------------------------------------


def test_the_first_request_of_a_session_adds_all(gate: Gate) -> None:
    history = [system("be kind"), user("a"), said("b"), user("c"), said("d")]
    turn = gate.turn(gate.post(chat(*history, user("e"), user("f"), **named("taken-over"))))
    messages = gate.messages(turn)
    assert told(gate, "taken-over") == [
        *[("system", "be kind"), ("user", "a"), ("assistant", "b"), ("user", "c")],
        *[("assistant", "d"), ("user", "e"), ("user", "f"), ("assistant", "ok")],
    ]
    marked = [(m["metadata"] or {}).get("history", False) for m in messages]
    assert marked == [True] * 5 + [False] * 3
    assert turn["user_input"] == "f"


def test_later_only_what_follows_the_last_answer(gate: Gate) -> None:
    history = [system("be kind"), user("a")]
    gate.post(chat(*history, **named("grows")))
    gate.post(chat(*history, said("ok"), user("b"), user("c"), **named("grows")))
    assert told(gate, "grows") == [
        *[("system", "be kind"), ("user", "a"), ("assistant", "ok")],
        *[("user", "b"), ("user", "c"), ("assistant", "ok")],
    ]
    assert all(m["metadata"] is None for t in gate.turns("grows") for m in gate.messages(t))


def test_an_input_sent_again_in_a_shortened_history_is_one_message(gate: Gate) -> None:
    full = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    gate.model.will(whole(full, status="400 Bad Request"))
    history = [system("be kind"), user("a"), said("b"), user("yes")]
    shortened = [history[0], history[-1]]
    # The same words behind an answer are said once more.
    for messages in (history, shortened, [*shortened, said("ok"), user("go on"), user("yes")]):
        gate.post(chat(*messages, **named("shortened", "t")))
    assert told(gate, "shortened") == [
        *[("system", "be kind"), ("user", "a"), ("assistant", "b"), ("user", "yes")],
        *[("assistant", "ok"), ("user", "go on"), ("user", "yes"), ("assistant", "ok")],
    ]


def test_the_same_words_again_in_a_history_that_slides(gate: Gate) -> None:
    history = [user("a"), said("ok"), user("yes")]
    gate.post(chat(*history[:1], **named("slides", "t")))
    gate.post(chat(*history, **named("slides", "t")))
    gate.post(chat(history[2], said("ok"), user("b"), user("yes"), **named("slides", "t")))
    assert told(gate, "slides") == [
        *[("user", "a"), ("assistant", "ok"), ("user", "yes"), ("assistant", "ok")],
        *[("user", "b"), ("user", "yes"), ("assistant", "ok")],
    ]


def test_what_is_asked_before_the_beginning_of_an_answer(gate: Gate) -> None:
    history: list[Row] = [system("be kind")]
    for text in ("a", "b"):
        history.append(user(text))
        gate.post(chat(*history, said("{"), **named("begun")))
        history.append(said("{ok"))
    assert told(gate, "begun") == [
        *[("system", "be kind"), ("user", "a"), ("assistant", "{"), ("assistant", "ok")],
        *[("user", "b"), ("assistant", "ok")],
    ]
    first, _ = gate.turns("begun")
    assert [(m["metadata"] or {}).get("history") for m in gate.messages(first)] == [None] * 4
    alone = gate.turn(gate.post(chat(*history[:-1], said("{"))))
    assert [(m["role"], m["content"]) for m in gate.messages(alone)] == [
        *[("system", "be kind"), ("user", "b"), ("assistant", "ok")]
    ]


def test_an_answer_that_is_to_go_on_is_asked_for_with_nothing_new(gate: Gate) -> None:
    gate.post(chat("a", **named("going on")))
    gate.post(chat("a", said("ok"), **named("going on")))
    assert told(gate, "going on") == [("user", "a"), ("assistant", "ok"), ("assistant", "ok")]


def test_a_session_without_resent_history(gate: Gate) -> None:
    for text in ("a", "b"):
        gate.post(chat(text, **named("bare")))
    assert told(gate, "bare") == [
        *[("user", "a"), ("assistant", "ok")],
        *[("user", "b"), ("assistant", "ok")],
    ]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_prompt_that_changes_is_recorded(gate: Gate, role: str) -> None:
    session = f"prompt-{role}"
    history = [user("a")]
    for prompt in ("one", "one", "two", None, "two"):
        start = [system(prompt, role)] if prompt else []
        gate.post(chat(*start, *history, **named(session)))
        history += [said("ok"), user("next")]
    prompts = [text for kind, text in told(gate, session) if kind == "system"]
    assert prompts == ["one", "two"]
    steps = [gate.steps(t)[0]["history"] for t in gate.turns(session)]
    assert steps == [None, "appended", "rewritten", "rewritten", "rewritten"]


def test_how_a_history_compares_with_the_one_before(gate: Gate) -> None:
    requests = [
        [user("a")],
        [user("a"), said("ok"), user("b")],
        [user("a"), said("edited"), user("c")],
        [user("a"), said("edited"), user("c")],
        [user("c")],
    ]
    for messages in requests:
        gate.post(chat(*messages, **named("compared")))
    steps = [gate.steps(turn)[0] for turn in gate.turns("compared")]
    found = [step["history"] for step in steps]
    assert found == [None, "appended", "rewritten", "appended", "rewritten"]


def test_a_request_without_a_session_compares_with_nothing(gate: Gate) -> None:
    turn = gate.turn(gate.post(chat(system("s"), user("a"), said("b"), user("c"))))
    assert gate.steps(turn)[0]["history"] is None
    assert [m["content"] for m in gate.messages(turn)] == ["s", "c", "ok"]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([user("a"), said("b")], "a"),
        ([user([{"type": "text", "text": "x"}, {"type": "text", "text": "y"}])], "x\ny"),
        ([user([{"type": "image_url", "image_url": {"url": "http://127.0.0.1/i"}}])], None),
        ([system("only")], None),
        ([], None),
    ],
)
def test_the_input_is_the_text_of_the_last_user_element(
    gate: Gate, messages: list[Row], text: str | None
) -> None:
    assert gate.turn(gate.post({"model": "m", "messages": messages}))["user_input"] == text


# -- what a message holds --------------------------------------------------------------------------


def test_large_parts_lie_in_the_payloads(gate: Gate) -> None:
    image = "data:image/png;base64," + "iVBO" * 30_000
    parts = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": image, "detail": "low"}},
    ]
    turn = gate.turn(gate.post(chat(user(parts))))
    (message, _) = gate.messages(turn)
    assert message["content"] == "what is this?"
    assert message["parts"][0] == parts[0]
    reference = message["parts"][1]["image_url"]
    assert reference["detail"] == "low"
    assert reference["url"]["size"] == len(image)
    assert gate.payload(reference["url"]["payload"]).decode() == image
    assert gate.payload(gate.steps(turn)[0]["input_payload"]) == gate.model.asked[-1].body


def test_reasoning_and_refusals_are_part_of_a_message(gate: Gate) -> None:
    gate.model.will(
        stream(delta(None, reasoning_content="hm"), delta("a"), finish(), DONE),
        stream(delta(None, refusal="I "), delta(None, refusal="won't"), finish(), DONE),
    )
    turns = [gate.turn(gate.post(chat(stream=True))) for _ in range(2)]
    thought, refused = (gate.messages(turn)[-1] for turn in turns)
    assert (thought["content"], thought["parts"]) == ("a", {"reasoning_content": "hm"})
    assert (refused["content"], refused["parts"]) == (None, {"refusal": "I won't"})


def test_calls_and_results_keep_what_links_them(gate: Gate) -> None:
    gate.model.will(asks_for("c1"))
    gate.post(chat(**named("linked")))
    history = [user("hi"), said(None, call("c1")), result("c1") | {"name": "look"}]
    turn = gate.turn(gate.post(chat(*history, **named("linked"))))
    _, answer, answered, _ = gate.messages(turn)
    assert answer["tool_calls"] == [call("c1")]
    assert (answered["tool_call_id"], answered["name"]) == ("c1", "look")
    steps = {s["id"]: s["step_type"] for s in gate.steps(turn)}
    assert [steps[m["step_id"]] for m in (answer, answered)] == ["llm_call", "tool_call"]


def test_messages_are_counted(gate: Gate) -> None:
    turn = gate.turn(gate.post(chat("count these tokens please")))
    sent, received = gate.messages(turn)
    assert (sent["token_count"] > 0, sent["token_source"]) == (True, "estimated")
    assert (received["token_count"], received["token_source"]) == (3, "provider")
    told = [e["payload"] for e in gate.events(turn) if e["type"] == "message.added"]
    assert [(one["message_id"], one["token_count"], one["token_source"]) for one in told] == [
        (message["id"], message["token_count"], message["token_source"])
        for message in (sent, received)
    ]


@pytest.mark.parametrize("choices", [[], [{"index": 0, "message": {"content": ""}}]])
def test_an_answer_that_says_nothing_makes_no_message(gate: Gate, choices: list[Row]) -> None:
    gate.model.will(whole(completion() | {"choices": choices}))
    turn = gate.turn(gate.post(chat("hi")))
    assert (turn["status"], turn["final_output"]) == ("success", None)
    assert [m["role"] for m in gate.messages(turn)] == ["user"]


def test_odd_elements_are_recorded_as_they_can_be(gate: Gate) -> None:
    odd: list[Row] = [
        {"role": "user", "content": None},
        {"role": 7, "content": {"a": 1}, "name": ["x"]},
        {"role": ["system"], "content": "x", "tool_calls": 5},
        {"content": "no role"},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "tool", "tool_call_id": 5, "content": [{"type": "text", "text": "t"}]},
        {"role": "user", "content": "a\u0000b \ud800".encode("utf-8", "replace").decode()},
    ]
    turn = gate.turn(gate.post({"model": "m", "messages": odd} | named("odd")))
    assert turn["status"] == "success"
    assert len(gate.messages(turn)) == len(odd) + 1


def test_lone_surrogates_reach_the_model_and_not_the_store(gate: Gate) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"a\\ud800b"}]}'
    turn = gate.turn(gate.post(body))
    assert gate.model.asked[-1].body == body
    assert gate.messages(turn)[0]["content"] == turn["user_input"] == "a\ufffdb"
    assert gate.payload(turn["input_payload"]) == body


# -- what was sent, exactly ------------------------------------------------------------------------


def test_what_was_sent_can_be_rebuilt_to_the_byte(gate: Gate) -> None:
    tools = orjson.dumps([{"type": "function", "function": {"name": f"f{n}"}} for n in range(20)])
    body = (
        b'{ "messages" : [ {"role":"user","content":"\\u0041 \xc3\xa9"} ,\n {"content":"x","role":'
        b'"user"}],"tools":' + tools + b',"temperature":1.0e0,"model":"m","metadata":'
        b'{"session_id":"exact","mine":1}, "n":1}'
    )
    turn = gate.turn(gate.post(body))
    (step,) = gate.steps(turn)
    (request,) = gate.requests(turn)
    assert gate.payload(step["input_payload"]) == gate.model.asked[-1].body
    assert request["request_payload"] == step["input_payload"]
    assert request["bytes_sent"] == len(gate.model.asked[-1].body)
    snapshot = orjson.loads(gate.payload(turn["config_snapshot"]))
    assert snapshot == {
        "temperature": 1.0,
        "model": "m",
        "n": 1,
        "tools": [f"f{n}" for n in range(20)],
    }
    assert turn["metadata"]["client"] == {"mine": 1}


def test_a_new_process_knows_what_it_has_seen(tmp_path: Path) -> None:
    model = Model()
    model.will(says("ok"), asks_for("c1"), says("found"), says("again"))
    prompt = "be kind " * 20
    history = [{"content": prompt, "role": "system"}, user("a")]
    with gateway(tmp_path, model) as gate:
        gate.post(chat(*history, **named("kept")))
        history += [said("ok"), user("b")]
        gate.post(chat(*history, **named("kept")))
    with gateway(tmp_path, model) as gate:
        history += [said(None, call("c1")), result("c1")]
        gate.post(chat(*history, **named("kept")))
        gate.post(chat(*history, **named("kept")))
        assert told(gate, "kept") == [
            *[("system", prompt), ("user", "a"), ("assistant", "ok"), ("user", "b")],
            *[("assistant", None), ("tool", "found"), ("assistant", "found")],
            ("assistant", "again"),
        ]
        steps = [s for t in gate.turns("kept") for s in gate.steps(t, "llm_call")]
        assert [s["history"] for s in steps] == [None, *["appended"] * 3]
        (tool,) = gate.steps(gate.turns("kept")[1], "tool_call")
        assert (tool["status"], tool["latency_ms"] >= 0) == ("success", True)
    model.check()
    model.close()
