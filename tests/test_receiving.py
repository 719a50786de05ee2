"""What a client's socket sends: the head of an answer together with its body."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from servers import DEADLINE
from xgw.cli.receiving import TOGETHER_BYTES, ClientSocket

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.fixture
def ends() -> Iterator[tuple[ClientSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(DEADLINE)
    with ClientSocket.adopt(ours) as server, theirs as client:
        yield server, client


def has_something(client: socket.socket) -> bool:
    return bool(select.select([client], [], [], 0)[0])


def received(client: socket.socket, size: int) -> bytes:
    taken = b""
    while len(taken) < size and (block := client.recv(size)):
        taken += block
    return taken


@pytest.mark.parametrize("size", [1, TOGETHER_BYTES, TOGETHER_BYTES + 1])
def test_a_head_that_is_held_goes_out_with_what_comes_next(
    ends: tuple[ClientSocket, socket.socket], size: int
) -> None:
    server, client = ends
    body = bytes(index % 251 for index in range(size))
    server.hold()
    server.sendall(HEAD)
    assert not has_something(client)
    server.sendall(body)
    assert received(client, len(HEAD) + size) == HEAD + body
    server.sendall(b"more")
    assert received(client, 4) == b"more"
    assert not has_something(client)
