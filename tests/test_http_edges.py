"""The edges of HTTP, over real sockets: framing, limits, slow and odd clients."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import DEADLINE, STANDIN, ServerProcess, installed
from xgw.errors import ApiError
from xgw.web.bodies import parse_json
from xgw.web.limits import Places

LIMIT = 300_000
JSON = "Content-Type: application/json\r\n"
HEADERS = f"Host: 127.0.0.1\r\n{JSON}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    config = f"[server]\nmax_body_bytes = {LIMIT}\n"
    with installed(tmp_path_factory.mktemp("edges"), config, STANDIN) as installation:
        yield installation.serve()


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    config = "[server]\nmax_body_bytes = 20000000\n"
    with installed(tmp_path_factory.mktemp("roomy"), config, STANDIN) as installation:
        yield installation.serve()


class Arrived(io.BufferedReader):
    """What came on a connection; reading one answer leaves the next one where it is."""

    def makefile(self, *_: object) -> Arrived:
        return self

    def close(self) -> None:
        """The connection is closed by the test."""


class Client:
    """One connection, to which a test writes bytes as it likes."""

    def __init__(self, server: ServerProcess) -> None:
        self.sock = socket.create_connection(("127.0.0.1", server.port), DEADLINE)
        self._arrived = Arrived(self.sock.makefile("rb", buffering=0))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._arrived.raw.close()
        self.sock.close()

    def send(self, *parts: str | bytes) -> None:
        for part in parts:
            self.sock.sendall(part if isinstance(part, bytes) else part.encode("latin-1"))

    def answer(self, method: str = "GET") -> Answer:
        response = http.client.HTTPResponse(self._arrived, method=method)  # type: ignore[arg-type]
        response.begin()
        return Answer(response)

    def rest(self) -> bytes:
        """Everything until the server closes."""
        return self._arrived.read()

    def is_closed(self) -> bool:
        """Waits for the end of the connection."""
        return self.rest() == b""


class Answer:
    """What came back."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def assert_error(self, status: int, code: str | None = None) -> None:
        assert self.status == status, self.body
        assert self.headers["Content-Type"] == "application/json"
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        if code is not None:
            assert error["code"] == code


def post(path: str, *headers: str) -> str:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    return "\r\n".join([*lines, *headers, "", ""])


CHUNKED = "Transfer-Encoding: chunked"
SMUGGLED = post("/headers", "Content-Length: 0")


@pytest.mark.parametrize(
    "headers",
    [
        ["Content-Length: 6", CHUNKED],
        [CHUNKED, "Content-Length: 6"],
        ["Content-Length: 5", "Content-Length: 5"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5, 5"],
        ["Content-Length: +5"],
        ["Content-Length: -5"],
        ["Content-Length: 0x5"],
        ["Content-Length: 5_0"],
        ["Content-Length: 5 "],
        ["Content-Length:"],
        ["Content-Length : 5"],
        ["Content-Length: \xb2"],
        [f"Content-Length: {'9' * 5000}"],
        ["Transfer-Encoding : chunked"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: identity"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: gzip"],
        ["Transfer-Encoding:"],
        ["Transfer-Encoding: \x0bchunked"],
        ["Transfer-Encoding: chunked;q=1"],
        [CHUNKED, CHUNKED],
        [CHUNKED, "Transfer-Encoding: identity"],
        [" Transfer-Encoding: chunked"],
        ["X-Folded: a", " b"],
        ["Host: localhost"],
        ["Content-Type: text/plain"],
    ],
)
@pytest.mark.parametrize("calls_before", [0, 2])
def test_ambiguous_framing_is_refused_and_nothing_behind_it_runs(
    server: ServerProcess, headers: list[str], calls_before: int
) -> None:
    with Client(server) as client:
        for size in range(calls_before):
            client.send(post("/body", f"Content-Length: {size}"), "1" * size)
            assert client.answer().json["size"] == size
        client.send(post("/body", *headers), "0\r\n\r\n", SMUGGLED)
        if headers == ["Content-Length: 5 "]:  # spaces around a value mean nothing
            assert client.answer().status == 200
            return
        client.answer().assert_error(400)
        assert client.is_closed()


def test_a_transfer_coding_is_spelled_in_any_case(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(post("/body", "Transfer-Encoding: Chunked"), "2\r\n{}\r\n0\r\n\r\n")
        assert client.answer().json["size"] == 2


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /health", 400),
        ("get /health HTTP/1.1", 400),
        ("GET /hea lth HTTP/1.1", 505),
        ("GET health HTTP/1.1", 400),
        ("GET /health HTTP/2.0", 505),
        ("PRI * HTTP/2.0", 400),
        ("GET /\x00 HTTP/1.1", 400),
        ("GET /\xe4 HTTP/1.1", 400),
        (f"GET /{'x' * 9000} HTTP/1.1", 414),
        ("\x16\x03\x01\x02\x00\x01", 400),
    ],
)
def test_a_request_line_that_is_none(server: ServerProcess, request_line: str, status: int) -> None:
    with Client(server) as client:
        client.send(f"{request_line}\r\n{HEADERS}\r\n")
        client.answer().assert_error(status)
        assert client.is_closed()


