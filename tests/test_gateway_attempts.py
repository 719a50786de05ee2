"""What fails before the first content: retry, fallback, time limits, and what is left of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model, provider
from scripted_model import (
    DONE,
    HANG,
    RESET,
    Answer,
    Asked,
    Model,
    Row,
    chat,
    completion,
    delta,
    event,
    finish,
    named,
    raw,
    says,
    stream,
    streams,
    whole,
)
from scripted_upstream import Peer
from servers import DEADLINE
from xgw.config import Gateway, Retry, Route
from xgw.config.schema import Timeouts

BEGUN = ["turn.started", "run.started", "message.added user", "step.started llm_call"]
ENDED = [
    "step.completed success",
    "message.added assistant",
    "run.completed success",
    "turn.completed success finished",
]
FAST: Row = {"base_delay_ms": 1, "max_retry_after_seconds": 1}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    model = Model()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    routes = (
        Route(model="m", targets=("p1/m",)),
        Route(model="two", targets=("p1/m-a", "p2/m-b"), retry=Retry(max_attempts=2, **FAST)),
        Route(model="thrice", targets=("p1/m",), retry=Retry(max_attempts=3, **FAST)),
        Route(model="patient", targets=("p1/m",), retry=Retry(max_attempts=2, timeouts=True)),
        Route(model="gone", targets=("gone/m",)),
        Route(model="gone-two", targets=("gone/m", "p2/m-b")),
        Route(model="on-429", targets=("p1/m", "p2/m"), fallback_on=("429",)),
    )
    providers = (
        provider(model),
        provider(model, "p2"),
        provider(model, "gone", base_url=gone),
    )
    timeouts = Timeouts(connect=DEADLINE, first_byte=1, idle=DEADLINE)
    tables = {"routes": routes, "providers": providers, "gateway": Gateway(timeouts=timeouts)}
    with gate_and_model(tmp_path_factory.mktemp("attempts"), model, **tables) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def failing(status: str, *, headers: str = "", **error: object) -> Answer:
    return whole({"error": {"message": "it failed"} | error}, status=status, headers=headers)


def tries(gate: Gate, turn: Row) -> list[tuple[object, ...]]:
    steps = gate.steps(turn)
    return [(s["attempt"], s["attempt_reason"], s["provider_name"], s["status"]) for s in steps]


# -- retry and fallback ----------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_every_try_is_a_step(gate: Gate, streamed: bool) -> None:
    gate.model.will(failing("500 A"), failing("503 B"), streams("ok") if streamed else says())
    reply = gate.post(chat("hi", model="two", stream=streamed, **named(f"tries-{streamed}")))
    assert reply.status == 200
    turn = gate.turn(reply)
    assert gate.story(turn) == [
        "session.created",
        *BEGUN,
        "llm.error upstream_error retry",
        *["step.completed error", "step.started llm_call"],
        "llm.error upstream_error fallback",
        *["step.completed error", "step.started llm_call"],
        *ENDED,
    ]
    assert tries(gate, turn) == [
        (1, "initial", "p1", "error"),
        (2, "retry", "p1", "error"),
        (3, "fallback", "p2", "success"),
    ]
    steps = gate.steps(turn)
    assert [s["model"] for s in steps] == ["m-a", "m-a", "m-served"]
    assert {s["model_requested"] for s in steps} == {"two"}
    assert [s["http_status"] for s in steps] == [500, 503, 200]
    assert [s["waited_ms"] is None for s in steps] == [True, False, False]
    assert [a.json["model"] for a in gate.model.asked] == ["m-a", "m-a", "m-b"]
    assert (turn["llm_calls"], turn["attempts"]) == (1, 3)
    assert (turn["final_provider_name"], turn["final_model"]) == ("p2", "m-served")
    assert turn["total_tokens"] == 10
    logs = gate.requests(turn)
    assert [r["status_code"] for r in logs] == [500, 503, 200]
    assert [r["step_id"] for r in logs] == [s["id"] for s in steps]
    assert orjson.loads(logs[0]["error_body"])["error"]["message"] == "it failed"
    assert gate.session(f"tries-{streamed}")["request_count"] == 3


def test_what_llm_error_tells(gate: Gate) -> None:
    gate.model.will(failing("500 A"), failing("503 B"), says())
    turn = gate.turn(gate.post(chat(model="two")))
    errors = [e["payload"] for e in gate.events(turn) if e["type"] == "llm.error"]
    told = [(e["attempt"], e["will_retry"], e["next"], e["target"]) for e in errors]
    assert told == [(1, True, "retry", "p1/m-a"), (2, True, "fallback", "p2/m-b")]
    assert (errors[0]["http_status"], errors[0]["message"]) == (500, "it failed")


@pytest.mark.parametrize("streamed", [False, True])
def test_when_all_tries_failed_the_last_answer_is_the_clients(gate: Gate, streamed: bool) -> None:
    last = failing("429 Slow", headers="Retry-After: 77\r\nX-Hint: h\r\n", code="busy", extra=[1])
    gate.model.will(*[failing("500 A")] * 2, last)
    reply = gate.post(chat(model="two", stream=streamed))
    assert reply.status == 429
    assert reply.error == {
        "message": "it failed",
        "type": "upstream_rate_limit",
        "param": None,
        "code": "busy",
        "extra": [1],
    }
    assert (reply.headers["retry-after"], reply.headers["x-hint"]) == ("77", "h")
    assert reply.headers["content-type"] == "application/json"
    turn = gate.turn(reply)
    assert (turn["status"], turn["ended_by"]) == ("error", "provider")
    assert (turn["error_type"], turn["error_message"]) == ("upstream_rate_limit", "it failed")
    assert (turn["attempts"], turn["final_output"], turn["total_tokens"]) == (3, None, None)
    assert gate.story(turn)[-4:] == [
        "llm.error upstream_rate_limit give_up",
        "step.completed error",
        "run.completed error",
        "turn.completed error provider",
    ]
    assert [m["role"] for m in gate.messages(turn)] == ["user"]


@pytest.mark.parametrize(
    ("upstream", "status", "told"),
    [
        ("400 Bad", 400, "p1 answered 400 without a body"),
        ("302 Found", 502, "p2 answered 302, a redirect, which is not followed"),
    ],
)
def test_a_refusal_without_a_body_is_told_as_one(
    gate: Gate, upstream: str, status: int, told: str
) -> None:
    gate.model.always(whole(b"", status=upstream))
    reply = gate.post(chat(model="two"))
    assert (reply.status, reply.error["message"]) == (status, told)
    assert gate.turn(reply)["error_message"] == told


@pytest.mark.parametrize("status", ["400 Bad", "401 No", "404 Gone", "422 Odd"])
def test_what_the_client_did_wrong_is_not_tried_again(gate: Gate, status: str) -> None:
    gate.model.will(failing(status, type="mine", param="p"))
    reply = gate.post(chat(model="two"))
    assert (reply.status, reply.error["type"], reply.error["param"]) == (
        int(status[:3]),
        "mine",
        "p",
    )
    assert tries(gate, gate.turn(reply)) == [(1, "initial", "p1", "error")]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_what_may_pass_is_tried_again(gate: Gate, status: int) -> None:
    gate.model.will(failing(f"{status} No"), failing(f"{status} No"), says())
    reply = gate.post(chat(model="thrice"))
    assert reply.status == 200
    assert [s["attempt_reason"] for s in gate.steps(gate.turn(reply))] == [
        "initial",
        "retry",
        "retry",
    ]


def test_by_default_there_is_one_try(gate: Gate) -> None:
    gate.model.will(failing("503 Down"))
    assert gate.post(chat()).status == 503


def test_fallback_only_for_the_causes_that_the_route_names(gate: Gate) -> None:
    gate.model.will(failing("500 Down"), failing("429 Slow"), says())
    assert gate.post(chat(model="on-429")).status == 500
    assert gate.post(chat(model="on-429")).status == 200


@pytest.mark.parametrize("header", ["Retry-After: 0.01", "retry-after-ms: 10"])
def test_retry_after_is_obeyed(gate: Gate, header: str) -> None:
    gate.model.will(failing("429 Slow", headers=f"{header}\r\n"), says())
    turn = gate.turn(gate.post(chat(model="thrice")))
    assert gate.steps(turn)[1]["waited_ms"] == 10


@pytest.mark.parametrize(
    "value", ["2", "3600", "9" * 10, "9" * 400, "Fri, 31 Dec 2199 23:59:59 GMT"]
)
def test_retry_after_above_the_cap_ends_retrying(gate: Gate, value: str) -> None:
    gate.model.will(failing("429 Slow", headers=f"Retry-After: {value}\r\n"))
    reply = gate.post(chat(model="thrice"))
    assert (reply.status, reply.headers["retry-after"]) == (429, value)


@pytest.mark.parametrize(
    "value",
    [
        *("soon", "-1", "", "nan", "inf", "1_0", "1e3", "0x10", "9, 9"),
        "Fri, 31 Dec 1999 23:59:59 GMT",
        "Fri, 31 Dec 99999999999999999999 23:59:59 GMT",
    ],
)
def test_retry_after_that_makes_no_sense_is_no_reason_to_wait(gate: Gate, value: str) -> None:
    gate.model.will(failing("503 Down", headers=f"Retry-After: {value}\r\n"), says())
    turn = gate.turn(gate.post(chat(model="thrice")))
    assert gate.steps(turn)[1]["waited_ms"] <= 2


# -- faults before content -------------------------------------------------------------------------

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
BEFORE: dict[str, tuple[Answer, int, str]] = {
    "hung up": (raw(b"HTTP/1."), 502, "upstream_truncated"),
    "reset": (raw(b"HTTP/1.1 200 OK\r\n", then=RESET), 502, "upstream_connection"),
    "no HTTP": (raw(b"SSH-2.0-no\r\n\r\n"), 502, "upstream_protocol_error"),
    "empty": (raw(EVENTS), 502, "upstream_truncated"),
    "role alone": (raw(EVENTS + event(delta(role="assistant"))), 502, "upstream_truncated"),
    "done alone": (raw(EVENTS + DONE), 502, "upstream_truncated"),
    "garbage": (stream(b"data: oops\n\n"), 502, "upstream_protocol_error"),
    "html": (whole(b"<html>", kind="html"), 502, "upstream_protocol_error"),
    "error in a 200": (
        whole({"error": {"message": "m", "code": 503}}),
        503,
        "upstream_error",
    ),
    "redirect": (
        whole(b"", status="302 Found", headers="Location: http://127.0.0.1/\r\n"),
        502,
        "upstream_error",
    ),
    "nothing": (whole(b""), 502, "upstream_protocol_error"),
    "silence": (raw(b"", then=HANG), 504, "upstream_timeout"),
    "silence after the head": (raw(EVENTS, then=HANG), 504, "upstream_timeout"),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("fault", BEFORE)
def test_a_fault_before_content_is_an_honest_status(gate: Gate, fault: str, streamed: bool) -> None:
    answer, status, error_type = BEFORE[fault]
    gate.model.will(answer)
    reply = gate.post(chat(stream=streamed))
    assert reply.status == status
    assert set(reply.error) >= {"message", "type", "param", "code"}
    turn = gate.turn(reply)
    assert (turn["status"], turn["ended_by"]) == ("error", "provider")
    assert turn["error_type"] == error_type
    assert turn["error_message"]
    (step,) = gate.steps(turn)
    assert (step["status"], step["error_type"]) == ("error", error_type)
    (request,) = gate.requests(turn)
    assert request["error_type"] == error_type
    assert request["ended_at"] is not None
    assert (step["total_tokens"], step["cost_usd"], turn["usage_source"]) == (None, None, None)


@pytest.mark.parametrize("fault", ["hung up", "empty", "garbage", "error in a 200", "role alone"])
def test_a_fault_before_content_falls_back(gate: Gate, fault: str) -> None:
    answer, _, error_type = BEFORE[fault]
    gate.model.will(*[answer] * (1 if fault == "garbage" else 2), streams("saved"))
    reply = gate.post(chat(model="two", stream=True))
    assert reply.status == 200
    turn = gate.turn(reply)
    assert (turn["final_output"], turn["final_provider_name"]) == ("saved", "p2")
    assert gate.steps(turn)[0]["error_type"] == error_type


def test_silence_is_not_tried_again_unless_wanted(gate: Gate) -> None:
    gate.model.will(raw(b"", then=HANG))
    assert gate.post(chat(model="thrice")).status == 504
    gate.model.will(raw(b"", then=HANG), says())
    assert gate.post(chat(model="patient")).status == 200


def test_nobody_listens(gate: Gate) -> None:
    reply = gate.post(chat(model="gone"))
    assert (reply.status, reply.error["type"]) == (502, "upstream_connection")
    turn = gate.turn(reply)
    (step,) = gate.steps(turn)
    assert (step["http_status"], step["error_type"]) == (None, "upstream_connection")
    (request,) = gate.requests(turn)
    assert (request["status_code"], request["bytes_received"]) == (None, 0)
    gate.model.will(says())
    turn = gate.turn(gate.post(chat(model="gone-two")))
    assert tries(gate, turn) == [
        (1, "initial", "gone", "error"),
        (2, "fallback", "p2", "success"),
    ]


@pytest.mark.parametrize("answer", [{"choices": []}, {"error": {"message": "all gone"}}])
def test_a_json_answer_to_a_stream_may_fail_too(gate: Gate, answer: Row) -> None:
    whole_answer = completion() | answer
    gate.model.will(whole(whole_answer))
    reply = gate.post(chat(stream=True))
    failed = "error" in answer
    assert reply.status == (502 if failed else 200)
    assert gate.turn(reply)["status"] == ("error" if failed else "success")


# -- usage that a provider does not want to tell ---------------------------------------------------


def test_a_provider_that_refuses_stream_options_is_asked_without(gate: Gate) -> None:
    """Once for each provider; the refused call is repeated whatever the retry limits say."""
    refusal = failing("400 Bad", param="stream_options")
    done = threading.Event()

    def answer(peer: Peer, asked: Asked) -> None:
        assert "stream_options" not in asked.json
        stream(delta("ok"), finish(), DONE)(peer, asked)
        done.set()

    gate.model.will(refusal, answer, answer)
    reply = gate.post(chat(stream=True, model="m"))
    assert reply.status == 200
    turn = gate.turn(reply)
    assert [(s["attempt_reason"], s["status"]) for s in gate.steps(turn)] == [
        ("initial", "error"),
        ("retry", "success"),
    ]
    assert turn["usage_source"] == "estimated"
    assert gate.post(chat(stream=True)).status == 200
    gate.model.will(whole({"error": {"message": "no stream_options"}}, status="400 Bad"))
    own = gate.post(chat(stream=True, stream_options={"include_usage": True}))
    assert own.status == 400


REFUSED: list[tuple[str, Row, bool]] = [
    ("400 Bad", {"error": {"message": "include_usage is not known"}}, True),
    ("422 No", {"detail": [{"loc": ["body", "stream_options"], "msg": "extra"}]}, True),
    (
        "422 No",
        {"detail": [{"loc": ["body", "n"], "input": {"stream_options": {"include_usage": True}}}]},
        False,
    ),
    ("500 No", {"error": {"message": "stream_options"}}, False),
]


@pytest.mark.parametrize(("status", "refusal", "repeated"), REFUSED)
def test_what_xgw_asked_for_is_refused_in_other_words(
    tmp_path: Path, status: str, refusal: Row, repeated: bool
) -> None:
    """A request that is told back names the option too, and is no reason to ask again."""
    with gate_and_model(tmp_path) as gate:
        gate.model.will(whole(refusal, status=status), stream(delta("ok"), finish(), DONE))
        reply = gate.post(chat(stream=True))
        assert (reply.status == 200) is repeated
        assert len(gate.steps(gate.turn(reply))) == (2 if repeated else 1)
