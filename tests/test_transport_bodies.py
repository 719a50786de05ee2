"""The relay's transport: every kind of body, and those that are broken."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator

import pytest

from scripted_upstream import LONG, Peer, answering, ask, upstream
from xgw.providers.transport import Call, Transport, UpstreamRequest
from xgw.providers.transport.framing import HeadReader, new_framing
from xgw.values import UpstreamFailure

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIPPED = OK + b"Content-Encoding: gzip\r\n\r\n"
TEXT = b"data: the quick brown fox\n\n" * 9000


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport()
    yield made
    made.close()


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def raw_deflate(text: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(text) + deflater.flush()


BODIES = {
    "length": (OK + b"Content-Length: 5\r\n\r\nhello", b"hello"),
    "same length twice": (OK + b"Content-Length: 5\r\nContent-Length: 5, 5\r\n\r\nhello", b"hello"),
    "length 0": (OK + b"Content-Length: 0\r\n\r\n", b""),
    "until close": (OK + b"\r\nhello", b"hello"),
    "until close, empty": (OK + b"\r\n", b""),
    "HTTP/1.0": (b"HTTP/1.0 200\r\n\r\nhello", b"hello"),
    "identity coding": (OK + b"Transfer-Encoding: identity\r\n\r\nhello", b"hello"),
    "chunks": (CHUNKED + chunked(b"he", b"llo"), b"hello"),
    "extensions and trailers": (
        CHUNKED + b'002;a="b";c\r\nhe\r\n3 \r\nllo\r\n0;x\r\nX-Sum: 1\r\nX-B: 2\r\n\r\n',
        b"hello",
    ),
    "chunks beat a length": (
        OK + b"Content-Length: 3\r\nTransfer-Encoding: Chunked\r\n\r\n" + chunked(b"hello"),
        b"hello",
    ),
    "informational answers first": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"hello",
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
    "gzip": (GZIPPED + gzip.compress(TEXT), TEXT),
    "gzip of two members": (GZIPPED + gzip.compress(b"he") + gzip.compress(b"llo"), b"hello"),
    "gzip, padded": (GZIPPED + gzip.compress(b"hello") + bytes(20), b"hello"),
    "gzip in chunks": (
        OK
        + b"Content-Encoding: x-gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
        # A piece ends inside the first member's magic number, another inside the second's.
        + chunked(gzip.compress(b"he")[:1], gzip.compress(b"he")[1:] + b"\x1f", b"\x8b")[:-5]
        + chunked(gzip.compress(b"llo")[2:]),
        b"hello",
    ),
    "gzip, nothing in it": (GZIPPED, b""),
    "plain text labelled gzip": (GZIPPED + b'{"plain": 1}', b'{"plain": 1}'),
    "one plain byte labelled gzip": (GZIPPED + b"\x1f", b"\x1f"),
    "deflate": (OK + b"Content-Encoding: deflate\r\n\r\n" + zlib.compress(TEXT), TEXT),
    "deflate, bare": (OK + b"Content-Encoding: deflate\r\n\r\n" + raw_deflate(TEXT), TEXT),
    "identity": (OK + b"Content-Encoding: identity\r\n\r\nhello", b"hello"),
}


@pytest.mark.parametrize("case", BODIES)
def test_every_kind_of_body_is_read(transport: Transport, case: str) -> None:
    raw, body = BODIES[case]
    with upstream(answering(raw)) as server:
        assert ask(transport, server.url) == body


@pytest.mark.parametrize("case", BODIES)
def test_bytes_one_at_a_time_make_the_same_body(case: str) -> None:
    raw, _ = BODIES[case]
    raw = raw[:3000]
    whole, single = HeadReader(), HeadReader()
    assert whole.feed(raw) == [single.feed(raw[i : i + 1]) for i in range(len(raw))][-1]
    assert whole.head is not None
    assert single.head is not None
    at_once, by_byte = new_framing(whole.head, "POST"), new_framing(single.head, "POST")
    rest = single.rest
    assert at_once.feed(whole.rest) == b"".join(
        by_byte.feed(rest[i : i + 1]) for i in range(len(rest))
    )
    assert at_once.ended == by_byte.ended


def test_the_answer_to_head_has_no_body(transport: Transport) -> None:
    with upstream(answering(OK + b"Content-Length: 5\r\n\r\n")) as server:
        assert ask(transport, server.url, b"", method="HEAD") == b""


BROKEN = {
    "length not reached": (OK + b"Content-Length: 9\r\n\r\nhello", "upstream_truncated"),
    "chunk cut": (CHUNKED + b"9\r\nhello", "upstream_truncated"),
    "last chunk missing": (CHUNKED + b"5\r\nhello\r\n", "upstream_truncated"),
    "trailer cut": (CHUNKED + b"0\r\nX: 1\r\n", "upstream_truncated"),
    "head cut": (OK + b"Content-Ty", "upstream_truncated"),
    "gzip cut": (GZIPPED + gzip.compress(TEXT)[:-9], "upstream_truncated"),
    "nothing": (b"", "upstream_connection"),
    "only 100": (b"HTTP/1.1 100 Continue\r\n\r\n", "upstream_truncated"),
    "differing lengths": (
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "upstream_protocol_error",
    ),
    "negative length": (OK + b"Content-Length: -5\r\n\r\nhello", "upstream_protocol_error"),
    "length with a sign": (OK + b"Content-Length: +5\r\n\r\nhello", "upstream_protocol_error"),
    "chunk size not hex": (CHUNKED + b"xyz\r\nhello\r\n", "upstream_protocol_error"),
    "chunk size with a prefix": (CHUNKED + b"0x5\r\nhello\r\n", "upstream_protocol_error"),
    "chunk size negative": (CHUNKED + b"-5\r\nhello\r\n", "upstream_protocol_error"),
    "chunk size absurd": (CHUNKED + b"f" * 17 + b"\r\nhello", "upstream_protocol_error"),
    "chunk longer than its size": (CHUNKED + b"3\r\nhello\r\n", "upstream_protocol_error"),
    "endless extension": (CHUNKED + b"5;" + b"x" * 9000, "upstream_protocol_error"),
    "endless trailer": (CHUNKED + b"0\r\n" + b"X: 1\r\n" * 20_000, "upstream_protocol_error"),
    "unknown transfer coding": (
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        "upstream_protocol_error",
    ),
    "head too long": (OK + b"X: " + b"x" * 70_000, "upstream_protocol_error"),
    "endless 100": (b"HTTP/1.1 100 Continue\r\n\r\n" * 4000, "upstream_protocol_error"),
    "not HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n", "upstream_protocol_error"),
    "HTTP/2": (b"HTTP/2 200\r\n\r\n", "upstream_protocol_error"),
    "TLS": (b"\x15\x03\x03\x00\x02\x02\x16", "upstream_protocol_error"),
    "bare line feeds": (b"HTTP/1.1 200 OK\n\nhello", "upstream_protocol_error"),
    "space before the colon": (OK + b"X-A : 1\r\n\r\n", "upstream_protocol_error"),
    "folded header": (OK + b"X-A: 1\r\n 2\r\n\r\n", "upstream_protocol_error"),
    "NUL in a header": (OK + b"X-A: \0\r\n\r\n", "upstream_protocol_error"),
    "no status": (b"HTTP/1.1 OK\r\n\r\n", "upstream_protocol_error"),
    "switching protocols": (b"HTTP/1.1 101 Hi\r\n\r\n", "upstream_protocol_error"),
    "brotli": (OK + b"Content-Encoding: br\r\n\r\nx", "upstream_protocol_error"),
    "gzip twice": (OK + b"Content-Encoding: gzip, gzip\r\n\r\nx", "upstream_protocol_error"),
    "corrupt gzip": (GZIPPED + b"\x1f\x8b\x08\x00rubbish....", "upstream_protocol_error"),
    "wrong checksum": (
        GZIPPED + gzip.compress(b"x" * 99)[:-8] + b"12345678",
        "upstream_protocol_error",
    ),
    "rubbish behind gzip": (GZIPPED + gzip.compress(b"x") + b"more", "upstream_protocol_error"),
    "corrupt deflate": (
        OK + b"Content-Encoding: deflate\r\n\r\n\xff\xff",
        "upstream_protocol_error",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_answer_is_never_taken_for_a_whole_one(transport: Transport, case: str) -> None:
    raw, error_type = BROKEN[case]
    with upstream(answering(raw)) as server, pytest.raises(UpstreamFailure) as caught:
        ask(transport, server.url)
    assert caught.value.error_type == error_type
    assert caught.value.message.startswith(f"{server.name} ")
    assert "\n" not in caught.value.message


PACKED = OK + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
FAULTY = {
    "size not hex": (CHUNKED + chunked(b"he", b"llo")[:-5] + b"zz\r\n", b"hello"),
    "longer than its size": (CHUNKED + chunked(b"he")[:-5] + b"3\r\nlloo\r\n", b"hello"),
    "endless trailer": (CHUNKED + chunked(b"hello")[:-2] + b"X: 1\r\n" * 20_000, b"hello"),
    "packed": (PACKED + chunked(gzip.compress(b"hello"))[:-5] + b"zz\r\n", b"hello"),
}


@pytest.mark.parametrize("case", FAULTY)
def test_what_came_before_a_broken_chunk_is_read_first(transport: Transport, case: str) -> None:
    """The upstream stays: nobody waits for more."""
    raw, expected = FAULTY[case]

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(raw)
        peer.wait_for_end()

    got: list[bytes] = []
    with upstream(script) as server:
        response = transport.send(UpstreamRequest("POST", server.url), LONG, Call())
        with pytest.raises(UpstreamFailure) as caught:
            got.extend(iter(lambda: response.read() or b"", b""))
    assert (b"".join(got), caught.value.error_type) == (expected, "upstream_protocol_error")


def test_a_failure_in_the_body_knows_status_and_headers(transport: Transport) -> None:
    raw = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Encoding: zstd\r\n\r\nx"
    with upstream(answering(raw)) as server:
        response = transport.send(UpstreamRequest("POST", server.url), LONG, Call())
        assert response.status == 503
        with pytest.raises(UpstreamFailure, match='the content encoding "zstd"') as caught:
            response.read()
    assert caught.value.http_status == 503
    assert ("Retry-After", "7") in caught.value.headers


def test_a_compression_bomb_is_unpacked_a_piece_at_a_time(transport: Transport) -> None:
    bomb = gzip.compress(bytes(30_000_000), 9)

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(GZIPPED + bomb)
        peer.wait_for_end()

    with upstream(script) as server:
        response = transport.send(UpstreamRequest("POST", server.url), LONG, Call())
        for _ in range(50):
            piece = response.read()
            assert piece is not None
            assert 0 < len(piece) <= 65536
        response.close()