def test_bytes_that_are_not_http_are_refused_at_once(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        client.answer().assert_error(400)
        assert client.is_closed()


def test_lines_that_end_in_line_feeds_alone_are_refused_at_once(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send("GET /health HTTP/1.1\nHost: 127.0.0.1\n\n")
        client.answer().assert_error(400)


@pytest.mark.parametrize(
    "headers",
    [
        "".join(f"X-{n}: {'v' * 1000}\r\n" for n in range(70)),
        f"X-Large: {'v' * 70_000}\r\n",
        "".join(f"X-{n}: v\r\n" for n in range(1000)),
        f"X-Endless: {'v' * 200_000}",
    ],
    ids=["in all", "one", "many", "endless"],
)
def test_headers_over_the_limit(server: ServerProcess, headers: str) -> None:
    with Client(server) as client:
        client.send(f"GET /health HTTP/1.1\r\n{HEADERS}{headers}\r\n")
        client.answer().assert_error(431, "headers_too_large")
        assert client.is_closed()


def test_headers_over_the_limit_later_on_a_connection(server: ServerProcess) -> None:
    """What was wrong is told, although much of it was not read."""
    with Client(server) as client:
        client.send(f"GET /health HTTP/1.1\r\n{HEADERS}\r\n")
        assert client.answer().status == 200
        client.send(f"GET /health HTTP/1.1\r\n{HEADERS}X: ", b"v" * 5_000_000)
        client.answer().assert_error(431)
        assert client.is_closed()


def test_headers_within_the_limit(server: ServerProcess) -> None:
    headers = "".join(f"X-{n}: {'v' * 600}\r\n" for n in range(100))
    with Client(server) as client:
        client.send(f"GET /headers HTTP/1.1\r\n{HEADERS}{headers}\r\n")
        assert client.answer().json["HTTP_X_99"] == "v" * 600


def test_a_head_in_pieces(server: ServerProcess) -> None:
    head = post("/body", "Content-Length: 2")
    with Client(server) as client:
        for char in head[:-1]:
            client.send(char)
        client.send(f"{head[-1]}{{", "}")
        assert client.answer().json["size"] == 2


def test_requests_sent_ahead_are_answered_in_order(server: ServerProcess) -> None:
    one, two = post("/body", "Content-Length: 2"), post("/body", CHUNKED)
    with Client(server) as client:
        client.send(f"{one}{{}}{two}3\r\n[1]\r\n0\r\n\r\n{one[:20]}")
        assert [client.answer().json["size"] for _ in range(2)] == [2, 3]
        client.send(f"{one[20:]}[]")
        assert client.answer().json["size"] == 2


def test_a_head_that_comes_again_differs_in_nothing_but_the_length(server: ServerProcess) -> None:
    with Client(server) as client:
        for size in (2, 300, 0, 2, 1000, 65536):
            body = "1" * size
            client.send(post("/body", "X: a", f"Content-Length: {size}"), body)
            answer = client.answer().json
            assert answer["size"] == size
            assert answer["sha256"] == hashlib.sha256(body.encode()).hexdigest()


def test_a_head_that_comes_again_with_another_header_is_another(server: ServerProcess) -> None:
    with Client(server) as client:
        for value in ("a", "a", "b", "ab", "a"):
            client.send(post("/headers", f"X-One: {value}", "Content-Length: 0", "X-Two: c"))
            assert client.answer().json["HTTP_X_ONE"] == value
            client.send(post("/headers", "X-One: a", "Content-Length: 0", f"X-Two: {value}"))
            assert client.answer().json["HTTP_X_TWO"] == value


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (["X-Session-Id: a", "x-session-id: a"], {"HTTP_X_SESSION_ID": "a"}),
        (["X-Session-Id: a", "x-session-id: b"], {"HTTP_X_SESSION_ID": "a\nb"}),
        (["X-Session-Id: a,b"], {"HTTP_X_SESSION_ID": "a,b"}),
        (
            ["X-Task-Id: t", "X-Turn-Id: a", "X-Turn-Id: a", "X-Other: a", "X-Other: a"],
            {"HTTP_X_TASK_ID": "t", "HTTP_X_TURN_ID": "a", "HTTP_X_OTHER": "a,a"},
        ),
    ],
)
def test_an_identifier_that_comes_twice_is_no_third_one(
    server: ServerProcess, sent: list[str], got: dict[str, str]
) -> None:
    with Client(server) as client:
        for _ in range(3):
            client.send(post("/headers", *sent, "Content-Length: 0"))
            environ = client.answer().json
            assert {name: environ[name] for name in got} == got


