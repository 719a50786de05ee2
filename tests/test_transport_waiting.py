"""While the transport waits: limits, cancelling from elsewhere, clients that go away."""

from __future__ import annotations

import fcntl
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from scripted_upstream import LONG, Peer, Script, Upstream, pair, read_all, upstream
from xgw import clock
from xgw.providers.transport import (
    Call,
    Cancelled,
    ClientGone,
    Timeouts,
    Transport,
    UpstreamRequest,
)
from xgw.providers.transport.watching import READABLE, WRITABLE, SelectPoller
from xgw.values import UpstreamFailure

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BIG = bytes(50_000_000)


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport()
    yield made
    made.close()


def exchange(transport: Transport, url: str, call: Call, limits: Timeouts = LONG) -> bytes:
    response = transport.send(UpstreamRequest("POST", url, (), b"{}"), limits, call)
    return read_all(response)


def saying(first: bytes, then: Callable[[], object] = lambda: None) -> Script:
    """Read a request, send `first`, do `then` and wait for the client to hang up."""

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(first)
        then()
        peer.wait_for_end()

    return script


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 100 Continue\r\n\r\n", HEAD, HEAD + b"5"])
def test_the_first_byte_of_the_body_is_waited_for_so_long(
    transport: Transport, first: bytes
) -> None:
    limits = Timeouts(connect=20, first_byte=0.1, idle=20)
    with upstream(saying(first)) as server, pytest.raises(UpstreamFailure) as caught:
        exchange(transport, server.url, Call(), limits)
    assert caught.value.error_type == "upstream_timeout"
    assert caught.value.message == f"{server.name} sent no byte of its answer within 0.1 s"


def test_between_bytes_it_is_waited_for_so_long(transport: Transport) -> None:
    limits = Timeouts(connect=20, first_byte=20, idle=0.1)
    with upstream(saying(HEAD + b"1\r\nx\r\n")) as server, pytest.raises(UpstreamFailure) as caught:
        exchange(transport, server.url, Call(), limits)
    assert caught.value.error_type == "upstream_timeout"
    assert caught.value.message == f"{server.name} fell silent in its answer for 0.1 s"
    assert caught.value.http_status == 200


def test_silence_is_counted_over_several_reads(transport: Transport) -> None:
    limits = Timeouts(connect=20, first_byte=20, idle=0.2)
    with upstream(saying(HEAD + b"1\r\nx\r\n")) as server:
        response = transport.send(UpstreamRequest("POST", server.url), limits, Call())
        assert response.read() == b"x"
        with pytest.raises(UpstreamFailure, match="fell silent"):
            all(response.read(until=clock.monotonic() + 0.01) is None for _ in range(1000))


def test_an_upstream_that_does_not_take_the_request_is_given_up(transport: Transport) -> None:
    limits = Timeouts(connect=20, first_byte=20, idle=0.1)
    given_up = threading.Event()

    def script(peer: Peer) -> None:
        peer.head()
        assert given_up.wait(20)

    with upstream(script) as server:
        with pytest.raises(UpstreamFailure) as caught:
            transport.send(UpstreamRequest("POST", server.url, (), BIG), limits, Call())
        given_up.set()
    assert caught.value.error_type == "upstream_timeout"
    assert caught.value.message == f"{server.name} took no more of the request for 0.1 s"


def test_an_upstream_that_never_completes_a_connection_is_given_up(transport: Transport) -> None:
    limits = Timeouts(connect=0.1, first_byte=20, idle=20)
    with upstream(Peer.wait_for_end) as server:
        url = server.url.replace("http:", "https:")
        with pytest.raises(UpstreamFailure) as caught:
            exchange(transport, url, Call(), limits)
    assert caught.value.error_type == "upstream_timeout"
    assert caught.value.message == f"connection to {server.name} not made within 0.1 s"


def test_a_call_that_was_cancelled_does_not_begin(transport: Transport) -> None:
    call = Call()
    call.cancel()
    call.cancel()
    with upstream() as server, pytest.raises(Cancelled):
        exchange(transport, server.url, call)
    assert server.connections == 0


@pytest.mark.parametrize("first", [b"", HEAD, HEAD + b"1\r\nx\r\n"])
def test_cancelling_wakes_a_call_that_waits(transport: Transport, first: bytes) -> None:
    call = Call()
    with upstream(saying(first, call.cancel)) as server, pytest.raises(Cancelled):
        exchange(transport, server.url, call)


def test_cancelling_wakes_a_call_that_connects(transport: Transport) -> None:
    call = Call()
    with upstream(lambda peer: call.cancel()) as server, pytest.raises(Cancelled):
        exchange(transport, server.url.replace("http:", "https:"), call)


def test_cancelling_wakes_a_call_that_sends(transport: Transport) -> None:
    call = Call()
    ended = threading.Event()

    def script(peer: Peer) -> None:
        peer.head()
        call.cancel()
        assert ended.wait(20)

    with upstream(script) as server:
        with pytest.raises(Cancelled):
            transport.send(UpstreamRequest("POST", server.url, (), BIG), LONG, call)
        ended.set()


