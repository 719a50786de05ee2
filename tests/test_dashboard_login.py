"""The way into the dashboard, over real sockets: login, its cookie, where it leads, logout."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from dashboard import Browser
from gateway_fixtures import Gate, gate_and_model
from xgw.config import ClientKey, Server
from xgw.web.logins import LIFETIME, Logins, safe_next

TOKEN, KEY = "the-token-0001", "team-a-key"
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
HOST = "gw.example.com"


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    server = Server(token=TOKEN, allowed_hosts=(HOST,))
    keys = (ClientKey(key=KEY, project="team-a"),)
    with gate_and_model(tmp_path_factory.mktemp("login"), server=server, keys=keys) as one:
        yield one


@pytest.fixture
def browser(gate: Gate) -> Browser:
    return Browser(gate.url)


def cookie_name(browser: Browser) -> str:
    [name] = [name for name in browser.cookies if name.startswith("xgw_login")]
    return name


# -- in and out ------------------------------------------------------------------------------------


def test_a_page_leads_to_the_login_and_the_login_back_to_the_page(browser: Browser) -> None:
    asked = "/ui/?q=state%3Arunning+%22a+%26+b%22"
    refused = browser.open(asked, follow=False)
    assert (refused.status, refused.body) == (303, b"")
    location = urlsplit(refused.headers["location"])
    assert (location.scheme, location.netloc, location.path) == ("", "", "/ui/login")
    page = browser.open(refused.headers["location"])
    assert page.status == 200
    assert page.fields["next"] == asked
    entered = browser.send("/ui/login", {**page.fields, "token": TOKEN}, follow=False)
    assert (entered.status, entered.headers["location"]) == (303, asked)
    assert browser.open("/ui/", follow=False).status == 200


@pytest.mark.parametrize("path", ["/", "/ui", "/ui/", "/ui/turns/x", "/ui/nowhere", "/ui/login/"])
def test_every_page_asks_for_the_login(browser: Browser, path: str) -> None:
    for method in ("GET", "HEAD"):
        refused = browser.open(path, method, follow=False)
        wanted = parse_qs(urlsplit(refused.headers["location"]).query)["next"]
        assert refused.status == 303
        assert wanted == ["/ui/" if path == "/" else path]
        assert refused.headers["cache-control"] == "no-store"


def test_the_form_holds_nothing_of_the_token(browser: Browser) -> None:
    page = browser.open("/ui/login")
    [token] = page.all("input", name="token")
    assert token.attributes["type"] == "password"
    assert "value" not in token.attributes
    [form] = page.all("form")
    assert form.attributes == {"method": "post", "action": "/ui/login"}
    assert not page.all("nav")


def test_the_cookie(browser: Browser) -> None:
    page = browser.open("/ui/login")
    entered = browser.send("/ui/login", {**page.fields, "token": f" {TOKEN}\n"}, follow=False)
    for cookie, path in zip(entered.set_cookies, ("/ui", "/imports"), strict=True):
        name, *parts = [part.strip() for part in cookie.split(";")]
        assert {"HttpOnly", "SameSite=Strict", f"Path={path}", "Max-Age=2592000"} <= set(parts)
        assert "Secure" not in parts
        assert TOKEN not in name
        assert KEY not in name


def test_the_cookie_is_for_tls_alone_where_the_browser_speaks_it(browser: Browser) -> None:
    page = browser.open("/ui/login", Host=HOST)
    origin = {"Host": HOST, "Origin": f"https://{HOST}"}
    sent = {**page.fields, "token": TOKEN}
    entered = browser.send("/ui/login", sent, follow=False, **origin)
    assert entered.status == 303
    for cookie in entered.set_cookies:
        assert "Secure" in [part.strip() for part in cookie.split(";")]


@pytest.mark.parametrize("wrong", ["", "the-token-000", "The-Token-0001", KEY, "\x00", "ä<b>&"])
def test_a_wrong_token(browser: Browser, wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    page = browser.open("/ui/login?next=/ui/requests")
    with caplog.at_level(logging.DEBUG):
        refused = browser.send("/ui/login", {**page.fields, "token": wrong})
    assert (refused.status, refused.path) == (403, "/ui/login")
    assert "That is not the token of this server." in refused.text
    assert refused.fields["next"] == "/ui/requests"
    assert not wrong or wrong not in refused.body.decode()
    assert not wrong or wrong not in caplog.text
    assert not [name for name in browser.cookies if name.startswith("xgw_login")]


def test_a_login_without_the_form_s_token_is_refused(browser: Browser) -> None:
    assert browser.send("/ui/login", {"token": TOKEN}).status == 403
    browser.open("/ui/login")
    refused = browser.send("/ui/login", {"csrf": "another", "token": TOKEN})
    assert refused.status == 403
    assert "reload the page" in refused.text
    assert not [name for name in browser.cookies if name.startswith("xgw_login")]


def test_a_login_from_another_site_is_refused(browser: Browser) -> None:
    page = browser.open("/ui/login")
    refused = browser.open(
        f"/ui/login?csrf={page.fields['csrf']}", "POST", Origin="https://attacker.test"
    )
    assert refused.status == 403
    assert "origin" in refused.text


def test_logging_out(browser: Browser) -> None:
    assert browser.log_in(TOKEN).status == 200
    page = browser.open("/ui/")
    [form] = page.all("form", action="/ui/logout")
    assert form.attributes["method"] == "post"
    left = browser.send("/ui/logout", {"csrf": page.fields["csrf"]}, follow=False)
    assert (left.status, left.headers["location"]) == (303, "/ui/login")
    assert not [name for name in browser.cookies if name.startswith("xgw_login")]
    assert browser.open("/ui/", follow=False).status == 303
    assert browser.send("/ui/logout", {}).status == 200


def test_whoever_is_in_is_not_asked_again(browser: Browser) -> None:
    browser.log_in(TOKEN)
    passed = browser.open("/ui/login?next=/ui/requests", follow=False)
    assert (passed.status, passed.headers["location"]) == (303, "/ui/requests")


def test_a_link_from_another_site_is_asked_for_once_more(browser: Browser) -> None:
    """Strict cookies are not sent with it: the login page goes on by itself, which is."""
    linked = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "document"}
    page = browser.open("/ui/login?next=/ui/turns/x%3Frun%3Dy", **linked)
    [again] = page.all("meta", **{"http-equiv": "refresh"})
    assert again.attributes["content"] == "0; url=/ui/turns/x?run=y"
    own = browser.open("/ui/login?next=/ui/turns/x", Sec_Fetch_Site="same-origin")
    assert not own.all("meta", **{"http-equiv": "refresh"})


# -- where it leads --------------------------------------------------------------------------------

ELSEWHERE = [
    "",
    "/",
    "//attacker.test",
    "//attacker.test/ui/",
    "/\\attacker.test",
    "/ui\\..\\x",
    "/ui/\\",
    "https://attacker.test/ui/",
    "javascript:alert(1)",
    "ui/",
    " /ui/",
    "/uix",
    "/ui.attacker.test/",
    "/sessions",
    "/ui/../sessions",
    "/ui/..",
    "/ui/./../sessions",
    "/ui/%2e%2E/sessions",
    "/ui/.%2e/sessions",
    "/ui/\r\nSet-Cookie: a=b",
    "/ui/\tx",
    "/ui/\x00",
    "/ui/\u2028",
    "/ui/" + "x" * 2000,
]


@pytest.mark.parametrize("wanted", ELSEWHERE)
def test_a_login_leads_nowhere_else(browser: Browser, wanted: str) -> None:
    assert safe_next(wanted) == "/ui/"
    page = browser.open("/ui/login")
    sent = {**page.fields, "token": TOKEN, "next": wanted}
    entered = browser.send("/ui/login", sent, follow=False)
    assert (entered.status, entered.headers["location"]) == (303, "/ui/")
    assert len(entered.set_cookies) == 2


@pytest.mark.parametrize(
    "wanted",
    ["/ui", "/ui/", "/ui/turns/turn_1?run=run_2#step", "/ui/?q=a..b/../c", "/ui/sessions/a..b"],
)
def test_a_login_leads_to_any_page(wanted: str) -> None:
    assert safe_next(wanted) == wanted


# -- what opens what -------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["X-Xgw-Key", "X-Api-Key", "Authorization"])
def test_the_token_opens_as_a_header_too(browser: Browser, header: str) -> None:
    bearer = "Bearer " if header == "Authorization" else ""
    page = browser.open("/ui/", **{header: bearer + TOKEN})
    assert (page.status, page.path) == (200, "/ui/")
    assert not page.all("form", action="/ui/logout"), "there is no login to end"


@pytest.mark.parametrize("path", ["/", "/ui/", "/ui/find?q=x", "/ui/nowhere"])
def test_a_client_key_never_opens_the_dashboard(browser: Browser, path: str) -> None:
    page = browser.open(path, Authorization=f"Bearer {KEY}")
    assert page.status == 403
    assert "A client key opens the API, not the dashboard: log in with the token" in page.text
    assert KEY not in page.body.decode()


def test_a_login_opens_the_dashboard_and_nothing_else(gate: Gate, browser: Browser) -> None:
    browser.log_in(TOKEN)
    login = f"{cookie_name(browser)}={browser.cookies[cookie_name(browser)]}"
    assert gate.get("/ui/", Cookie=login).status == 200
    for path in ("/sessions", "/v1/models", "/events", "/stats", "/openapi.json"):
        refused = gate.get(path, Cookie=login)
        assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
    assert "store" not in gate.get("/health", Cookie=login).json
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    assert gate.post(body, Cookie=login).status == 401


def test_parts_forms_and_sockets_are_told_401(browser: Browser) -> None:
    part = browser.open("/ui/turns/x", HX_Request="true")
    assert (part.status, part.headers["hx-refresh"]) == (401, "true")
    assert browser.open("/ui/turns/x", Sec_Fetch_Dest="empty").status == 401
    assert browser.open("/ui/turns/x", "POST").status == 401
    assert browser.open("/ui/turns/x", "DELETE").status == 401
    handshake = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec_WebSocket_Version": "13",
    }
    socket = "/ui/socket?page=sessions&after=0"
    assert browser.open(socket, **handshake).status == 401
    assert browser.open(socket, Origin="https://attacker.test", **handshake).status == 403
    browser.log_in(TOKEN)
    assert browser.open(socket, Origin="https://attacker.test", **handshake).status == 403
    assert browser.open("/ui/turns/x", HX_Request="true").status == 404


def test_what_shows_nothing_is_open(browser: Browser) -> None:
    sheet = browser.open("/ui/login").all("link", rel="stylesheet")[0].attributes["href"]
    for path in (sheet, "/favicon.ico"):
        assert browser.open(path, follow=False).status == 200
        assert browser.open(path, Host="attacker.test").status == 421


# -- the cookie's value ----------------------------------------------------------------------------


def test_a_login_ends_after_thirty_days() -> None:
    logins = Logins(TOKEN)
    value = logins.issue(NOW)
    assert datetime.timedelta(days=30) == LIFETIME
    assert logins.accepts(value, NOW)
    assert logins.accepts(value, NOW + LIFETIME - datetime.timedelta(seconds=1))
    assert not logins.accepts(value, NOW + LIFETIME)


def test_a_login_cannot_be_made_up() -> None:
    logins = Logins(TOKEN)
    ends_at, _, signature = logins.issue(NOW).partition(".")
    later = f"{int(ends_at) + 1}.{signature}"
    other = "A" if signature[0] != "A" else "B"
    made_up = [
        later,
        f"{ends_at}.{other}{signature[1:]}",
        f"{ends_at}.",
        f"{ends_at}",
        f"0{ends_at}.{signature}",
        f"{ends_at}.{signature}=",
        f"{ends_at}.{signature}\n",
        f"{'9' * 5000}.{signature}",
        f"-1.{signature}",
        f"\u0661.{signature}",
        "",
    ]
    assert [value for value in made_up if logins.accepts(value, NOW)] == []


def test_another_token_logs_everyone_out() -> None:
    assert not Logins("the-token-0002").accepts(Logins(TOKEN).issue(NOW), NOW)
    assert Logins(TOKEN).accepts(Logins(TOKEN).issue(NOW), NOW)


def test_a_cookie_that_is_not_one_opens_nothing(gate: Gate) -> None:
    name = Logins(TOKEN).cookie
    for value in ("", "x", f'"{TOKEN}"', TOKEN, "1.2", "\xff\xfe", "a=b=c"):
        assert gate.get("/ui/", Cookie=f"{name}={value}").status == 303


@pytest.mark.slow
def test_a_login_survives_a_restart_and_not_a_change_of_the_token(tmp_path: Path) -> None:
    browser = Browser("")
    with gate_and_model(tmp_path, server=Server(token=TOKEN)) as gate:
        browser.url = gate.url
        assert browser.log_in(TOKEN).status == 200
    for token, status in ((TOKEN, 200), ("another-token", 303)):
        with gate_and_model(tmp_path, server=Server(token=token)) as gate:
            browser.url = gate.url
            assert browser.open("/ui/", follow=False).status == status


# -- without a token -------------------------------------------------------------------------------


def test_keys_without_a_token_the_page_says_what_to_do(tmp_path: Path) -> None:
    with gate_and_model(tmp_path, keys=(ClientKey(key=KEY),)) as gate:
        browser = Browser(gate.url)
        page = browser.open("/ui/turns/x")
        assert (page.status, page.path) == (200, "/ui/login?next=%2Fui%2Fturns%2Fx")
        assert "set XGW_TOKEN, or token in the [server] table of xgw.toml, and restart" in page.text
        assert "token" not in page.fields
        assert browser.send("/ui/login", {"token": KEY}).status == 403
        assert browser.open("/ui/", Authorization=f"Bearer {KEY}").status == 403


def test_without_keys_there_is_nothing_to_log_in_to(tmp_path: Path) -> None:
    with gate_and_model(tmp_path) as gate:
        browser = Browser(gate.url)
        home = browser.open("/", follow=False)
        assert (home.status, home.headers["location"]) == (303, "/ui/")
        assert browser.open("/ui/", follow=False).status == 200
        assert browser.open("/ui/login").path == "/ui/"
        assert browser.send("/ui/login", {"token": "anything"}).path == "/ui/"
