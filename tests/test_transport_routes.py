"""The transport's way to an upstream: proxies, tunnels and TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripted_upstream import CERTIFICATE, LONG, Peer, answering, ask, read_all, upstream
from xgw.providers.transport import Call, Cancelled, Transport, UpstreamRequest
from xgw.values import UpstreamFailure


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport()
    yield made
    made.close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "upstream.pem"
    path.write_text(CERTIFICATE)
    return path


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    return certificate


def test_plain_http_goes_through_the_proxy_in_whole_urls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads = []

    def proxy(peer: Peer) -> None:
        heads.append(peer.request()[0])
        peer.answer()

    with upstream(proxy) as server, upstream(answering(b"HTTP/1.1 200 OK\r\n\r\nself")) as own:
        monkeypatch.setenv("HTTP_PROXY", f"http://me:p%40ss@{server.name}")
        monkeypatch.setenv("NO_PROXY", "inside.test,127.0.0.1")
        transport = Transport()
        assert ask(transport, "http://upstream.test/v1/chat?x=1") == b"ok"
        assert ask(transport, own.url) == b"self"
        transport.close()
    lines = heads[0].split(b"\r\n")
    assert lines[0] == b"POST http://upstream.test/v1/chat?x=1 HTTP/1.1"
    assert b"Host: upstream.test" in lines
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==" in lines


def test_a_direct_request_goes_past_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with upstream(answering(b"HTTP/1.1 200 OK\r\n\r\nself")) as own:
        request = UpstreamRequest("GET", own.url, direct=True)
        assert read_all(Transport().send(request, LONG, Call())) == b"self"


@pytest.mark.parametrize("address", ["socks5://u:secret@127.0.0.1:9", "http://u:secret@:x"])
def test_a_proxy_that_cannot_be_used_says_so(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", address)
    with pytest.raises(UpstreamFailure, match="proxy set for https") as caught:
        ask(Transport(), "https://upstream.test/")
    assert "secret" not in caught.value.message


def test_https_goes_through_a_tunnel(monkeypatch: pytest.MonkeyPatch, trusted: Path) -> None:
    heads = []

    def proxy(peer: Peer) -> None:
        heads.append(peer.head())
        peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        peer.start_tls(trusted)
        for _ in range(2):
            heads.append(peer.request()[0])
            peer.answer()

    with upstream(proxy) as server:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:pass@{server.name}")
        transport = Transport()
        assert ask(transport, "https://upstream.test/v1") == b"ok"
        assert ask(transport, "https://upstream.test/v1") == b"ok"
        transport.close()
    assert heads[0].startswith(b"CONNECT upstream.test:443 HTTP/1.")
    assert b"Proxy-Authorization: Basic bWU6cGFzcw==" in heads[0]
    assert heads[1].startswith(b"POST /v1 HTTP/1.1\r\nHost: upstream.test\r\n")
    assert b"Proxy-Authorization" not in heads[1]


def test_a_tunnel_that_is_refused_says_by_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    def proxy(peer: Peer) -> None:
        peer.head()
        peer.send(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")

    with upstream(proxy) as server:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:pass@{server.name}")
        with pytest.raises(UpstreamFailure) as caught:
            ask(Transport(), "https://upstream.test/v1")
    assert caught.value.error_type == "upstream_connection"
    assert caught.value.message == (
        f"connection to upstream.test:443 by the proxy {server.name} failed: "
        "Tunnel connection failed: 407 Proxy Authentication Required"
    )


def test_tls_is_trusted_as_the_system_does(transport: Transport, trusted: Path) -> None:
    body = bytes(range(256)) * 20_000

    def script(peer: Peer) -> None:
        peer.start_tls(trusted)
        for _ in range(3):
            _, received = peer.request()
            peer.answer(received)

    with upstream(script) as server:
        url = server.url.replace("http:", "https:")
        for sent in (body, b"{}", body):
            assert ask(transport, url, sent) == sent
        assert server.connections == 1


def test_a_certificate_nobody_vouches_for_is_refused(
    transport: Transport, certificate: Path
) -> None:
    def script(peer: Peer) -> None:
        with pytest.raises(OSError, match=r"(?i)unknown.ca|alert|closed|reset"):
            peer.start_tls(certificate)

    with upstream(script) as server, pytest.raises(UpstreamFailure) as caught:
        ask(transport, server.url.replace("http:", "https:"))
    assert caught.value.error_type == "upstream_connection"
    assert caught.value.message.startswith(f"TLS with {server.name} failed: self")


def test_an_upstream_without_tls_says_so(transport: Transport) -> None:
    def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with upstream(script) as server, pytest.raises(UpstreamFailure) as caught:
        ask(transport, server.url.replace("http:", "https:"))
    assert caught.value.message.startswith(f"TLS with {server.name} failed: ")


def test_cancelling_wakes_a_call_under_tls(transport: Transport, trusted: Path) -> None:
    call = Call()

    def script(peer: Peer) -> None:
        peer.start_tls(trusted)
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\nx")
        call.cancel()
        peer.wait_for_end()

    with upstream(script) as server:
        request = UpstreamRequest("POST", server.url.replace("http:", "https:"), (), b"{}")
        with pytest.raises(Cancelled):
            read_all(transport.send(request, LONG, call))