def test_cancelling_stops_a_stream_that_never_pauses(transport: Transport) -> None:
    call = Call()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(HEAD)
        piece = b"2000\r\n" + bytes(0x2000) + b"\r\n"
        try:
            for number in range(1_000_000):
                peer.send(piece)
                if number == 100:
                    call.cancel()
        except ConnectionError:
            return

    with upstream(script) as server, pytest.raises(Cancelled):
        exchange(transport, server.url, call)


def test_cancelling_after_the_end_changes_nothing(transport: Transport) -> None:
    def script(peer: Peer) -> None:
        for _ in range(2):
            peer.request()
            peer.answer()

    with upstream(script) as server:
        call = Call()
        assert exchange(transport, server.url, call) == b"ok"
        call.cancel()
        assert exchange(transport, server.url, Call()) == b"ok"
        assert server.connections == 1


def close(client: socket.socket) -> None:
    client.close()


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("leave", [close, reset])
@pytest.mark.parametrize("first", [b"", HEAD, HEAD + b"1\r\nx\r\n"])
def test_a_client_that_leaves_ends_the_wait(
    transport: Transport, first: bytes, leave: Callable[[socket.socket], None]
) -> None:
    served, client = pair()
    script = saying(first, lambda: leave(client))
    with served, upstream(script) as server, pytest.raises(ClientGone):
        exchange(transport, server.url, Call(served))


def test_a_client_that_leaves_ends_connecting_and_sending(transport: Transport) -> None:
    served, client = pair()
    with served, upstream(lambda peer: client.close()) as server, pytest.raises(ClientGone):
        exchange(transport, server.url.replace("http:", "https:"), Call(served))

    served, client = pair()
    noticed = threading.Event()

    def script(peer: Peer) -> None:
        peer.head()
        client.close()
        assert noticed.wait(20)

    with served, upstream(script) as server:
        with pytest.raises(ClientGone):
            transport.send(UpstreamRequest("POST", server.url, (), BIG), LONG, Call(served))
        noticed.set()


def test_a_client_whose_socket_is_closed_here_has_gone(transport: Transport) -> None:
    served, client = pair()
    served.close()
    with client, upstream() as server, pytest.raises(ClientGone):
        exchange(transport, server.url, Call(served))


def test_a_client_that_leaves_is_noticed_though_the_stream_never_pauses(
    transport: Transport,
) -> None:
    served, client = pair()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(HEAD)
        piece = b"2000\r\n" + bytes(0x2000) + b"\r\n"
        try:
            for number in range(1_000_000):
                peer.send(piece)
                if number == 100:
                    client.close()
        except ConnectionError:
            return

    with served, upstream(script) as server, pytest.raises(ClientGone):
        exchange(transport, server.url, Call(served))


def test_a_client_that_sends_ahead_is_not_taken_for_gone(transport: Transport) -> None:
    served, client = pair()
    client.sendall(b"GET /next HTTP/1.1\r\n")

    def script(peer: Peer) -> None:
        peer.request()
        client.close()
        peer.answer(b"whole")

    with served, upstream(script) as server:
        assert exchange(transport, server.url, Call(served)) == b"whole"
        assert served.recv(3) == b"GET"


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_sockets_with_high_numbers_are_watched_too(transport: Transport) -> None:
    served, client = pair()
    with served:
        high = socket.socket(fileno=fcntl.fcntl(served.fileno(), fcntl.F_DUPFD, 1500))
    with high, upstream(saying(HEAD, client.close)) as server, pytest.raises(ClientGone):
        exchange(transport, server.url, Call(high))


def test_where_there_is_no_poll_select_does() -> None:
    here, there = socket.socketpair()
    with here, there:
        poller = SelectPoller()
        poller.register(here.fileno(), READABLE)
        assert poller.poll(0) == []
        there.send(b"x")
        assert poller.poll(20_000) == [(here.fileno(), READABLE)]
        poller.register(here.fileno(), READABLE | WRITABLE)
        assert poller.poll(20_000) == [(here.fileno(), READABLE | WRITABLE)]
        poller.unregister(here.fileno())
        poller.register(there.fileno(), READABLE)
        assert poller.poll(0) == []


def test_hundreds_of_threads_share_one_transport(transport: Transport) -> None:
    faults: list[str] = []

    def serve(peer: Peer) -> None:
        while True:
            try:
                head = peer.head()
            except AssertionError:
                return
            path = head.split(b" ")[1]
            peer.body(2)
            peer.answer(path * 100)

    def ask(server: Upstream, number: int) -> None:
        for turn in range(5):
            path = f"/{number}/{turn}"
            if exchange(transport, server.url + path, Call()) != path.encode() * 100:
                faults.append(path)

    with upstream(*[serve] * 200) as server:
        threads = [threading.Thread(target=ask, args=(server, n)) for n in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        transport.close()
    assert faults == []
    assert server.connections < 1000