def test_requests_with_the_same_head_are_sent_ahead(server: ServerProcess) -> None:
    one, three = (post("/v1/chat/completions", f"Content-Length: {size}") for size in (1, 3))
    with Client(server) as client:
        client.send(f"{one}1{three}123{one}")
        assert [client.answer().json["size"] for _ in range(2)] == [1, 3]
        client.send(f"1{three}1")
        assert client.answer().json["size"] == 1
        client.send("23")
        assert client.answer().json["size"] == 3


@pytest.mark.parametrize("cut", [1, 10, 40, -3])
def test_the_head_of_another_call_in_pieces(server: ServerProcess, cut: int) -> None:
    call = post("/v1/chat/completions", "Content-Length: 2") + "{}"
    with Client(server) as client:
        for _ in range(2):
            client.send(call)
            assert client.answer().json["size"] == 2
            client.send(call[:cut])
            with Client(server) as another:
                another.send(call)
                assert another.answer().json["size"] == 2
            client.send(call[cut:])
            assert client.answer().json["size"] == 2


def test_a_repeated_head_is_told_of_a_body_that_is_too_large(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(post("/body", "Content-Length: 2"), "{}")
        assert client.answer().status == 200
        client.send(post("/body", f"Content-Length: {LIMIT + 1}"))
        client.answer().assert_error(413)
        assert client.is_closed()


def test_a_repeated_head_without_a_media_type_may_have_no_body(server: ServerProcess) -> None:
    head = "POST /body HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n"
    with Client(server) as client:
        for _ in range(2):
            client.send(head.format(0))
            assert client.answer().json["size"] == 0
        client.send(head.format(2), "{}")
        client.answer().assert_error(415)


def test_a_question_after_the_health_among_others_on_a_connection(server: ServerProcess) -> None:
    health, body = f"GET /health HTTP/1.1\r\n{HEADERS}\r\n", post("/body", "Content-Length: 2")
    with Client(server) as client:
        client.send(f"{health}{body}{{}}{health}{health[:12]}")
        assert [client.answer().status for _ in range(3)] == [200, 200, 200]
        client.send(f"{health[12:]}{body}[]")
        assert client.answer().status == 200
        assert client.answer().json["size"] == 2


def test_underscores_never_set_or_replace_a_dashed_header(server: ServerProcess) -> None:
    dashed = "X-Session-Id: s-1\r\n"
    odd = "X_Session_Id: s-evil\r\nX_Other: 1\r\nSCRIPT_NAME: /v1\r\nPATH_INFO: /boom\r\n"
    with Client(server) as client:
        client.send(f"GET /headers HTTP/1.1\r\n{HEADERS}{odd}{dashed}{odd}\r\n")
        seen = client.answer().json
    assert seen["HTTP_X_SESSION_ID"] == "s-1"
    assert "HTTP_X_OTHER" not in seen
    assert seen["SCRIPT_NAME"] == ""
    assert seen["PATH_INFO"] == "/headers"


def test_a_neighbour_cannot_say_that_it_came_by_tls(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(f"GET /headers HTTP/1.1\r\n{HEADERS}X-Forwarded-Proto: https\r\n\r\n")
        assert client.answer().json["wsgi.url_scheme"] == "http"


def test_http_1_0_is_spoken(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(f"GET /large HTTP/1.0\r\n{HEADERS}\r\n")
        answer = client.answer()
        assert "Transfer-Encoding" not in answer.headers
        assert len(answer.body) == 16_777_216
        assert client.is_closed()


# -- bodies ----------------------------------------------------------------------------------------


def test_a_body_over_the_limit_is_refused_before_it_is_sent(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(post("/body", f"Content-Length: {LIMIT + 1}"))
        answer = client.answer()
        answer.assert_error(413, "request_too_large")
        assert str(LIMIT) in answer.json["error"]["message"]
        assert answer.headers["Connection"] == "close"


@pytest.mark.parametrize("size", [LIMIT + 1, 20_000_000])
def test_a_client_that_sends_all_before_it_reads_gets_the_413(
    server: ServerProcess, size: int
) -> None:
    with Client(server) as client:
        client.send(post("/body", f"Content-Length: {size}"), b"x" * size)
        client.answer().assert_error(413, "request_too_large")
        assert client.is_closed()


def test_a_chunked_body_over_the_limit(server: ServerProcess) -> None:
    chunk = b"3e8\r\n" + b"x" * 1000 + b"\r\n"
    with Client(server) as client:
        client.send(post("/body", CHUNKED), chunk * 301, "0\r\n\r\n")
        client.answer().assert_error(413, "request_too_large")
        assert client.is_closed()


def test_the_limit_counts_what_chunks_hold_not_how_they_are_sent(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(post("/body", CHUNKED), b"1\r\nx\r\n" * 100_000, "0\r\n\r\n")
        assert client.answer().json["size"] == 100_000
    with Client(server) as client:
        client.send(post("/body", f"Content-Length: {LIMIT}"), b"x" * LIMIT)
        assert client.answer().json["size"] == LIMIT


@pytest.mark.parametrize("size", [4 << 20, (4 << 20) + 1, 13_000_000])
def test_a_large_body_and_a_request_right_behind_it(roomy: ServerProcess, size: int) -> None:
    body = random.Random(size).randbytes(size)
    with Client(roomy) as client:
        for _ in range(2):
            client.send(post("/body", f"Content-Length: {size}"), body[:70_000], body[70_000:])
            client.send(f"GET /headers HTTP/1.1\r\n{HEADERS}\r\n")
            told = client.answer().json
            assert told == {"size": size, "sha256": hashlib.sha256(body).hexdigest()}
            assert client.answer().json["PATH_INFO"] == "/headers"
        client.send(post("/body", f"Content-Length: {size}"), body[:-1])
        client.sock.shutdown(socket.SHUT_WR)
        client.answer().assert_error(400)


@pytest.mark.parametrize(
    "body",
    [
        "x\r\n",
        "2\r\n{}0\r\n\r\n",
        "-1\r\n",
        "2;\x00\r\n{}\r\n0\r\n\r\n",
        f"2;{'x' * 4000}",
        "2\n",
        "2;a\n{}",
        "2\r\n{}\r\n0\n",
        f"{'f' * 16}\r\n{{}}",
        f"1{'0' * 16}2\r\n{{}}",
    ],
)
def test_a_body_that_is_not_validly_chunked(server: ServerProcess, body: str) -> None:
    with Client(server) as client:
        client.send(post("/body", CHUNKED), body)
        client.answer().assert_error(400)
        assert client.is_closed()


@pytest.mark.parametrize(
    ("header", "body"), [("Content-Length: 10", "{}"), (CHUNKED, "2\r\n{}\r\n")]
)
def test_a_body_that_ends_early(server: ServerProcess, header: str, body: str) -> None:
    with Client(server) as client:
        client.send(post("/body", header), body)
        client.sock.shutdown(socket.SHUT_WR)
        client.answer().assert_error(400)


def test_a_compressed_body_is_refused(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(post("/body", "Content-Encoding: gzip", "Content-Length: 2"), "{}")
        client.answer().assert_error(415, "unsupported_media_type")


def test_an_answer_that_did_not_need_the_body_ends_the_connection(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(post("/unread", "Content-Length: 50"), SMUGGLED)
        answer = client.answer()
        assert (answer.status, answer.headers["Connection"]) == (200, "close")
        assert client.is_closed()


def test_100_continue_once_and_only_when_the_body_is_wanted(server: ServerProcess) -> None:
    expects = "Expect: 100-continue"
    with Client(server) as client:
        client.send(post("/body", "Content-Length: 2", expects))
        assert client.sock.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send("{}")
        assert client.answer().json["size"] == 2
        client.send(post("/body", CHUNKED, expects))
        assert client.sock.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send("2\r\n{}\r\n0\r\n\r\n")
        assert client.answer().json["size"] == 2


def test_no_100_continue_for_a_request_that_is_refused(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(post("/body", f"Content-Length: {LIMIT + 1}", "Expect: 100-continue"))
        client.sock.shutdown(socket.SHUT_WR)
        everything = client.rest()
    assert everything.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in everything


def test_other_expectations_cannot_be_met(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(post("/body", "Content-Length: 2", "Expect: tea"), "{}")
        client.answer().assert_error(417)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"NaN",
        b'{"a": Infinity}',
        b'{"a": 1,}',
        b"\xff",
        b'"\\ud800"',
        b"[" * 201 + b"]" * 201,
    ],
)
def test_what_is_not_json(text: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        parse_json(text)
    assert (refused.value.status, refused.value.type) == (400, "invalid_request_error")


def test_how_deep_json_may_be() -> None:
    parse_json(b"[" * 200 + b"]" * 200)
    parse_json(b'{"a":' * 200 + b"1" + b"}" * 200)
    parse_json(b"[" + b",".join([b"[[]]"] * 1000) + b"]")
    for text in (b'{"a":[' * 101 + b"]}" * 101, b"[" * 3000 + b"]" * 3000):
        with pytest.raises(ApiError):
            parse_json(text)


def test_places_are_taken_and_given_back() -> None:
    places = Places(2, "watchers")
    places.take()
    with places.taken():
        assert places.count == 2
        with pytest.raises(ApiError) as refused:
            places.take()
    assert (refused.value.status, refused.value.type) == (503, "overloaded")
    assert dict(refused.value.headers)["Retry-After"].isdigit()
    assert "watchers" in refused.value.message
    assert places.count == 1


# -- methods, paths, errors ------------------------------------------------------------------------


def test_head_is_answered_without_a_body(server: ServerProcess) -> None:
    with Client(server) as client:
        for path, status in (("/health", 200), ("/nowhere", 404)):
            client.send(f"HEAD {path} HTTP/1.1\r\n{HEADERS}\r\n")
            answer = client.answer("HEAD")
            assert (answer.status, answer.body) == (status, b"")
            assert int(answer.headers["Content-Length"]) > 0
        client.send(f"GET /health HTTP/1.1\r\n{HEADERS}\r\n")
        assert client.answer().status == 200


def test_head_of_a_request_that_the_server_refuses(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(f"HEAD /boom HTTP/1.1\r\n{HEADERS}\r\n")
        answer = client.rest()
        assert answer.endswith(b"\r\n\r\n")
        assert b"\r\nCache-Control: no-store\r\n" in answer


def test_an_unknown_path(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(post("/v1/nowhere", "Content-Length: 0"))
        client.answer().assert_error(404, "not_found")


def test_a_websocket_where_there_is_none(server: ServerProcess) -> None:
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    with Client(server) as client:
        client.send(f"GET /v1/responses HTTP/1.1\r\n{HEADERS}{upgrade}\r\n")
        client.answer().assert_error(426)


def test_a_fault_of_the_application_shows_no_details(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send(f"GET /boom?key=query-secret HTTP/1.1\r\n{HEADERS}\r\n")
        answer = client.answer()
    assert answer.status == 500
    assert answer.json["error"]["type"] == "internal"
    assert "application" not in answer.json["error"]["message"]
    server.stderr.wait_for("a fault of the application")
    assert "query-secret" not in server.stderr.text


def test_what_a_client_sent_is_not_logged(server: ServerProcess) -> None:
    with Client(server) as client:
        client.send("GET /x?key=line-secret HTTP/1.1\r\nX-Key\x01: header-secret\r\n\r\n")
        assert b"secret" not in client.rest()
    assert "secret" not in server.stderr.text.replace("query-secret", "")


# -- slow clients ----------------------------------------------------------------------------------


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[ServerProcess]:
    """Waits for heads and bodies half a second instead of 10 and 30."""
    with installed(tmp_path, "", STANDIN) as installation:
        yield installation.serve(env={"STANDIN_PATIENCE": "0.5"})


def test_clients_that_do_not_finish_their_head_hold_no_thread(impatient: ServerProcess) -> None:
    clients = [Client(impatient) for _ in range(300)]
    try:
        for client in clients:
            client.send("GET /health HTTP/1.1\r\nHost:")
        with Client(impatient) as other:
            other.send(f"GET /health HTTP/1.1\r\n{HEADERS}\r\n")
            assert other.answer().status == 200
        [worker] = impatient.workers()
        assert len(list(Path(f"/proc/{worker}/task").iterdir())) < 100
        for client in clients:
            client.answer().assert_error(408, "request_timeout")
            assert client.is_closed()
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize("sent", [b"{", b""], ids=["something", "nothing"])
def test_a_body_that_stands_still(impatient: ServerProcess, sent: bytes) -> None:
    with Client(impatient) as client:
        client.send(post("/body", "Content-Length: 2"), sent)
        client.answer().assert_error(408, "request_timeout")
        client.sock.shutdown(socket.SHUT_WR)
        assert client.is_closed()


@pytest.mark.parametrize("path", ["/large", "/large?0.2"])
def test_a_client_that_reads_nothing_is_cut(impatient: ServerProcess, path: str) -> None:
    with Client(impatient) as client:
        client.send(f"GET {path} HTTP/1.1\r\n{HEADERS}\r\n")
        impatient.stderr.wait_for("large ended")
        assert len(client.rest()) < 16_777_216
    assert "Traceback" not in impatient.stderr.text


def test_a_client_that_reads_slowly_gets_everything(impatient: ServerProcess) -> None:
    """All in all it takes longer than a client may stand still."""
    pause = threading.Event()
    with Client(impatient) as client:
        client.send(f"GET /large HTTP/1.0\r\n{HEADERS}\r\n")
        read = 0
        while block := client.sock.recv(1 << 18):
            read += len(block)
            pause.wait(0.02)
    assert read > 16_777_216


def test_a_client_that_does_not_close_delays_nobody(server: ServerProcess) -> None:
    """The server reads on for a while after an early answer; others are served meanwhile."""
    slow = [Client(server) for _ in range(20)]
    try:
        for client in slow:
            client.send(post("/unread", "Content-Length: 100"))
            assert client.answer().status == 200
        done = threading.Event()

        def ask() -> None:
            for _ in range(20):
                with Client(server) as client:
                    client.send(f"GET /health HTTP/1.1\r\n{HEADERS}Connection: close\r\n\r\n")
                    assert client.answer().status == 200
            done.set()

        threading.Thread(target=ask, daemon=True).start()
        assert done.wait(DEADLINE)
        assert slow[0].is_closed()
    finally:
        for client in slow:
            client.close()


def test_a_client_that_leaves_in_the_middle_of_an_answer_is_no_fault(tmp_path: Path) -> None:
    with installed(tmp_path, "", STANDIN) as installation:
        server = installation.serve()
        for _ in range(5):
            with Client(server) as client:
                client.send(f"GET /large HTTP/1.1\r\n{HEADERS}\r\n")
                assert client.sock.recv(10)
        assert server.stop() == 0
        said = server.stderr.wait_for_end().splitlines()
    assert said.count("large ended") == 5
    assert [line for line in said if not line.startswith(("large ", "services "))] == []
