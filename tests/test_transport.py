"""The relay's transport: what is sent, and how its answer comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from scripted_upstream import LONG, Peer, read_all, upstream
from servers import DEADLINE
from xgw import clock
from xgw.providers.transport import Call, Transport, UpstreamRequest
from xgw.values import UpstreamFailure

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport()
    yield made
    made.close()


def post(url: str, body: bytes = b"{}", *headers: tuple[str, str]) -> UpstreamRequest:
    return UpstreamRequest("POST", url, headers, body)


def test_a_request_reaches_the_upstream_as_it_was_given(transport: Transport) -> None:
    requests = []

    def script(peer: Peer) -> None:
        requests.append(peer.request())
        peer.answer(b"{}", headers="X-Request-Id: r1\r\nX-Two: a\r\nX-Two: b\r\n")

    utf8_as_wsgi_has_it = "Zürich €".encode().decode("latin-1")
    with upstream(script) as server:
        request = post(
            f"{server.url}/v1/chat?x=1&y=%20#part",
            b'{"a":1}',
            ("X-Place", utf8_as_wsgi_has_it),
            ("X-Note", "ünder €"),
            ("Content-Type", "application/json"),
            ("Connection", "close"),
            ("Content-Length", "99"),
            ("Transfer-Encoding", "chunked"),
        )
        response = transport.send(request, LONG, Call())
        assert read_all(response) == b"{}"
        assert response.status == 200
        assert ("X-Request-Id", "r1") in response.headers
        assert [value for name, value in response.headers if name == "X-Two"] == ["a", "b"]
    head, body = requests[0]
    assert body == b'{"a":1}'
    assert head.split(b"\r\n") == [
        b"POST /v1/chat?x=1&y=%20 HTTP/1.1",
        f"Host: {server.name}".encode(),
        b"Accept-Encoding: identity",
        b"Content-Length: 7",
        b"X-Place: " + "Zürich €".encode(),
        b"X-Note: " + "ünder €".encode(),
        b"Content-Type: application/json",
    ]


def test_something_can_be_done_while_the_upstream_works(transport: Transport) -> None:
    done = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        assert done.wait(DEADLINE)
        peer.answer(b"{}")

    with upstream(script) as server:
        response = transport.send(post(server.url), LONG, Call(), done.set)
        assert read_all(response) == b"{}"


def test_a_request_without_a_body_has_no_length(transport: Transport) -> None:
    heads = []

    def script(peer: Peer) -> None:
        heads.append(peer.head())
        peer.answer()

    with upstream(script) as server:
        url = f"http://us%65r:p%3Aw@{server.name}"
        headers = (("Host", "other.test"), ("Accept-Encoding", "gzip"))
        read_all(transport.send(UpstreamRequest("GET", url, headers), LONG, Call()))
    assert heads[0].split(b"\r\n") == [
        b"GET / HTTP/1.1",
        b"Authorization: Basic dXNlcjpwOnc=",
        b"Host: other.test",
        b"Accept-Encoding: gzip",
    ]


@pytest.mark.parametrize(
    "request_",
    [
        post("http://127.0.0.1:9/a b"),
        post("http://127.0.0.1:9/", b"", ("X-Evil", "a\r\nHost: b")),
        post("http://127.0.0.1:9/", b"", ("X-Evil", "a\nb")),
        post("http://127.0.0.1:9/", b"", ("X Evil", "a")),
        UpstreamRequest("GET /\r\n", "http://127.0.0.1:9/"),
    ],
)
def test_what_would_break_the_lines_is_never_sent(
    transport: Transport, request_: UpstreamRequest
) -> None:
    with pytest.raises(ValueError, match="holds"):
        transport.send(request_, LONG, Call())


@pytest.mark.parametrize(
    "url", ["ftp://a/", "http://", "nothing", "http://[::1", "http://a:b/", "http://u:pw@:1/"]
)
def test_an_address_that_is_none_fails_clearly(transport: Transport, url: str) -> None:
    with pytest.raises(UpstreamFailure, match="not an http") as caught:
        transport.send(post(url), LONG, Call())
    assert caught.value.error_type == "upstream_connection"
    assert "pw" not in caught.value.message


def test_a_large_body_arrives_whole(transport: Transport) -> None:
    body = bytes(range(256)) * 80_000

    def script(peer: Peer) -> None:
        _, received = peer.request()
        peer.answer(b"same" if received == body else b"different")

    with upstream(script) as server:
        assert read_all(transport.send(post(server.url, body), LONG, Call())) == b"same"


def test_what_arrived_before_a_reset_is_delivered(transport: Transport) -> None:
    arrived = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(CHUNKED + b"5\r\nhello\r\n")
        arrived.wait(20)
        peer.reset()

    with upstream(script) as server:
        response = transport.send(post(server.url), LONG, Call())
        assert response.read() == b"hello"
        arrived.set()
        with pytest.raises(UpstreamFailure) as caught:
            response.read()
    assert caught.value.error_type == "upstream_connection"


def test_read_gives_what_is_there_and_waits_no_longer_than_it_is_told(
    transport: Transport,
) -> None:
    steps = [threading.Event() for _ in range(3)]

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(CHUNKED)
        for number, step in enumerate(steps):
            step.wait(20)
            peer.send(b"2\r\n%d.\r\n" % number)
        peer.send(b"0\r\n\r\n")

    with upstream(script) as server:
        response = transport.send(post(server.url), LONG, Call())
        for number, step in enumerate(steps):
            assert response.read(until=clock.monotonic() + 0.02) is None
            step.set()
            assert response.read(until=clock.monotonic() + 20) == b"%d." % number
        assert response.read() == b""
        assert response.read() == b""
        response.close()


def test_an_error_that_comes_before_the_body_was_taken_is_read(transport: Transport) -> None:
    def script(peer: Peer) -> None:
        peer.head()
        peer.answer(b"too large", status="413 Too Large")

    with upstream(script) as server:
        response = transport.send(post(server.url, bytes(50_000_000)), LONG, Call())
        assert (response.status, read_all(response)) == (413, b"too large")


def test_a_success_that_begins_early_does_not_stop_the_body(transport: Transport) -> None:
    body = bytes(20_000_000)

    def script(peer: Peer) -> None:
        peer.head()
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 4\r\n\r\n")
        peer.send(b"good" if peer.body(len(body)) == body else b"bad.")

    with upstream(script) as server:
        response = transport.send(post(server.url, body), LONG, Call())
        assert read_all(response) == b"good"
