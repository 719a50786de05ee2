"""What is done while an upstream works: once it has the request, or as soon as it lets us wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from scripted_upstream import DEADLINE, LONG, Peer, ask, read_all, upstream
from xgw.providers.transport import Call, Transport, UpstreamRequest
from xgw.values import UpstreamFailure

BIG = bytes(50_000_000)


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport()
    yield made
    made.close()


def test_the_upstream_has_the_request_by_then(transport: Transport) -> None:
    came, done = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.answer()
        peer.request()
        came.set()
        assert done.wait(DEADLINE), "nothing is done while the upstream works"
        peer.answer()

    def meanwhile() -> None:
        assert came.wait(DEADLINE), "the upstream does not have the request"
        done.set()

    with upstream(script) as server:
        ask(transport, server.url)
        response = transport.send(
            UpstreamRequest("POST", server.url, (), b"{}"), LONG, Call(), meanwhile
        )
        assert read_all(response) == b"ok"
        assert server.connections == 1


def test_an_upstream_that_takes_no_more_is_not_waited_for(transport: Transport) -> None:
    done = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.answer()
        head = peer.head()
        assert done.wait(DEADLINE)
        peer.body(len(BIG))
        assert b"Content-Length: 50000000" in head
        peer.answer()

    with upstream(script) as server:
        ask(transport, server.url)
        response = transport.send(
            UpstreamRequest("POST", server.url, (), BIG), LONG, Call(), done.set
        )
        assert read_all(response) == b"ok"
        assert server.connections == 1


def test_a_connection_is_not_waited_for(transport: Transport) -> None:
    done = threading.Event()

    def script(peer: Peer) -> None:
        assert done.wait(DEADLINE)

    with upstream(script) as server:
        url = server.url.replace("http:", "https:")
        with pytest.raises(UpstreamFailure) as caught:
            transport.send(UpstreamRequest("POST", url), LONG, Call(), done.set)
    assert caught.value.error_type == "upstream_connection"
