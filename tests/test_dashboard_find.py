"""The top bar's search, over real sockets: to the page of what was named, else to the sessions."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from dashboard import Browser, Page
from filled_store import FilledStore, selects
from servers import in_process
from xgw.config import Config, Loaded
from xgw.queries import language
from xgw.queries.language import TEXT, Sought
from xgw.web.app import create_app

TRACE = "0af7651916cd43dd8448eb211c80319c"
HOSTILE = "<script>alert(1)</script>\"'&\\"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilledStore]:
    filled = FilledStore(tmp_path_factory.mktemp("find"))
    yield filled
    filled.close()


@pytest.fixture(scope="module")
def browser(filled: FilledStore) -> Iterator[Browser]:
    with in_process(create_app(Loaded(Config(), {}, None), filled.store)) as url:
        yield Browser(url)


@pytest.fixture(scope="module")
def ids(filled: FilledStore) -> dict[str, str]:
    session = filled.session("checkout/42", title="An order")
    turn = filled.turn(session, trace_id=TRACE)
    run = filled.run(turn)
    step = filled.step(run, turn)
    alone = filled.message(session, turn, 1, turn_id=None)
    message = filled.message(session, turn, 0)
    request = filled.request(turn)
    return {
        "session": session,
        "turn": turn,
        "run": run,
        "step": step,
        "message": message,
        "alone": alone,
        "request": request,
    }


def find(browser: Browser, text: str) -> Page:
    return browser.open(f"/ui/find?q={quote(text)}", follow=False)


def leads_to(browser: Browser, text: str) -> str:
    page = find(browser, text)
    assert (page.status, page.headers["cache-control"]) == (303, "no-store")
    return page.headers["location"]


def sought(browser: Browser, text: str) -> str:
    """The query that the list of sessions gets for it, which it understands."""
    location = urlsplit(leads_to(browser, text))
    assert (location.netloc, location.path) == ("", "/ui/")
    [query] = parse_qs(location.query)["q"]
    assert language.parse(query)
    return query


@pytest.mark.parametrize(
    ("noun", "page"),
    [
        ("session", "/ui/sessions/{session}"),
        ("turn", "/ui/turns/{turn}"),
        ("run", "/ui/turns/{turn}?run={run}"),
        ("step", "/ui/steps/{step}"),
        ("message", "/ui/turns/{turn}"),
        ("alone", "/ui/sessions/{session}"),
        ("request", "/ui/requests/{request}"),
    ],
)
def test_an_id_or_the_start_of_one(
    browser: Browser, ids: dict[str, str], noun: str, page: str
) -> None:
    expected = page.format(**ids)
    assert leads_to(browser, ids[noun]) == expected
    assert leads_to(browser, f"  {ids[noun]} ") == expected
    assert leads_to(browser, ids[noun][:-1]) == expected


def test_a_session_key_and_a_trace_id(browser: Browser, ids: dict[str, str]) -> None:
    assert leads_to(browser, "checkout/42") == f"/ui/sessions/{ids['session']}"
    assert leads_to(browser, TRACE) == f"/ui/turns/{ids['turn']}"


def test_several_sessions_with_one_key_are_shown_as_links(
    filled: FilledStore, browser: Browser
) -> None:
    one = filled.session(HOSTILE, title="First <b>")
    two = filled.session(HOSTILE, project_id="team")
    page = find(browser, HOSTILE)
    assert page.status == 200
    links = [link for link in page.links if link.startswith("/ui/sessions/")]
    assert sorted(links) == sorted([f"/ui/sessions/{one}", f"/ui/sessions/{two}"])
    assert f"2 sessions fit “{HOSTILE}”" in page.text
    assert "First <b>" in page.text
    assert "team" in page.text
    assert not page.all("b")
    assert not page.all("script", src="")


def test_many_that_begin_alike_are_not_all_shown(filled: FilledStore, browser: Browser) -> None:
    turns = [filled.turn(id=f"turn_00000000000000000000000000000{n:03d}") for n in range(60)]
    with selects() as statements:
        page = find(browser, "turn_0000000000")
    assert page.status == 200
    assert [link for link in page.links if "/ui/turns/" in link] == [
        f"/ui/turns/{turn}" for turn in turns[:50]
    ]
    assert "50 and more turns fit" in page.text
    assert len(statements) <= 3
    assert leads_to(browser, turns[7]) == f"/ui/turns/{turns[7]}"


@pytest.mark.parametrize(
    "text",
    [
        "refund",
        "state:running",
        'model:gpt-* cost>0.1 "two words"',
        "where is it",
        "turn_0123456789",
    ],
)
def test_anything_else_is_looked_for_in_the_sessions(browser: Browser, text: str) -> None:
    assert sought(browser, text) == text


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost/x",
        'say "hello',
        "order:42 late",
        "cost:1",
        "a=b",
        HOSTILE + ":",
        '"',
        "\\:x",
    ],
)
def test_what_is_no_query_is_looked_for_as_it_stands(browser: Browser, text: str) -> None:
    [term] = language.parse(sought(browser, text))
    assert term == Sought(TEXT, (text,))


@pytest.mark.parametrize("path", ["/ui/find", "/ui/find?q=", "/ui/find?q=%20%09"])
def test_nothing_leads_to_all_sessions(browser: Browser, path: str) -> None:
    page = browser.open(path, follow=False)
    assert (page.status, page.headers["location"]) == (303, "/ui/")


def test_a_nul_is_refused(browser: Browser) -> None:
    page = find(browser, "\x00")
    assert (page.status, page.title[:3]) == (422, "422")
    assert "a NUL cannot be looked for" in page.text


def test_what_is_too_long_is_refused(browser: Browser) -> None:
    page = find(browser, "x" * 1001)
    assert (page.status, page.title[:3]) == (422, "422")
    assert "Q must not be over 1000 characters." in page.text


@pytest.mark.parametrize("text", ["\r\nX-Evil: 1", "\ud7ff", "%", "_", "sess_", "' OR 1=1 --"])
def test_odd_texts_do_no_harm(browser: Browser, text: str) -> None:
    page = find(browser, text)
    assert page.status == 303
    assert page.headers["location"].startswith("/ui/")
    assert "x-evil" not in page.headers


def test_the_top_bar_asks_here(browser: Browser) -> None:
    page = browser.open("/ui/")
    [form] = page.all("form", action="/ui/find")
    assert (form.attributes["method"], form.attributes["role"]) == ("get", "search")
    assert "q" in page.fields


def test_a_quoted_text_is_looked_for_whole() -> None:
    for text in ('a"b', "a\\", '\\"', "plain", "a\nb"):
        assert language.parse(language.quote(text)) == (Sought(TEXT, (text,)),)
