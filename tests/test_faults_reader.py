"""A client that stops reading while much comes for it: it slows the upstream, not our memory."""

from __future__ import annotations

import http.client
import select
import socket
import threading
from collections.abc import Iterator

import orjson
import pytest

from faults import Running, running
from gateway_fixtures import CHAT, Reading
from scripted_model import DONE, Asked, chat, delta, event, finish, stream
from scripted_upstream import Peer
from servers import DEADLINE, eventually

MIB = 1 << 20
GROWTH = 4 * MIB
TOTAL = 100_000_000
OWN_BUFFER = 128 << 10
STANDS_STILL = 1.0
"""Seconds in which nothing more is taken: by then every buffer on the way is full."""


class Flood:
    """Sends 100 MB of events, and tells when nobody takes any more of them."""

    def __init__(self, piece: int) -> None:
        self._block = event(delta("x" * piece))
        self.stuck = threading.Event()
        self.sent = 0

    def __call__(self, peer: Peer, _: Asked) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        while self.sent < TOTAL:
            self._send(peer.sock, self._block)
        self._send(peer.sock, event(finish()) + DONE)
        peer.sock.close()

    def _send(self, sock: socket.socket, block: bytes) -> None:
        view = memoryview(block)
        while view:
            _, ready, _ = select.select([], [sock], [], STANDS_STILL)
            if not ready:
                self.stuck.set()
                select.select([], [sock], [], 2 * DEADLINE)
            taken = sock.send(view, socket.MSG_DONTWAIT)
            self.sent += taken
            view = view[taken:]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that has relayed a long answer before: what it needs once, it has."""
    with running(tmp_path_factory.mktemp("reader")) as gate:
        gate.model.will(stream(*[delta("x" * 4000)] * 1000, finish(), DONE))
        assert gate.post(chat(stream=True)).body.endswith(DONE)
        yield gate


class Slow(Reading):
    """An answer that is read as far as a test says."""

    def take(self, size: int) -> None:
        while len(self.body) < size:
            self.body += self._response.read1(65536)


def ask(gate: Running) -> Slow:
    """An answer for a client whose own buffer, which is not our memory, takes little."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, OWN_BUFFER)
    sock.settimeout(DEADLINE)
    sock.connect(gate.address)
    connection = http.client.HTTPConnection(*gate.address)
    connection.sock = sock
    headers = {"Content-Type": "application/json"}
    connection.request("POST", CHAT, orjson.dumps(chat(stream=True)), headers)
    return Slow(connection)


@pytest.mark.parametrize("before_it_stops", [0, 1_000_000])
@pytest.mark.parametrize("piece", [40, 4000, 400_000])
def test_a_reader_that_stands_still_costs_no_memory(
    gate: Running, piece: int, before_it_stops: int
) -> None:
    flood = Flood(piece)
    gate.model.will(flood)
    before = gate.memory()
    reading = ask(gate)
    if before_it_stops:
        reading.take(before_it_stops)
        before = gate.memory()
    assert flood.stuck.wait(2 * DEADLINE)
    grown = gate.memory() - before
    reading.leave()
    assert grown < GROWTH
    eventually(lambda: gate.turn(reading)["ended_at"])
    turn = gate.turn(reading)
    assert (turn["status"], turn["ended_by"]) == ("cancelled", "client_disconnect")
    (request,) = gate.requests(turn)
    assert request["bytes_received"] < before_it_stops + MIB
