"""Upstreams that lie about lengths, encodings and types, and slow ones: what the client is told.

How each kind of body is read is in test_transport_bodies.py; here is what becomes of it.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator

import orjson
import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model
from scripted_model import (
    DONE,
    HANG,
    RESET,
    Answer,
    Asked,
    chat,
    completion,
    delta,
    event,
    finish,
    raw,
    says,
    stream,
    usage,
    whole,
)
from scripted_upstream import Peer

OK = b"HTTP/1.1 200 OK\r\n"
JSON = b"Content-Type: application/json\r\n"
EVENTS = b"Content-Type: text/event-stream\r\n"
GZIP = b"Content-Encoding: gzip\r\n"
ANSWER = orjson.dumps(completion("whole"))
PART = event(delta("par")) + event(delta("tial"))
ALL = PART + event(finish()) + event(usage(7, 3)) + DONE


def sized(length: int, body: bytes, headers: bytes = JSON) -> bytes:
    """An answer that says it has this length."""
    return OK + headers + b"Content-Length: %d\r\n\r\n" % length + body


def zipped(body: bytes, cut: int, headers: bytes) -> bytes:
    """A compressed answer, without its last bytes."""
    return OK + headers + GZIP + b"\r\n" + gzip.compress(body)[:-cut]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("upstreams")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


# -- before anything could be said -----------------------------------------------------------------

BROKEN: dict[str, tuple[Answer, str]] = {
    "shorter than its length": (raw(sized(len(ANSWER) + 9, ANSWER)), "upstream_truncated"),
    "reset before its length": (
        raw(sized(len(ANSWER) + 9, ANSWER), then=RESET),
        "upstream_connection",
    ),
    "longer than its length": (raw(sized(len(ANSWER) - 9, ANSWER)), "upstream_protocol_error"),
    "a length of nothing": (raw(sized(0, ANSWER)), "upstream_protocol_error"),
    "gzip that breaks off": (raw(zipped(ANSWER, 9, JSON)), "upstream_truncated"),
    "no content": (
        raw(b"HTTP/1.1 204 No Content\r\n" + JSON + b"\r\n" + ANSWER),
        "upstream_protocol_error",
    ),
    "no new content": (raw(b"HTTP/1.1 205 Reset\r\n" + JSON + b"\r\n"), "upstream_protocol_error"),
    "not modified": (raw(b"HTTP/1.1 304 Not Modified\r\n\r\n"), "upstream_error"),
    "only early hints": (
        raw(b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"),
        "upstream_truncated",
    ),
    "another protocol": (
        raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n"),
        "upstream_protocol_error",
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_answer_is_an_honest_status(gate: Gate, fault: str, streamed: bool) -> None:
    answer, error_type = BROKEN[fault]
    gate.model.will(answer)
    reply = gate.post(chat(stream=streamed))
    assert (reply.status, reply.error["type"]) == (502, error_type)
    assert set(reply.error) == {"message", "type", "param", "code"}
    turn = gate.turn(reply)
    assert (turn["status"], turn["ended_by"], turn["error_type"]) == (
        "error",
        "provider",
        error_type,
    )
    gate.model.will(says("next"))
    assert gate.post(chat()).text == "next", "what was too much is not taken for the next answer"


# -- in the middle of a stream ---------------------------------------------------------------------


def in_two(first: bytes, rest: bytes) -> tuple[threading.Event, Answer]:
    """An answer whose second part comes when the client has seen the first."""
    seen = threading.Event()

    def answer(peer: Peer, _: Asked) -> None:
        peer.send(first)
        assert seen.wait(20)
        peer.send(rest)
        peer.sock.close()

    return seen, answer


@pytest.mark.parametrize("kind", ["length", "gzip", "gzip garbage"])
def test_a_stream_that_breaks_in_the_middle(gate: Gate, kind: str) -> None:
    packed = gzip.compress(PART)
    first, rest = {
        "length": (sized(9999, PART, EVENTS), b""),
        "gzip": (OK + EVENTS + GZIP + b"\r\n" + packed[:-8], b""),
        "gzip garbage": (OK + EVENTS + GZIP + b"\r\n" + packed[:-8], b"garbage!"),
    }[kind]
    seen, answer = in_two(first, rest)
    gate.model.will(answer)
    reading = gate.open(chat(stream=True))
    reading.until(b"tial")
    seen.set()
    *parts, last = [orjson.loads(data) for data in reading.rest().events]
    assert "".join(part["choices"][0]["delta"]["content"] for part in parts) == "partial"
    expected = "upstream_protocol_error" if kind == "gzip garbage" else "upstream_truncated"
    assert last["error"]["type"] == expected
    turn = gate.turn(reading)
    assert (turn["status"], turn["error_type"]) == ("error", expected)
    assert turn["final_output"] == "partial"


# -- strange, and good all the same ----------------------------------------------------------------


def drip(peer: Peer, _: Asked) -> None:
    """The head after 2 s, then all of it byte by byte."""
    pace = threading.Event()
    pace.wait(2)
    for byte in sized(len(ALL), ALL, EVENTS):
        peer.send(bytes([byte]))
        pace.wait(0.0005)


GOOD: dict[str, Answer] = {
    "longer than its length": raw(sized(len(ALL), ALL + b"more", EVENTS)),
    "shorter than its length": raw(sized(len(ALL) + 99, ALL, EVENTS)),
    "gzip that breaks off after the end": raw(
        OK + EVENTS + GZIP + b"\r\n" + gzip.compress(ALL)[:-8]
    ),
    "gzip that is none": raw(OK + EVENTS + GZIP + b"\r\n" + ALL),
    "informational answers first": raw(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"
        + sized(len(ALL), ALL, EVENTS)
    ),
    "events called JSON": raw(OK + JSON + b"\r\n" + ALL),
    "events called text": raw(OK + b"Content-Type: text/plain\r\n\r\n" + ALL),
    "events called nothing": raw(OK + b"\r\n" + ALL),
    "JSON called events": raw(OK + EVENTS + b"\r\n" + orjson.dumps(completion("partial"))),
    "JSON called HTML": whole(completion("partial"), kind="html"),
    "another success": whole(completion("partial"), status="201 Created"),
    "never closed": stream(delta("partial"), finish(), usage(7, 3), DONE, HANG),
    "slow": drip,
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", GOOD)
def test_a_strange_answer_is_read_all_the_same(gate: Gate, kind: str, streamed: bool) -> None:
    gate.model.will(GOOD[kind])
    reply = gate.post(chat(stream=streamed))
    assert reply.status == 200
    turn = gate.turn(reply)
    assert (turn["status"], turn["final_output"]) == ("success", "partial")
    assert turn["total_tokens"] == 10
    if streamed:
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.body.endswith(DONE)
        assert b'"error"' not in reply.body
    else:
        assert reply.text == "partial"
