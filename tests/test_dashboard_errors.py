"""Error pages, over real sockets: the dashboard answers in HTML whatever is wrong."""

from __future__ import annotations

import http.client
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Blueprint

from dashboard import Browser, Page
from gateway_fixtures import Gate, gate_and_model
from locking import holder
from scripted_model import chat, says
from servers import eventually, installed
from xgw import errors
from xgw.config import ClientKey, Server
from xgw.web.headers import CONTENT_SECURITY_POLICY
from xgw.web.pages.frame import FORM_BYTES
from xgw.web.words import sentence

TOKEN, KEY = "the-token-0001", "team-a-key"
LIMIT = FORM_BYTES + 1000
HOSTILE = "<script>alert(1)</script>\"'&"
HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec_WebSocket_Version": "13",
}


def _faults() -> Blueprint:
    """Pages that go wrong, as no page of ours does on purpose."""
    routes = Blueprint("faults", __name__)

    @routes.get("/ui/breaks")
    def breaks() -> str:
        raise ValueError("a secret detail")

    @routes.get("/ui/full")
    def full() -> str:
        raise errors.overloaded("too many watchers at once (the limit is 600)", retry_after=7)

    @routes.get("/ui/picky")
    def picky() -> str:
        raise errors.unprocessable(f"q: there is no word '{HOSTILE}' (character 1)", param="q")

    return routes


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    server = Server(token=TOKEN, max_body_bytes=LIMIT)
    keys = (ClientKey(key=KEY, project="team-a"),)
    with gate_and_model(tmp_path_factory.mktemp("errors"), server=server, keys=keys) as one:
        one.app.register_blueprint(_faults())
        yield one


@pytest.fixture
def stranger(gate: Gate) -> Browser:
    return Browser(gate.url)


@pytest.fixture
def browser(gate: Gate) -> Browser:
    browser = Browser(gate.url)
    browser.log_in(TOKEN)
    return browser


def assert_error_page(page: Page, status: int) -> None:
    """In the frame, with the policy of pages; says its status and leads on."""
    assert page.status == status
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "same-origin"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["content-length"] == str(len(page.body))
    assert page.title.startswith(f"{status} ")
    assert f" {status} " in f" {page.text} "
    assert "Traceback" not in page.text
    assert "/ui/" in page.links
    assert not page.all("script", src="")
    assert not [e for e in page.elements if any(a.startswith("on") for a in e.attributes)]
    assert not [e for e in page.elements if "style" in e.attributes or e.tag == "style"]


# -- each status -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/ui/nowhere", 404, "There is nothing at /ui/nowhere."),
        ("GET", "/ui/static/000000000000/js/nothing.js", 404, "no file 'js/nothing.js'."),
        ("GET", "/ui/socket", 400, "to be opened with ws:// or wss://. Check the address"),
        ("DELETE", "/ui/", 405, "DELETE is not possible at /ui/."),
        ("GET", "/ui/logout", 405, "GET is not possible at /ui/logout."),
        ("PATCH", "/", 405, "PATCH is not possible at /."),
        ("POST", "/favicon.ico", 405, "POST is not possible at /favicon.ico."),
        ("GET", "/ui/full", 503, "Too many watchers at once (the limit is 600). Wait a moment"),
        ("GET", "/ui/breaks", 500, "An internal error occurred; the server's log has it. Try"),
    ],
)
def test_what_a_page_says(browser: Browser, method: str, path: str, status: int, said: str) -> None:
    page = browser.open(path, method)
    assert_error_page(page, status)
    assert said in page.text


def test_headers_of_an_error_stay(browser: Browser) -> None:
    assert browser.open("/ui/full").headers["retry-after"] == "7"
    assert "GET" in browser.open("/ui/", "PUT").headers["allow"]


def test_a_fault_is_logged_and_not_told(browser: Browser, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="xgw"):
        page = browser.open("/ui/breaks?token=query-secret")
    assert_error_page(page, 500)
    assert "secret" not in page.body.decode()
    [record] = caplog.records
    assert record.getMessage() == "GET /ui/breaks failed"
    assert "query-secret" not in caplog.text


@pytest.mark.parametrize(
    "path",
    [
        "/ui/%3Cscript%3Ealert(1)%3C/script%3E%22'&",
        "/ui/picky",
        "/ui/static/x/%3Cscript%3Ealert(1)%3C/script%3E%22'&",
        "/ui/%e4%ff",
        "/ui/%00%0a%1b[31m",
    ],
)
def test_hostile_words_stay_words(browser: Browser, path: str) -> None:
    page = browser.open(path)
    assert_error_page(page, 422 if path == "/ui/picky" else 404)
    assert not page.all("script", src="")
    assert b"<script>alert" not in page.body
    if "script" in path or "picky" in path:
        assert "<script>alert(1)</script>" in page.text


def test_head_has_no_body(browser: Browser) -> None:
    page = browser.open("/ui/nowhere", "HEAD")
    assert (page.status, page.body) == (404, b"")
    assert page.headers["content-type"].startswith("text/html")


# -- forms -----------------------------------------------------------------------------------------


