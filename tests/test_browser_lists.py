"""The lists in a real Chromium: what comes in, goes, is loaded on and is never there twice."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accessibility import assert_for_everyone
from filled_pages import FilledPages, filled_pages
from gateway_fixtures import Gate, gate_and_model, hang_up
from scripted_model import DONE, chat, delta, finish, named, says, stream
from servers import eventually
from test_browser_live import after
from visits import NARROW, Visits
from xgw import clock
from xgw.store.models import RequestLog
from xgw.web import board

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROWS = "[data-row]"


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with gate_and_model(tmp_path) as opened:
        opened.model.always(says("yes"))
        yield opened


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[FilledPages]:
    with filled_pages(tmp_path) as opened:
        yield opened


def ask(gate: Gate, session: str, text: str = "Hello") -> None:
    gate.ended(gate.post(chat(text), x_session_id=session))


def live(page: Page) -> Page:
    """The page once its socket is open."""
    page.locator("#connection", has_text="live").wait_for()
    return page


def keys(page: Page) -> list[str]:
    """The keys of the sessions that can be seen, in order."""
    found = page.locator(f"{ROWS}:not([data-held]) .row-sub code")
    titles: list[str] = found.evaluate_all("all => all.map(one => one.title)")
    return titles


def shown_once(page: Page) -> int:
    """How many rows the page has; AssertionError if one is there twice."""
    ids = page.locator(ROWS).evaluate_all("rows => rows.map(row => row.id)")
    assert len(ids) == len(set(ids))
    return len(ids)


def test_the_first_session_takes_the_place_of_how_to_begin(gate: Gate, visit: Visits) -> None:
    page = live(visit(f"{gate.url}/ui/"))
    assert page.locator(".empty").is_visible()
    ask(gate, "first")
    page.locator(ROWS, has_text="done").wait_for()
    assert keys(page) == ["first"]
    page.locator(".empty").wait_for(state="hidden")


def test_what_says_how_to_begin_is_whole_on_a_narrow_page(gate: Gate, visit: Visits) -> None:
    page = visit(f"{gate.url}/ui/", width=NARROW)
    hidden = "all => all.map(one => one.scrollHeight - one.clientHeight)"
    assert set(page.locator(".empty pre").evaluate_all(hidden)) == {0}


def test_new_rows_wait_while_the_pointer_is_over_the_list(gate: Gate, visit: Visits) -> None:
    ask(gate, "old")
    page = live(visit(f"{gate.url}/ui/"))
    page.hover(ROWS)
    ask(gate, "fresh")
    page.locator(f"{ROWS}[data-held]", has_text="done").wait_for(state="attached")
    assert keys(page) == ["old"]
    page.mouse.move(2, 2)
    eventually(lambda: keys(page) == ["fresh", "old"])


def test_a_session_that_goes_on_goes_to_the_top(gate: Gate, visit: Visits) -> None:
    for key in ("a", "b", "c"):
        ask(gate, key)
    page = live(visit(f"{gate.url}/ui/"))
    ask(gate, "a", "Once more")
    page.locator(ROWS).first.locator(".cell-turns", has_text="2").wait_for()
    assert keys(page) == ["a", "c", "b"]
    assert shown_once(page) == 3
    page.reload()
    assert keys(page) == ["a", "c", "b"]


def test_a_time_ahead_of_the_clock_is_not_now(gate: Gate, visit: Visits) -> None:
    ask(gate, "ahead")
    page = live(visit(f"{gate.url}/ui/"))
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=10, seconds=30)
    page.clock.set_fixed_time(before)
    page.locator(f"{ROWS} time", has_text="in 10 min").wait_for()


def test_no_row_goes_to_the_top_from_under_the_pointer(gate: Gate, visit: Visits) -> None:
    for key in ("a", "b", "c"):
        ask(gate, key)
    page = live(visit(f"{gate.url}/ui/"))
    page.hover(ROWS)
    for key, turns in (("a", 2), ("b", 2), ("a", 3)):
        ask(gate, key, "Once more")
        row = page.locator(ROWS, has=page.locator(f"code[title={key}]"))
        row.locator(".cell-turns", has_text=str(turns)).wait_for()
        row.locator(".state", has_text="done").wait_for()
    ask(gate, "fresh")
    page.locator(f"{ROWS}[data-held]", has_text="done").wait_for(state="attached")
    assert keys(page) == ["c", "b", "a"]
    page.mouse.move(2, 2)
    eventually(lambda: keys(page) == ["fresh", "a", "b", "c"])
    assert shown_once(page) == 4


def test_a_row_with_the_focus_goes_to_the_top_once_it_is_left(gate: Gate, visit: Visits) -> None:
    for key in ("a", "b", "c"):
        ask(gate, key)
    page = live(visit(f"{gate.url}/ui/"))
    for _ in range(3):
        page.keyboard.press("j")
    ask(gate, "a", "Once more")
    page.locator(ROWS).last.locator(".cell-turns", has_text="2").wait_for()
    assert keys(page) == ["c", "b", "a"]
    page.keyboard.press("k")
    eventually(lambda: keys(page) == ["a", "c", "b"])
    focused = "document.activeElement.closest('[data-row]').querySelector('code').title"
    assert page.evaluate(focused) == "b"


def test_what_does_not_fit_the_filter_any_more_goes(gate: Gate, visit: Visits) -> None:
    page = live(visit(f"{gate.url}/ui/?q=attempts%3C2"))
    ask(gate, "plain")
    page.locator(ROWS, has_text="done").wait_for()
    session = gate.session("plain")["id"]
    assert gate.get(f"/sessions/{session}", "DELETE").status == 204
    page.locator(ROWS).wait_for(state="detached")
    page.locator(".empty", has_text="Nothing matches this filter").wait_for()


def test_the_requests_of_a_deleted_session_go(gate: Gate, visit: Visits) -> None:
    for key in ("goes", "stays"):
        ask(gate, key)
    page = live(visit(f"{gate.url}/ui/requests"))
    assert shown_once(page) == 2
    page.hover(ROWS)
    assert gate.get(f"/sessions/{gate.session('goes')['id']}", "DELETE").status == 204
    page.locator(f"{ROWS}[data-gone]").wait_for()
    assert shown_once(page) == 2  # none goes from under the pointer
    page.mouse.move(2, 2)
    page.locator(f"{ROWS}[data-gone]").wait_for(state="detached")
    assert page.locator(ROWS).get_attribute("data-session") == gate.session("stays")["id"]


def test_the_page_of_a_request_goes_on_until_it_has_ended(gate: Gate, visit: Visits) -> None:
    end = threading.Event()
    gate.model.will(stream(delta("Hi"), end, finish(), DONE))
    reading = gate.open(chat("go", stream=True, **named("goes on")))
    eventually(lambda: gate.turns("goes on") and gate.all(RequestLog))
    page = live(visit(f"{gate.url}/ui/requests/{gate.all(RequestLog)[0]['id']}"))
    assert page.locator("h1", has_text="running").is_visible()
    page.evaluate("window.same = true")
    end.set()
    reading.rest()
    page.locator("h1", has_text="200").wait_for()
    assert "Hi" in page.locator("section", has_text="Response").last.inner_text()
    assert page.evaluate("window.same")


def test_a_request_that_its_client_left_is_cancelled_and_not_green(
    gate: Gate, visit: Visits
) -> None:
    answered = threading.Event()
    gate.model.will(after(answered, says("too late")))
    asked = gate.send(chat("go", **named("left")))
    eventually(lambda: gate.all(RequestLog))
    hang_up(asked.sock)
    page = live(visit(f"{gate.url}/ui/requests"))
    state = page.locator(f"{ROWS} .state", has_text="cancelled")
    state.wait_for()
    cancelled = state.evaluate("one => getComputedStyle(one).color")
    page.goto(f"{gate.url}/ui/requests/{gate.all(RequestLog)[0]['id']}")
    assert page.locator("h1 .state").inner_text() == "cancelled"
    answered.set()
    ask(gate, "done")
    page.goto(f"{gate.url}/ui/requests")
    done = page.locator(f"{ROWS} .state", has_text="200")
    assert done.evaluate("one => getComputedStyle(one).color") != cancelled


def test_older_rows_come_by_scrolling_and_none_is_there_twice(
    pages: FilledPages, visit: Visits
) -> None:
    total = 2 * board.LIMIT + 7
    for number in range(total):
        pages.filled.session(f"s{number}", number)
    page = visit(f"{pages.client.url}/ui/")

    def at_the_end() -> bool:
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        return shown_once(page) == total

    eventually(at_the_end)
    assert not page.locator("#older").is_visible()


def test_a_list_that_grows_for_long_lets_its_last_rows_go(gate: Gate, visit: Visits) -> None:
    page = live(visit(f"{gate.url}/ui/"))
    page.evaluate("document.querySelector('#rows').dataset.most = 3")
    for number in range(5):
        ask(gate, f"s{number}")
        page.locator(ROWS, has_text=f"s{number}").wait_for()
    eventually(lambda: keys(page)[0] == "s4" and len(keys(page)) >= 3)
    # What went is loaded again where it belongs, once its place is seen.
    eventually(lambda: keys(page) == ["s4", "s3", "s2", "s1", "s0"])
    assert shown_once(page) == 5


def test_keys_move_and_open(gate: Gate, visit: Visits) -> None:
    ask(gate, "one")
    ask(gate, "two")
    page = visit(f"{gate.url}/ui/")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/sessions/{gate.session('one')['id']}")
    page.go_back()
    focused = page.locator(ROWS, has=page.locator(":focus"))
    assert keys(page) == ["two", "one"]
    assert focused.get_attribute("id") == f"session-{gate.session('one')['id']}"
    key = page.locator("kbd:visible")
    assert key.inner_text() == "/"
    assert key.evaluate("one => one.previousElementSibling.id") == "filter"
    page.keyboard.press("/")
    page.keyboard.type("state:error")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/?q=state%3Aerror")
    page.locator(".empty", has_text="Nothing matches this filter").wait_for()


def test_lists_can_be_used_by_everyone(pages: FilledPages, visit: Visits) -> None:
    filled, url = pages.filled, pages.client.url
    session = filled.session("k" * 200, title="A long title " * 20, model="m" * 60, cost_usd=0.1)
    turn = filled.turn(session, status="error", error_type="upstream_timeout", attempts=3)
    filled.turn(None, user_input="Word" * 200, final_model="m" * 100)
    request = filled.request(
        turn,
        provider_name="p",
        model="m" * 80,
        url="https://x.example/" + "y" * 300,
        error_type="upstream_timeout",
        error_message="it took too long " * 40,
        request_payload=filled.body({"messages": ["z" * 3000]}),
        started_at=clock.now(),
    )
    page, readable = visit(f"{url}/ui/"), visit(f"{url}/ui/", scripts=False)
    for path in ("/ui/", "/ui/turns", "/ui/requests", f"/ui/requests/{request}", "/ui/health"):
        page.goto(url + path)
        assert_for_everyone(page)
        readable.goto(url + path)
        assert readable.locator("main").inner_text() != ""


@pytest.mark.parametrize("width", [380, 901, 1000, 1101, 1201, 1280])
@pytest.mark.parametrize("path", ["/ui/", "/ui/requests"])
def test_titles_have_room_and_figures_are_whole(
    pages: FilledPages, visit: Visits, path: str, width: int
) -> None:
    title, figures = "What is the weather", {"total_tokens": 123_456_789, "cost_usd": 4e-8}
    session = pages.filled.session("long", title=title, **figures)
    turn = pages.filled.turn(session)
    pages.filled.request(turn, provider_name="p", model="a-model-2026", started_at=clock.now())
    page = visit(f"{pages.client.url}{path}", width=width)
    cut = page.locator(".row :is(.row-title, td.right)").evaluate_all(
        "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"
    )
    assert cut == []


def test_older_rows_are_behind_a_link_without_scripts(pages: FilledPages, visit: Visits) -> None:
    for number in range(board.LIMIT + 3):
        pages.filled.session(f"s{number}", number)
    page = visit(f"{pages.client.url}/ui/", scripts=False)
    # A click does not wait for the page that it leads to.
    with page.expect_navigation():
        page.get_by_role("link", name="Older").click()
    assert len(keys(page)) == 3
    with page.expect_navigation():
        page.get_by_role("link", name="Newest").click()
    assert len(keys(page)) == board.LIMIT
