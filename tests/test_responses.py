"""What goes to a client as an answer: its head, and what is together with it."""

from __future__ import annotations

import email.utils
import socket
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn import SERVER
from gunicorn.config import Config
from gunicorn.http import errors, wsgi

from servers import DEADLINE
from xgw.cli.receiving import ClientSocket
from xgw.cli.responses import TOGETHER_BYTES, Response

JSON = ("Content-Type", "application/json")


class Sent(ClientSocket):
    """A client's socket that notes what is sent in one piece."""

    pieces: list[bytes]

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        self.pieces.append(bytes(data))
        super().sendall(data, flags)


@pytest.fixture
def sock() -> Iterator[Sent]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(DEADLINE)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    with Sent.adopt(ours) as sent, theirs:
        assert isinstance(sent, Sent)
        sent.pieces = []
        yield sent


def request(method: str = "POST", version: tuple[int, int] = (1, 1)) -> Any:
    return SimpleNamespace(
        method=method, version=version, was_read=True, should_close=lambda: version < (1, 1)
    )


def without_date(answer: bytes) -> bytes:
    head, empty, body = answer.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    date = next(line for line in lines if line.startswith(b"Date: "))
    assert email.utils.parsedate_to_datetime(date[6:].decode()).tzinfo is not None
    assert date.endswith(b" GMT")
    return b"\r\n".join(line for line in lines if line != date) + empty + body


def spelled(kind: type[Any], sock: Sent, asked: Any, status: str, headers: Any, body: Any) -> bytes:
    """What a class of responses sends."""
    sock.pieces.clear()
    response = kind(asked, sock, Config())
    response.start_response(status, headers)
    for block in body:
        response.write(block)
    response.close()
    return without_date(b"".join(sock.pieces))


@pytest.mark.parametrize("version", [(1, 0), (1, 1)])
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "204 No Content", "304 X", "499 Y"])
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([JSON, ("Content-Length", "2")], [b"{}"]),
        ([JSON, ("content-length", " 2\t")], [b"{", b"}"]),
        ([("Content-Length", "2"), ("Connection", "close")], [b"{}"]),
        ([("Content-Length", "2"), ("X", "\xe4 ~\t!")], [b"{}{}"]),
        ([("X-100%s%", "%d %"), ("Content-Length", "2")], [b"{}"]),
        ([("Content-Length", "2"), *[("X", str(n)) for n in range(99)]], [b"{}"]),
        ([("Content-Length", "0")], [b""]),
        ([("Content-Length", "0")], []),
        ([("Content-Length", "2"), ("Content-Length", "2")], [b"{}"]),
        ([JSON], [b"{", b"", b"}"]),
        ([("Content-Length", "9"), ("X", "")], [b"{}"]),
    ],
)
def test_an_answer_has_the_bytes_that_gunicorn_would_send(
    sock: Sent,
    method: str,
    version: tuple[int, int],
    status: str,
    headers: list[tuple[str, str]],
    body: list[bytes],
) -> None:
    asked = request(method, version)
    theirs = spelled(wsgi.Response, sock, asked, status, headers, body)
    assert spelled(Response, sock, asked, status, headers, body) == theirs
    assert f"\r\nServer: {SERVER}\r\n".encode() in theirs


@pytest.mark.parametrize(
    ("size", "pieces"), [(0, 1), (1, 1), (TOGETHER_BYTES, 1), (TOGETHER_BYTES + 1, 2)]
)
def test_a_head_goes_out_with_a_body_that_is_not_long(sock: Sent, size: int, pieces: int) -> None:
    body = b"x" * size
    headers = [("Content-Length", str(size))]
    assert spelled(Response, sock, request(), "200 OK", headers, [body]).endswith(body)
    assert len(sock.pieces) == pieces


@pytest.mark.parametrize(
    ("name", "value"), [("X", "a\r\nY: b"), ("X", "a\nb"), ("X", "\0"), ("X", "\u2026")]
)
def test_a_header_value_that_cannot_be_sent(sock: Sent, name: str, value: str) -> None:
    response = Response(request(), sock, Config())
    with pytest.raises(errors.InvalidResponseHeader):
        response.start_response("200 OK", [("Content-Length", "0"), (name, value)])
    assert not sock.pieces


@pytest.mark.parametrize("name", ["X:", "X Y", "X\r\n", ""])
def test_a_header_name_that_cannot_be_sent(sock: Sent, name: str) -> None:
    response = Response(request(), sock, Config())
    with pytest.raises(errors.InvalidResponseHeaderName):
        response.start_response("200 OK", [("Content-Length", "0"), (name, "v")])
    assert not sock.pieces


def test_an_answer_begins_once(sock: Sent) -> None:
    response = Response(request(), sock, Config())
    response.start_response("200 OK", [("Content-Length", "0")])
    with pytest.raises(AssertionError):
        response.start_response("200 OK", [("Content-Length", "0")])


def test_an_answer_may_become_another_one_before_it_has_begun(sock: Sent) -> None:
    response = Response(request(), sock, Config())
    response.start_response("200 OK", [("Content-Length", "9"), ("X", "first")])
    try:
        raise RuntimeError("a fault")
    except RuntimeError:
        response.start_response("500 Fault", [("Content-Length", "2")], sys.exc_info())
    response.write(b"{}")
    response.close()
    sent = without_date(b"".join(sock.pieces))
    assert sent.startswith(b"HTTP/1.1 500 Fault\r\n")
    assert sent.endswith(b"\r\nContent-Length: 2\r\n\r\n{}")
    assert b"first" not in sent


def test_an_answer_that_has_begun_stays_what_it_is(sock: Sent) -> None:
    response = Response(request(), sock, Config())
    response.start_response("200 OK", [("Content-Length", "2")])
    response.write(b"{}")
    fault = RuntimeError("a fault")
    with pytest.raises(RuntimeError, match="a fault"):
        response.start_response("500 Fault", [("Content-Length", "2")], (RuntimeError, fault, None))
    assert len(sock.pieces) == 1
