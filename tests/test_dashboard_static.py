"""The dashboard's own files over real sockets: under the hash of their content, kept for a year."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard import Browser, Page
from gateway_fixtures import Client, Reply
from servers import ROOT, in_process
from xgw.config import Config, Loaded, Server
from xgw.store import migrations
from xgw.store.database import Store
from xgw.web.app import create_app
from xgw.web.assets import Assets

STATIC = ROOT / "static"
NAMES = sorted(file.relative_to(STATIC).as_posix() for file in STATIC.rglob("*") if file.is_file())
FOREVER = "public, max-age=31536000, immutable"
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
    ".json": "application/json",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = Store(tmp_path_factory.mktemp("static") / "xgw.db")
    migrations.migrate(store)
    config = Config(server=Server(token="the-token-0001"))
    with in_process(create_app(Loaded(config, {}, None), store)) as url:
        yield Client(url)
    store.close()


@pytest.fixture(scope="module")
def login(client: Client) -> Page:
    return Browser(client.url).open("/ui/login")


def url_of(name: str) -> str:
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/ui/static/{digest}/{name}"


def assert_refused(reply: Reply) -> None:
    assert reply.status == 404
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_served_as_it_is(client: Client, name: str) -> None:
    reply = client.get(url_of(name))
    assert (reply.status, reply.body) == (200, (STATIC / name).read_bytes())
    assert reply.headers["cache-control"] == FOREVER
    assert reply.headers["content-type"] == TYPES.get(
        os.path.splitext(name)[1], reply.headers["content-type"]
    )
    assert "html" not in reply.headers["content-type"]
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in reply.headers


def test_head_answers_as_get_without_the_file(client: Client) -> None:
    url = url_of("js/xgw.js")
    whole, head = client.get(url), client.get(url, "HEAD")
    assert (head.status, head.body) == (200, b"")
    for name in ("content-type", "content-length", "cache-control"):
        assert head.headers[name] == whole.headers[name]
    assert whole.headers["content-length"] == str(len(whole.body))


def test_pages_name_files_by_their_content_and_nothing_from_elsewhere(login: Page) -> None:
    named = [e.attributes["href"] for e in login.all("link")]
    named += [e.attributes["src"] for e in login.all("script")]
    assert set(named) <= {url_of(name) for name in NAMES}
    assert url_of("css/frame.css") in named
    assert url_of("js/xgw.js") in named


def test_under_an_old_hash_there_is_the_present_file_and_it_is_not_kept(client: Client) -> None:
    for digest in ("000000000000", "x", url_of("css/parts.css").split("/")[3]):
        reply = client.get(f"/ui/static/{digest}/css/frame.css")
        assert reply.body == (STATIC / "css" / "frame.css").read_bytes()
        assert (reply.status, reply.headers["cache-control"]) == (200, "no-cache")


@pytest.mark.parametrize(
    "rest",
    [
        "/",
        "/000000000000",
        "/000000000000/",
        "/000000000000/js",
        "/000000000000/js/",
        "/000000000000/js/nothing.js",
        "/000000000000/js/XGW.js",
        "/000000000000//js/xgw.js",
        "/000000000000/js/xgw.js/",
        "/000000000000/js/xgw.js%00",
        "/js/xgw.js",
    ],
)
def test_anything_else_is_not_there(client: Client, rest: str) -> None:
    assert_refused(client.get(f"/ui/static{rest}"))


@pytest.mark.parametrize(
    "name",
    [
        "../templates/frame/base.html",
        "css/../../templates/frame/base.html",
        "..%2ftemplates/frame/base.html",
        "%2e%2e/templates/frame/base.html",
        "..%5ctemplates%5cframe%5cbase.html",
        "%2fetc/passwd",
        "/etc/passwd",
        "css/../css/frame.css",
        "./css/frame.css",
    ],
)
def test_no_name_leads_out_of_the_folder(client: Client, name: str) -> None:
    head = f"GET /ui/static/000000000000/{name} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    reply = client.exchange(head.encode())
    assert_refused(reply)
    assert b"htmx-config" in reply.body, "the page of the error, and not the file"
    assert b"{% block" not in reply.body
    assert b"root:" not in reply.body


def test_the_icon_that_browsers_ask_for(client: Client) -> None:
    reply = client.get("/favicon.ico")
    assert (reply.status, reply.body) == (200, (STATIC / "favicon.svg").read_bytes())
    assert reply.headers["content-type"] == TYPES[".svg"]
    assert reply.headers["cache-control"] == "no-cache"


def test_only_what_was_there_at_the_start_is_served(tmp_path: Path) -> None:
    (tmp_path / "css").mkdir()
    (tmp_path / "css" / "a.css").write_bytes(b"a {}")
    assets = Assets(tmp_path)
    url = assets.url("css/a.css")
    assert url == f"/ui/static/{hashlib.sha256(b'a {}').hexdigest()[:12]}/css/a.css"
    (tmp_path / "css" / "a.css").write_bytes(b"a { color: red }")
    (tmp_path / "later.css").write_bytes(b"b {}")
    found = assets.at(url)
    assert found is not None
    assert found.content == b"a {}"
    assert assets.named("later.css") is None
    with pytest.raises(KeyError):
        assets.url("later.css")
    assert Assets(tmp_path).url("css/a.css") != url