def test_a_form_that_is_too_large(browser: Browser) -> None:
    assert_error_page(browser.send("/ui/login", {"token": "x" * LIMIT}), 413)
    page = browser.send("/ui/login", {"token": "x" * (FORM_BYTES + 1)})
    assert_error_page(page, 413)
    assert "a form must not be over" in page.text.lower()
    assert browser.send("/ui/login", {"token": "x" * (FORM_BYTES - 100)}).status == 403


def test_a_form_that_is_no_form(browser: Browser) -> None:
    for media_type in ("application/json", "multipart/form-data", "text/plain", "x"):
        page = browser.send("/ui/logout", {}, content_type=media_type)
        assert_error_page(page, 403)
    assert_error_page(browser.send("/ui/logout", {}, Content_Encoding="gzip"), 415)


def test_a_form_that_comes_from_elsewhere(browser: Browser) -> None:
    page = browser.send("/ui/logout", {}, Origin="https://attacker.test")
    assert_error_page(page, 403)
    assert "Requests from this origin are not allowed. Open the dashboard by its own" in page.text


# -- what never gets as far as a page --------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/ui/", "/ui/nowhere", "/favicon.ico", "/ui/login"])
@pytest.mark.parametrize("host", ["attacker.test", '<script>alert(1)</script>"&', "a" * 2000])
def test_a_name_that_is_not_ours(browser: Browser, path: str, host: str) -> None:
    page = browser.open(path, Host=host)
    assert page.status == 421
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert f"This server is not called '{host[:256]}' (see allowed_hosts)." in page.text
    leading = ("href", "src", "action")
    assert not [e for e in page.elements if any(name in e.attributes for name in leading)]


def test_no_name_at_all(gate: Gate) -> None:
    reply = gate.exchange(b"GET /ui/ HTTP/1.0\r\n\r\n")
    assert (reply.status, reply.headers["content-type"]) == (400, "text/html; charset=utf-8")


def test_strangers(stranger: Browser) -> None:
    page = stranger.open("/ui/nowhere", "POST")
    assert_error_page(page, 401)
    assert "/ui/login" in page.links
    assert page.headers["www-authenticate"] == "Bearer"
    assert_error_page(stranger.open("/ui/socket?page=x&after=0", **HANDSHAKE), 401)
    page = stranger.open("/ui/", Authorization=f"Bearer {KEY}")
    assert_error_page(page, 403)


def test_the_api_answers_json_all_the_same(gate: Gate, browser: Browser) -> None:
    for path in ("/sessions/x", "/uix", "/v1/nothing", "/nowhere"):
        reply = gate.get(path, Accept="text/html", Authorization=f"Bearer {TOKEN}")
        assert (reply.status, reply.headers["content-type"]) == (404, "application/json")
        assert set(reply.error) == {"message", "type", "param", "code"}
        refused = gate.get(path, Host="attacker.test", Accept="text/html")
        assert (refused.status, refused.error["code"]) == (421, "misdirected_request")


def test_behind_the_real_server_too(tmp_path: Path) -> None:
    with installed(tmp_path) as installation:
        server = installation.serve("--demo")
        browser = Browser(server.url)
        assert_error_page(browser.open("/ui/nowhere"), 404)
        assert browser.open("/ui/", Host="attacker.test").status == 421
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        # A form whose body ends in the middle of a chunk.
        head = "POST /ui/login HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.connect()
        connection.sock.sendall(f"{head}5\r\nab\r\n0\r\n\r\n".encode())
        response = http.client.HTTPResponse(connection.sock, method="POST")
        response.begin()
        page = Page(response.status, response.getheaders(), response.read(), "/ui/login")
        response.close()
        connection.close()
        assert_error_page(page, 400)


# -- what is wrong with the server -----------------------------------------------------------------


def test_every_page_says_loudly_that_the_store_cannot_be_written(
    gate: Gate, browser: Browser
) -> None:
    def notices(of: Browser, path: str, method: str = "GET") -> list[str]:
        page = of.open(path, method)
        [place] = page.all("div", id="notices")
        assert place.attributes["aria-live"] == "polite"
        return re.findall(r"The store cannot be written: [^.]*\.", page.text)

    assert notices(browser, "/ui/") == []
    gate.model.always(says("all the same"))
    with holder(gate.store.path) as other:
        other.take()
        assert gate.post(chat(), Authorization=f"Bearer {TOKEN}").status == 200
        [reason] = gate.get("/health", Authorization=f"Bearer {TOKEN}").json["reasons"]
        for path in ("/ui/", "/ui/nowhere"):
            [notice] = notices(browser, path)
            assert notice.lower() == f"{reason}."
        # Strangers are told nothing of it.
        assert notices(Browser(gate.url), "/ui/login") == []
        assert notices(Browser(gate.url), "/ui/", "POST") == []
        assert notices(Browser(gate.url), "/ui/static/x/nothing.css") == []
        other.release()
    eventually(lambda: notices(browser, "/ui/") == [])


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("there is nothing", "There is nothing."),
        ("q: there is no word", "q: there is no word."),
        ("GET is not possible", "GET is not possible."),
        ("Already said.", "Already said."),
        ("is it?", "Is it?"),
        ("", "."),
    ],
)
def test_a_message_becomes_a_sentence(message: str, said: str) -> None:
    assert sentence(message) == said
    assert re.fullmatch(r".*[.?]", sentence(message))
