"""Heads that come again: what is the same head, and of which requests one is kept."""

from __future__ import annotations

from typing import Any

import pytest
from gunicorn.config import Config

from xgw.cli.connections import ClientParser
from xgw.cli.heads import LONGEST_KEPT
from xgw.cli.receiving import Unreader

LINES = ["POST /v1/x?y=1 HTTP/1.1", "Host: a", "Content-Length: {}", "X-One: 1", "X-Two: 2"]


def head(*lines: str, length: str = "2") -> bytes:
    text = "\r\n".join([*(lines or LINES), "", ""])
    return text.format(length).encode("latin-1")


class Requests:
    """The requests of one connection, parsed from their bytes alone."""

    def __init__(self) -> None:
        config = Config()
        config.set("limit_request_field_size", 65536)
        self._parser = ClientParser(config, [], ("127.0.0.1", 1))
        self._parser.unreader = Unreader(None)

    def read(self, data: bytes) -> Any:
        self._parser.mesg = None
        self._parser.unreader.take_buffered()
        self._parser.begin(data)
        return next(self._parser)


def facts(request: Any) -> dict[str, Any]:
    """What a request says, without what it was made of."""
    unlike = ("body", "known", "length", "unreader", "cfg", "req_number", "max_buffer_headers")
    return {name: value for name, value in vars(request).items() if name not in unlike}


@pytest.mark.parametrize("length", ["0", "2", "3", "007", "123456789"])
def test_a_known_head_makes_the_request_that_a_parser_would(length: str) -> None:
    requests = Requests()
    known = requests.read(head(length="12")).known
    again = requests.read(head(length=length) + b"rest")
    parsed = Requests().read(head(length=length))
    assert again.known is known is not None
    assert facts(again) == facts(parsed)
    assert again.length == length
    assert again.body.reader.ended is parsed.body.reader.ended
    assert again.body.read(0 if length == "0" else 1) == (b"" if length == "0" else b"r")
    assert again.should_close() is not again.was_read


OTHERS = {
    "another header's value": head(*LINES[:3], "X-One: 2", LINES[4]),
    "another name": head(*LINES[:3], "x-One: 1", LINES[4]),
    "one more header": head(*LINES, "X-Three: 3"),
    "one less": head(*LINES[:4]),
    "another order": head(*LINES[:3], LINES[4], LINES[3]),
    "another path": head("POST /v1/x?y=2 HTTP/1.1", *LINES[1:]),
    "another version": head("POST /v1/x?y=1 HTTP/1.0", *LINES[1:]),
    "more blanks": head(LINES[0], LINES[1], "Content-Length:  {}", *LINES[3:]),
    "blanks behind": head(LINES[0], LINES[1], "Content-Length: {} ", *LINES[3:]),
    "ten digits": head(length="1234567890"),
    "an empty line ahead": b"\r\n" + head(),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_any_other_byte_makes_another_head(other: bytes) -> None:
    requests = Requests()
    known = requests.read(head()).known
    request = requests.read(other)
    assert request.known is not known
    assert facts(request) == facts(Requests().read(other))


@pytest.mark.parametrize("length", ["", "+2", "-2", "2,2", "2 2", "0x2", "\xb2", "2_0", "٢"])
def test_what_is_no_length_is_refused_with_a_known_head_too(length: str) -> None:
    requests = Requests()
    assert requests.read(head()).known is not None
    hostile = "\r\n".join([*LINES, "", ""]).format(length).encode("utf-8")
    with pytest.raises(Exception, match=r"(?i)content-length"):
        requests.read(hostile)


@pytest.mark.parametrize(
    "lines",
    [
        ["GET / HTTP/1.1", "Content-Length: 2"],
        ["CONNECT / HTTP/1.1", "Content-Length: 2"],
        ["POST / HTTP/1.0", "Content-Length: 2"],
        ["POST / HTTP/1.1", "X: 2"],
        ["POST / HTTP/1.1", "Transfer-Encoding: chunked"],
        ["POST / HTTP/1.1", "Content-Length: 2", "Expect: 100-continue"],
        ["POST / HTTP/1.1", "Content-Length: 2", "Connection: close"],
        ["POST / HTTP/1.1", "Content-Length: 2", "Connection: Upgrade", "Upgrade: websocket"],
        ["POST / HTTP/1.1", "Content-Length: 2", f"X: {'x' * LONGEST_KEPT}"],
    ],
)
def test_of_some_requests_no_head_is_kept(lines: list[str]) -> None:
    assert Requests().read(head(*lines)).known is None


def test_what_only_looks_like_a_length_is_none() -> None:
    requests = Requests()
    lines = [*LINES[:2], "X-Content-Length: 7", "Y: \tContent-Length: 8", *LINES[2:]]
    assert requests.read(head(*lines, length="1")).known is not None
    request = requests.read(head(*lines, length="2"))
    assert dict(request.headers)["CONTENT-LENGTH"] == "2"
    assert dict(request.headers)["X-CONTENT-LENGTH"] == "7"
