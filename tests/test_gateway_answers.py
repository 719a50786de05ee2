"""Whole answers, headers both ways, and what the record says of an exchange."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import orjson
import pytest

from gateway_fixtures import CHAT, PROVIDER_KEY, Gate, a_test_of, gate_and_model, provider
from scripted_model import (
    DONE,
    Answer,
    Asked,
    Model,
    chat,
    completion,
    counts,
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
from servers import DEADLINE, eventually
from xgw.config import Gateway, Price, Route
from xgw.exchange import exchange

PRICES = {
    "priced": Price(input=2.0, cached_input=1.0, output=10.0),
    "free": Price(input=0, output=0),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    model = Model()
    routes = (Route(model="m", targets=("p1/m",)), Route(model="alias/*", targets=("p1/*",)))
    tables = {"prices": PRICES, "routes": routes, "providers": (provider(model),)}
    gateway = Gateway(max_response_bytes=5_000)
    folder = tmp_path_factory.mktemp("answers")
    with gate_and_model(folder, model, gateway=gateway, **tables) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


# -- bodies ----------------------------------------------------------------------------------------

ODD = (
    b'{ "id":"c", "z": 1.00,"choices":[{"index":0,"message":{"role":"assistant","content":"\\u0041'
    b'\xc3\xa9","x":null},"finish_reason":"stop"}],\n "usage":{"prompt_tokens":1e1}, "a":[-0] }\n'
)


def test_a_json_answer_passes_byte_for_byte(gate: Gate) -> None:
    gate.model.will(whole(ODD))
    reply = gate.post(chat())
    assert reply.body == ODD
    assert reply.headers["content-type"] == "application/json"
    assert int(reply.headers["content-length"]) == len(ODD)
    turn = gate.turn(reply)
    assert turn["final_output"] == "Aé"
    (request,) = gate.requests(turn)
    assert gate.payload(request["response_body"]) == ODD


def test_what_is_no_json_is_repaired_and_nothing_else(gate: Gate) -> None:
    body = ODD.replace(b"1.00", b"NaN").replace(b"[-0]", b"[-Infinity, 0.10]")
    gate.model.will(whole(body))
    reply = gate.post(chat())
    assert reply.body == body.replace(b"NaN", b"null").replace(b"-Infinity", b"null")
    assert gate.turn(reply)["status"] == "success"


def test_a_byte_order_mark_is_no_part_of_an_answer(gate: Gate) -> None:
    gate.model.will(whole(b"\xef\xbb\xbf" + ODD), whole(b"\xef\xbb\xbf" + ODD))
    reply = gate.post(chat())
    assert reply.body == ODD
    turn = gate.turn(reply)
    assert (turn["status"], turn["final_output"]) == ("success", "Aé")
    assert gate.payload(gate.requests(turn)[0]["response_body"]) == b"\xef\xbb\xbf" + ODD
    assert gate.post(chat(stream=True)).body.endswith(DONE)


def test_a_page_that_an_error_quotes_stays_in_the_log(gate: Gate) -> None:
    page = "<html><head><title>502</title></head><body>Ray ID: 9f00aa</body></html>"
    told = {"error": {"message": f"Bad gateway: {page}", "metadata": {"raw": page}}}
    gate.model.will(whole(told, status="502 Bad Gateway"))
    reply = gate.post(chat())
    assert (reply.status, reply.error["message"]) == (502, "Bad gateway: (an HTML page)")
    assert b"9f00aa" not in reply.body
    turn = gate.turn(reply)
    assert turn["error_message"] == "Bad gateway: (an HTML page)"
    assert "9f00aa" in gate.requests(turn)[0]["error_body"]


def test_a_request_passes_byte_for_byte(gate: Gate) -> None:
    body = (
        b'{"z":1.0,"messages":[{"role":"user","content":"\\u00e9\xf0\x9f\x99\x82","n":1e400}],'
        b'"model":"m" ,"extra_body":{"a":[NULL]},"seed":12345678901234567890123}'
    ).replace(b"NULL", b"null")
    gate.model.will(says())
    gate.post(body)
    assert gate.model.asked[-1].body == body


def test_the_routes_model_name_is_all_that_changes(gate: Gate) -> None:
    gate.model.will(whole(completion(model="served-name")))
    body = b'{"messages": [ ], "model":"alias/x", "top_p" : 0.10}'
    turn = gate.turn(gate.post(body))
    asked = gate.model.asked[-1].body
    assert orjson.loads(asked) == {"messages": [], "model": "alias/x", "top_p": 0.1}
    assert b"0.10" in asked
    (step,) = gate.steps(turn)
    assert (step["model_requested"], step["model"]) == ("alias/x", "served-name")


def test_a_long_answer_is_cut_in_the_record_alone(gate: Gate) -> None:
    gate.model.will(streams("y" * 4_000, "z" * 4_000))
    reply = gate.post(chat(stream=True))
    assert b"z" * 4_000 in reply.body
    turn = gate.turn(reply)
    (request,) = gate.requests(turn)
    assert (request["truncated"], request["status_code"]) == (True, 200)
    assert len(gate.payload(request["response_body"])) == 5_000
    assert request["bytes_received"] > 8_000
    assert len(turn["final_output"]) == 8_000


def endless(begin: bytes, block: bytes, gone: threading.Event) -> Answer:
    """A body that goes on until xgw hangs up."""

    def answer(peer: Peer, _: Asked) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + begin)
        with contextlib.suppress(OSError):
            while True:
                peer.send(block)
        gone.set()

    return answer


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("begin", "block"),
    [(b'{"choices":[{"message":{"content":"', b"x"), (b"x", b"x"), (b" ", b" "), (b"[1", b",1")],
)
def test_an_answer_without_an_end_is_given_up(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, begin: bytes, block: bytes, streamed: bool
) -> None:
    monkeypatch.setattr(exchange, "WHOLE_CHAT_BYTES", 1 << 20)
    gone = threading.Event()
    gate.model.will(endless(begin, block * 65_536, gone))
    reply = gate.post(chat(stream=streamed))
    assert (reply.status, reply.error["type"]) == (502, "upstream_protocol_error")
    assert gone.wait(DEADLINE)
    turn = gate.turn(reply)
    assert (turn["status"], turn["ended_by"]) == ("error", "provider")
    (request,) = gate.requests(turn)
    assert (request["truncated"], request["error_type"]) == (True, "upstream_protocol_error")


# -- headers ---------------------------------------------------------------------------------------


SENT = {
    "x_custom": "käse",
    "user_agent": "me/1",
    "openai_beta": "a=b",
    "accept": "*/*",
    "authorization": "Bearer mine",
    "x_api_key": "mine",
    "api_key": "mine",
    "cookie": "a=b",
    "forwarded": "for=1",
    "x_forwarded_for": "1",
    "te": "trailers",
    "accept_encoding": "gzip",
    "connection": "keep-alive, X-Hop",
    "x_hop": "1",
    "x_xgw_key": "mine",
    "content_type": "application/json; charset=utf-8",
}


def test_which_headers_the_model_gets(gate: Gate) -> None:
    gate.model.will(says())
    gate.post(
        chat(),
        f"{CHAT}?api-version=2&key=secret&x=%20",
        **SENT,
    )
    asked = gate.model.asked[-1]
    headers = dict(asked.headers)
    assert asked.line == "POST /v1/chat/completions?api-version=2&x=%20 HTTP/1.1"
    assert headers["x-custom"].encode("latin-1").decode() == "käse"
    assert (headers["user-agent"], headers["openai-beta"], headers["accept"]) == (
        "me/1",
        "a=b",
        "*/*",
    )
    assert headers["authorization"] == f"Bearer {PROVIDER_KEY}"
    assert headers["content-type"] == "application/json; charset=utf-8"
    assert headers["accept-encoding"] == "identity"
    assert not {*headers} & {
        *["x-api-key", "api-key", "x-xgw-key", "cookie", "forwarded", "x-forwarded-for"],
        *["te", "x-hop", "transfer-encoding", "expect"],
    }
    assert len(headers) == len(asked.headers)


@pytest.mark.parametrize("streamed", [False, True])
def test_which_headers_the_client_gets(gate: Gate, streamed: bool) -> None:
    sent = (
        "x-request-id: req-7\r\nX-RateLimit-Remaining: 3\r\nopenai-processing-ms: 5\r\n"
        "Set-Cookie: a=b\r\nServer: theirs\r\nLocation: /x\r\nX-Hop: 1\r\nConnection: X-Hop\r\n"
        "Cache-Control: max-age=60\r\nAccess-Control-Allow-Origin: *\r\n"
        "X-Control: a\x01b\r\nX-Delete: \x7f\r\nX-Tab: a\tb\r\nX-Name: \xe9\r\n"
    )
    answer = (
        stream(delta("a"), finish(), DONE, headers=sent)
        if streamed
        else whole(completion(), headers=sent)
    )
    gate.model.will(answer)
    reply = gate.open(chat(stream=streamed))
    reply.rest()
    assert reply.headers["x-request-id"] == "req-7"
    assert reply.headers["x-ratelimit-remaining"] == "3"
    assert reply.headers["openai-processing-ms"] == "5"
    caching = "no-cache, no-transform" if streamed else "max-age=60"
    assert [v for n, v in reply.all_headers if n.lower() == "cache-control"] == [caching]
    assert len([n for n, _ in reply.all_headers if n.lower() == "content-type"]) == 1
    assert not {*reply.headers} & {"set-cookie", "location", "x-hop", "access-control-allow-origin"}
    assert not {*reply.headers} & {"x-control", "x-delete"}
    assert (reply.headers["x-tab"], "x-name" in reply.headers) == ("a\tb", True)
    assert "theirs" not in reply.headers["server"]


def test_an_encoding_is_undone(gate: Gate) -> None:
    import gzip

    body = orjson.dumps(completion("unpacked"))
    gate.model.will(whole(gzip.compress(body), headers="Content-Encoding: gzip\r\n"))
    reply = gate.post(chat())
    assert reply.body == body
    assert "content-encoding" not in reply.headers
    (request,) = gate.requests(gate.turn(reply))
    assert gate.payload(request["response_body"]) == body


# -- request logs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_kept_of_an_exchange(gate: Gate, streamed: bool) -> None:
    pieces = [event(delta("a")), event(finish()), DONE]
    sent = "x-request-id: r1\r\nSet-Cookie: session=secret\r\n"
    gate.model.will(stream(*pieces, headers=sent) if streamed else whole(ODD, headers=sent))
    reply = gate.post(
        chat(stream=streamed, **named("logged")),
        user_agent="agent/2",
        authorization="Bearer client-secret",
    )
    turn = gate.turn(reply)
    (request,), (step,) = gate.requests(turn), gate.steps(turn)
    assert (request["method"], request["endpoint"]) == ("POST", "/chat/completions")
    assert request["url"] == f"{gate.model.url}/chat/completions"
    assert (request["stream"], request["status_code"]) == (streamed, 200)
    assert (request["provider_name"], request["model"]) == (
        "p1",
        "m-served" if streamed else "m",
    )
    assert (request["session_id"], request["run_id"], request["step_id"]) == (
        turn["session_id"],
        gate.run(turn)["id"],
        step["id"],
    )
    assert request["client"] == {"user_agent": "agent/2", "address": "127.0.0.1", "key": None}
    assert ["authorization", "[masked]"] in request["request_headers"]
    assert ["x-request-id", "r1"] in [[n.lower(), v] for n, v in request["response_headers"]]
    assert "secret" not in str(request)
    body = b"".join(pieces) if streamed else ODD
    assert request["bytes_received"] == len(body)
    assert gate.payload(request["response_body"]) == body
    assert 1 <= request["chunks"] <= 3
    offsets = [at for at, _ in request["frames"]]
    assert offsets[0] == 0
    assert offsets == sorted(offsets)
    times = [request[name] for name in ("started_at", "first_byte_at", "ended_at")]
    assert None not in times
    assert times == sorted(times)
    assert 0 <= step["ttft_ms"] <= step["latency_ms"]
    assert (request["ttft_ms"], request["latency_ms"]) == (step["ttft_ms"], step["latency_ms"])
    assert (request["input_tokens"], request["output_tokens"]) == (
        step["input_tokens"],
        step["output_tokens"],
    )


def test_what_the_client_says_of_its_own_retries(gate: Gate) -> None:
    gate.model.will(says(), says())
    turns = [gate.turn(gate.post(chat(), x_stainless_retry_count=n)) for n in ("0", "2")]
    assert [gate.steps(t)[0]["metadata"] for t in turns] == [None, {"client_retry_count": "2"}]


# -- usage and cost --------------------------------------------------------------------------------

CACHED = counts(100, 20, prompt_tokens_details={"cached_tokens": 40})


@pytest.mark.parametrize("streamed", [False, True])
def test_a_priced_answer(gate: Gate, streamed: bool) -> None:
    last = finish(usage=CACHED) | {"model": "priced"}
    first = delta("a") | {"model": "priced"}
    answer = (
        stream(first, last, DONE) if streamed else whole(completion(model="priced", usage=CACHED))
    )
    gate.model.will(answer)
    turn = gate.turn(gate.post(chat(stream=streamed, **named(f"priced-{streamed}"))))
    (step,) = gate.steps(turn)
    cost = (60 * 2 + 40 * 1 + 20 * 10) / 1e6
    assert step["cost_usd"] == pytest.approx(cost, abs=1e-12)
    assert turn["cost_usd"] == gate.session(f"priced-{streamed}")["cost_usd"] == step["cost_usd"]
    assert (step["cached_tokens"], step["usage_source"]) == (40, "provider")
    assert step["usage_raw"] == CACHED


@pytest.mark.parametrize(("model", "cost"), [("free", 0.0), ("of-no-known-price", None)])
def test_unknown_is_not_free(gate: Gate, model: str, cost: float | None) -> None:
    gate.model.will(whole(completion(model=model)))
    assert gate.turn(gate.post(chat()))["cost_usd"] == cost


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_without_usage_is_estimated(gate: Gate, streamed: bool) -> None:
    body = completion("hello world") | {"model": "priced"}
    del body["usage"]
    answer = stream(delta("hello world"), finish(), DONE) if streamed else whole(body)
    gate.model.will(answer)
    turn = gate.turn(gate.post(chat("hi", stream=streamed)))
    (step,) = gate.steps(turn)
    assert (step["usage_source"], turn["usage_source"]) == ("estimated", "estimated")
    assert (step["input_tokens"], step["output_tokens"], step["total_tokens"]) == (8, 2, 10)
    assert (step["usage_raw"], step["cached_tokens"]) == (None, None)
    assert (step["cost_usd"] is None) is streamed


@pytest.mark.parametrize("streamed", [False, True])
def test_the_text_in_content_parts_is_estimated(gate: Gate, streamed: bool) -> None:
    said = {"type": "text", "text": "hello world"}
    shown = {"type": "image_url", "image_url": {"url": "data:,x"}}
    body = completion([said, shown])  # type: ignore[arg-type]
    del body["usage"]
    parts = [delta(None, content=[said]), delta(None, content=[shown])]
    gate.model.will(stream(*parts, finish(), DONE) if streamed else whole(body))
    turn = gate.turn(gate.post(chat("hi", stream=streamed)))
    (step,) = gate.steps(turn)
    assert turn["final_output"] == "hello world"
    assert (step["usage_source"], step["output_tokens"]) == ("estimated", 2)


def test_totals_say_where_they_come_from(gate: Gate) -> None:
    body = completion()
    del body["usage"]
    gate.model.will(says(), whole(body))
    sources = []
    for _ in range(2):
        gate.post(chat(**named("mixed")))
        sources.append(gate.session("mixed")["usage_source"])
    assert sources == ["provider", "estimated"]


# -- connections -----------------------------------------------------------------------------------


def test_a_dead_connection_is_replaced_unseen(gate: Gate) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
    body = orjson.dumps(completion("first"))
    gate.model.will(raw(answer % (len(body), body)), says("second"))
    first, second = gate.post(chat()), gate.post(chat())
    assert (first.text, second.text) == ("first", "second")
    eventually(lambda: gate.turn(second)["status"] == "success")
    assert gate.turn(second)["attempts"] == 1
