"""The transport's connections: kept, replaced and closed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from scripted_upstream import LONG, Peer, answering, ask, pair, upstream
from xgw.providers.transport import Call, Transport, UpstreamRequest
from xgw.providers.transport.origins import Origin
from xgw.providers.transport.pool import Pool
from xgw.providers.transport.wire import Wire
from xgw.values import UpstreamFailure

ORIGIN = Origin("http", "upstream.test", 80, None, None)
OTHER = Origin("http", "other.test", 80, None, None)


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport()
    yield made
    made.close()


def answer_twice(peer: Peer) -> None:
    for _ in range(2):
        peer.request()
        peer.answer()


def test_a_connection_serves_one_request_after_the_other(transport: Transport) -> None:
    with upstream(answer_twice) as server:
        assert ask(transport, server.url) == b"ok"
        assert ask(transport, server.url + "/other") == b"ok"
        assert server.connections == 1


def test_it_is_free_as_soon_as_the_last_byte_is_read(transport: Transport) -> None:
    with upstream(answer_twice) as server:
        response = transport.send(UpstreamRequest("POST", server.url), LONG, Call())
        assert response.read() == b"ok"
        assert ask(transport, server.url) == b"ok"
        response.close()
        assert server.connections == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_answers_that_leave_the_connection_usable(transport: Transport, raw: bytes) -> None:
    def script(peer: Peer) -> None:
        for _ in range(2):
            peer.request()
            peer.send(raw)

    with upstream(script) as server:
        assert ask(transport, server.url) == b""
        assert ask(transport, server.url) == b""
        assert server.connections == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nmore",
    ],
)
def test_answers_that_do_not(transport: Transport, raw: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(raw)
        peer.wait_for_end()

    with upstream(script, script) as server:
        assert ask(transport, server.url) == b"ok"
        assert ask(transport, server.url) == b"ok"
        assert server.connections == 2


def test_a_body_that_was_not_read_to_its_end_is_aborted(transport: Transport) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
        peer.wait_for_end()

    with upstream(script) as server:
        response = transport.send(UpstreamRequest("POST", server.url), LONG, Call())
        response.close()
        response.close()
        assert response.read() == b"ok"
        with pytest.raises(ValueError, match="closed"):
            response.read()


def test_a_connection_that_died_while_idle_is_not_used(transport: Transport) -> None:
    closed = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.answer()
        peer.sock.close()
        closed.set()

    with upstream(script, answering(b"HTTP/1.1 200 OK\r\n\r\nnew")) as server:
        assert ask(transport, server.url) == b"ok"
        assert closed.wait(20)
        assert ask(transport, server.url) == b"new"


@pytest.mark.parametrize("size", [2, 20_000_000])
def test_one_that_dies_as_it_is_used_is_replaced_without_an_error(
    transport: Transport, size: int
) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.answer()
        peer.head()
        peer.reset()

    def second(peer: Peer) -> None:
        _, body = peer.request()
        peer.answer(b"%d" % len(body))

    with upstream(script, second) as server:
        assert ask(transport, server.url) == b"ok"
        assert ask(transport, server.url, bytes(size)) == b"%d" % size


def test_an_answer_that_has_begun_is_not_asked_for_again(transport: Transport) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.answer()
        peer.request()
        peer.send(b"H")

    with upstream(script) as server:
        assert ask(transport, server.url) == b"ok"
        with pytest.raises(UpstreamFailure, match="in the head of its answer"):
            ask(transport, server.url)


def test_a_new_connection_that_dies_is_a_failure(transport: Transport) -> None:
    with upstream(lambda peer: None) as server, pytest.raises(UpstreamFailure) as caught:
        ask(transport, server.url)
    assert caught.value.error_type == "upstream_connection"
    assert server.connections == 1


def test_a_refused_connection_says_where() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(UpstreamFailure) as caught:
            ask(Transport(), f"http://user:secret@127.0.0.1:{port}/v1?key=secret")
    assert caught.value.error_type == "upstream_connection"
    assert caught.value.message == f"connection to 127.0.0.1:{port} refused"


def test_a_name_that_leads_nowhere_says_so() -> None:
    with pytest.raises(UpstreamFailure, match=r"the address of a\.\.b cannot be found") as caught:
        ask(Transport(), "http://a..b/")
    assert caught.value.error_type == "upstream_connection"


def test_the_pool_gives_the_youngest_and_drops_the_oldest() -> None:
    pool = Pool(2)
    ends = [pair() for _ in range(4)]
    ours, theirs = [end for end, _ in ends], [end for _, end in ends]
    for sock in ours[:3]:
        pool.give(ORIGIN, sock)
    assert theirs[0].recv(1) == b""
    assert pool.take(OTHER) is None
    youngest = pool.take(ORIGIN)
    assert youngest is ours[2]
    theirs[1].send(b"unasked for")
    spoken_to = pool.take(ORIGIN)
    assert spoken_to is ours[1]
    assert not Wire(spoken_to, Call()).is_alive()
    spoken_to.close()
    assert pool.take(ORIGIN) is None
    pool.give(ORIGIN, youngest)
    pool.close()
    pool.give(ORIGIN, ours[3])
    assert theirs[2].recv(1) == theirs[3].recv(1) == b""
    for sock in theirs:
        sock.close()


def test_idle_connections_are_closed_in_time() -> None:
    pool = Pool(2, idle_seconds=0.05)
    for _ in range(2):
        ours, theirs = pair()
        with theirs:
            pool.give(ORIGIN, ours)
            assert theirs.recv(1) == b""
    assert pool.take(ORIGIN) is None
