"""What the tests of pages rely on: each guard of the browser notices what it is there for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import chromium
from accessibility import assert_accessible, violations
from faults import running
from gateway_fixtures import gate_and_model
from page_metrics import Meter
from servers import eventually, in_process
from visits import NARROW, Visits, behind_another_tab, offline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIEnvironment
    from playwright.sync_api import Browser, BrowserContext

POLICY = "default-src 'self'; img-src 'self' data:"
PAGE = """<!doctype html><html lang="en"><head><title>Page</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="/page.css">{head}</head>
<body><main><h1>Page</h1><p id="width">wide</p><noscript>no scripts</noscript>{body}</main></body>
</html>"""
STYLE = """html { color-scheme: light dark; background: white }
@media (prefers-color-scheme: dark) { html { background: black } }
@media (max-width: 500px) { #width { display: none } }
.faint { color: #ddd }"""

GUARDED = {
    "console error": ('console.error("it broke")', "console error: it broke"),
    "console warning": ('console.warn("it may break")', "console warning: it may break"),
    "uncaught error": ('setTimeout(() => { throw new Error("lost") })', "uncaught: lost"),
    "rejected promise": ('Promise.reject(new Error("refused"))', "uncaught: refused"),
    "blocked by policy": ('document.body.setAttribute("onclick", "x()")', "script-src"),
    "missing file": ('fetch("/missing")', "status of 404"),
    "failed request": ('fetch("/broken").catch(() => {})', "failed: GET http"),
    "another server": ('new Image().src = "http://elsewhere.test/x.png"', "elsewhere.test"),
    "another socket": ('new WebSocket("ws://elsewhere.test/live")', "elsewhere.test"),
}
BODIES = {
    "/plain": "",
    "/image": '<img id="chart" src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">',
    "/faint": '<p id="note" class="faint">hard to read</p>',
    "/styled": '<p style="color: red">styled</p>',
}


def site(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Pages under a policy like that of our own; `/script/NAME` runs one of those above."""
    path = environ["PATH_INFO"]
    if path == "/broken":
        # Half of what it promises.
        start_response("200 OK", [("Content-Length", "100"), ("Connection", "close")])
        return [b"half"]
    kind, text, status = "text/html", "", "200 OK"
    if path == "/page.css":
        kind, text = "text/css", STYLE
    elif path.startswith("/run/"):
        kind, text = "text/javascript", GUARDED[path.removeprefix("/run/").removesuffix(".js")][0]
    elif path.startswith("/script/"):
        name = path.removeprefix("/script/")
        text = PAGE.format(head="", body=f'<script src="/run/{name}.js"></script>')
    elif path in BODIES:
        text = PAGE.format(head="", body=BODIES[path])
    else:
        status = "404 Not Found"
    start_response(status, [("Content-Type", kind), ("Content-Security-Policy", POLICY)])
    return [text.encode()]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with in_process(site) as address:
        yield address


@pytest.fixture
def careless(driver: chromium.Driver, browser: Browser) -> Iterator[Visits]:
    """Visits on which something goes wrong, so that nobody else checks them."""
    with driver.driving():
        visits = Visits(browser)
        try:
            yield visits
        finally:
            visits.close()


# -- pages as they are opened ----------------------------------------------------------------------


def test_width_colours_and_scripts_are_as_asked_for(visit: Visits, url: str) -> None:
    background = "getComputedStyle(document.documentElement).backgroundColor"
    wide = visit(f"{url}/plain")
    narrow = visit(f"{url}/plain", width=NARROW, dark=True, scripts=False)
    assert wide.evaluate("innerWidth") == 1280
    assert narrow.evaluate("innerWidth") == 380
    assert wide.locator("#width").is_visible()
    assert not narrow.locator("#width").is_visible()
    assert wide.evaluate(background) == "rgb(255, 255, 255)"
    assert narrow.evaluate(background) == "rgb(0, 0, 0)"
    assert not wide.locator("noscript").is_visible()
    assert narrow.locator("noscript").is_visible()


def test_two_visits_are_two_people(visit: Visits, url: str) -> None:
    first, second = visit(f"{url}/plain"), visit(f"{url}/plain")
    first.evaluate("localStorage.setItem('mine', '1')")
    assert second.evaluate("localStorage.getItem('mine')") is None
    again = visit.open(first.context, f"{url}/plain")
    assert again.evaluate("localStorage.getItem('mine')") == "1"


def test_a_gateway_in_this_process_can_be_opened(careless: Visits, tmp_path: Path) -> None:
    with gate_and_model(tmp_path) as gate:
        assert "xgw" in careless(f"{gate.url}/openapi.json").content()


def test_a_gateway_of_its_own_process_can_be_opened(careless: Visits, tmp_path: Path) -> None:
    with running(tmp_path) as gate:
        assert "xgw" in careless(f"{gate.url}/openapi.json").content()


def test_a_page_without_network_asks_in_vain(visit: Visits, url: str) -> None:
    page = visit(f"{url}/plain")
    reached = "fetch('/plain').then(() => true, () => false)"
    with offline(page):
        assert page.evaluate("navigator.onLine") is False
        assert page.evaluate(reached) is False
    assert page.evaluate(reached) is True
    visit.allow("ERR_INTERNET_DISCONNECTED")


def test_a_tab_behind_another_is_hidden(visit: Visits, tabs: BrowserContext, url: str) -> None:
    page = visit.open(tabs, f"{url}/plain")
    page.evaluate(
        "() => { seen = []; document.addEventListener('visibilitychange',"
        " () => seen.push(document.visibilityState)) }"
    )
    with behind_another_tab(page):
        assert page.evaluate("document.hidden") is True
    assert page.evaluate("seen") == ["hidden", "visible"]


# -- what goes wrong is noticed --------------------------------------------------------------------


@pytest.mark.parametrize("name", GUARDED)
def test_what_goes_wrong_on_a_page_is_noticed(careless: Visits, url: str, name: str) -> None:
    careless(f"{url}/script/{name}")
    eventually(careless.complaints)
    with pytest.raises(AssertionError, match=GUARDED[name][1]):
        careless.check()


def test_a_style_that_the_policy_blocks_is_noticed_without_scripts(
    careless: Visits, url: str
) -> None:
    careless(f"{url}/styled", scripts=False)
    with pytest.raises(AssertionError, match="style-src"):
        careless.check()


def test_what_a_second_tab_says_is_noticed_too(careless: Visits, url: str) -> None:
    first = careless(f"{url}/plain")
    careless.open(first.context, f"{url}/script/console error")
    with pytest.raises(AssertionError, match="it broke"):
        careless.check()


def test_what_a_test_is_about_is_no_complaint(careless: Visits, url: str) -> None:
    careless(f"{url}/script/console error")
    careless.allow("it broke")
    careless.check()


def test_a_complaint_that_never_came_is_noticed(careless: Visits, url: str) -> None:
    careless(f"{url}/plain")
    careless.allow("it broke")
    with pytest.raises(AssertionError, match="nothing like 'it broke'"):
        careless.check()


# -- accessibility ---------------------------------------------------------------------------------


def test_an_accessible_page_passes(visit: Visits, url: str) -> None:
    assert_accessible(visit(f"{url}/plain"))
    assert_accessible(visit(f"{url}/plain", width=NARROW, dark=True))


@pytest.mark.parametrize(
    ("path", "rule", "element"),
    [("/image", "image-alt", "#chart"), ("/faint", "color-contrast", "#note")],
)
def test_a_grave_violation_names_rule_and_element(
    visit: Visits, url: str, path: str, rule: str, element: str
) -> None:
    page = visit(f"{url}{path}")
    (line,) = violations(page)
    assert line.split()[0] in {"serious", "critical"}
    assert line.split()[1:3] == [f"{rule}:", f"{element}:"]
    with pytest.raises(AssertionError, match=rule):
        assert_accessible(page)


# -- what a page costs -----------------------------------------------------------------------------


def test_work_and_nodes_of_a_page_are_measured(visit: Visits, url: str) -> None:
    page = visit(f"{url}/plain")
    meter = Meter(page)
    before = meter.read()
    page.evaluate(
        """() => new Promise(done => setTimeout(() => {
          for (let n = 0; n < 500; n++) {
            document.body.append(document.createElement("p"))
            document.body.offsetHeight
          }
          done()
        }))"""
    )
    grown = meter.read()
    spent = grown - before
    assert spent.task_ms >= spent.script_ms > 0
    assert spent.layout_ms > 0
    assert spent.layouts >= 500
    assert 500 <= spent.nodes < 600
    page.evaluate("document.querySelectorAll('body > p').forEach(made => made.remove())")
    assert (meter.read() - grown).nodes <= -500


# -- the browser itself ----------------------------------------------------------------------------


def test_other_tests_may_run_an_event_loop(driver: chromium.Driver) -> None:
    async def nothing() -> int:
        return 1

    assert asyncio.run(nothing()) == 1
    assert threading.current_thread() is threading.main_thread()


@pytest.mark.parametrize(
    ("required", "outcome"), [(False, pytest.skip.Exception), (True, pytest.fail.Exception)]
)
def test_without_a_browser_it_is_said_what_to_install(
    required: bool, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chromium, "REQUIRED", required)
    monkeypatch.setattr(chromium, "NAMED", None)
    monkeypatch.setattr(chromium, "USUAL", ())
    with pytest.raises(outcome, match="no Chromium here: install it"):
        chromium.found()
    monkeypatch.setattr(chromium, "NAMED", "no-such-browser")
    with pytest.raises(outcome, match="no 'no-such-browser'"):
        chromium.found()
