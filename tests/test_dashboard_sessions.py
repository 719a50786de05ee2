"""The list of sessions, and that of turns without one: rows, filters, pages, what comes in live."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from filled_pages import FilledPages, by_target, filled_pages, rows_of
from filled_store import at, selects
from gateway_fixtures import gate_and_model
from live_pages import open_page, parse, watching
from scripted_model import chat, says
from xgw import clock, ids
from xgw.config import Server
from xgw.events import Envelope
from xgw.queries import pages as queries
from xgw.web import board

OPEN: dict[str, Any] = {"status": "running", "ended_at": None}
HOSTILE = "<script>alert(1)</script>\"'&<!--"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[FilledPages]:
    with filled_pages(tmp_path) as opened:
        yield opened


def event(type: str, session: str | None = None, turn: str | None = None) -> Envelope:
    return Envelope(1, type, at(0), "default", session, turn, None, None, {})


# -- rows ------------------------------------------------------------------------------------------


def test_a_row_tells_a_session_at_a_glance(pages: FilledPages) -> None:
    filled = pages.filled
    session = filled.session(
        "cust-88213",
        title="Where is my order 1042?",
        agent_name="support",
        model="gpt-4o",
        provider_name="openai",
        turn_count=6,
        request_count=7,
        total_tokens=18204,
        usage_source="estimated",
        cost_usd=0.0412,
        context_tokens=32000,
    )
    filled.turn(session, attempts=3, llm_calls=1)
    [row] = pages.open("/ui/").rows
    assert row[:2] == ["done", "Where is my order 1042? support · gpt-4o · cust-88213"]
    assert row[2] == "–"
    assert row[3] == "6 turns +2 attempts"
    assert row[4:7] == ["~18,204 tokens", "$0.0412", "25 %"]
    assert pages.open("/ui/").ids == [f"session-{session}"]


def test_what_is_unknown_is_a_dash(pages: FilledPages) -> None:
    session = pages.filled.session()
    [row] = pages.open("/ui/").rows
    short = f"sess_…{session[-6:]}"
    assert row[:2] == ["empty", f"No input yet metadata · no model yet · {short}"]
    assert row[2:7] == ["–", "0 turns", "– tokens", "–", "–"]


STATES: list[tuple[dict[str, Any], str, str, str]] = [
    (OPEN, "running", "running", "is-running"),
    (OPEN, "waiting_tool", "waiting for tool", "is-waiting"),
    (OPEN | {"endpoint": None}, "waiting_tool", "waiting for approval", "is-waiting"),
    (OPEN, "paused", "paused · can resume", "is-paused"),
    (
        {"status": "error", "ended_by": "provider", "error_type": "upstream_timeout"},
        "error",
        "upstream timeout",
        "is-error",
    ),
    (
        {"status": "cancelled", "ended_by": "client_disconnect"},
        "cancelled",
        "cancelled · client left",
        "is-cancelled",
    ),
]


@pytest.mark.parametrize(("turn", "run", "words", "colour"), STATES)
def test_the_state_is_in_words_with_its_cause(
    pages: FilledPages, turn: dict[str, Any], run: str, words: str, colour: str
) -> None:
    filled = pages.filled
    filled.run(filled.turn(filled.session(), **turn), status=run)
    filled.run(filled.turn(None, **turn), status=run)
    for path in ("/ui/", "/ui/turns"):
        page = pages.open(path)
        assert page.rows[0][0] == words
        assert colour in rows_of(page.tree)[0].all(class_="state")[0].attributes["class"]


def test_the_step_under_way_is_told_with_its_time_and_its_attempt(pages: FilledPages) -> None:
    filled, began = pages.filled, clock.now() - timedelta(seconds=3)
    session = filled.session()
    turn = filled.turn(session, **OPEN)
    run = filled.run(turn, status="running")
    running = {"status": "running", "ended_at": None, "started_at": began}
    filled.step(run, turn, model="gpt-4o", attempt=2, step_index=3, **running)
    page = pages.open("/ui/")
    assert page.rows[0][2].startswith("llm_call gpt-4o 2nd attempt 3.")
    assert page.rows[0][2].endswith(" s · step 4")
    assert page.tree.all("span", data_since=clock.to_rfc3339(began))


def test_a_call_that_a_client_has_to_make_is_told_with_its_arguments(pages: FilledPages) -> None:
    filled = pages.filled
    turn = filled.turn(filled.session(), **OPEN)
    run = filled.run(turn, status="waiting_tool")
    asked: dict[str, Any] = {"step_type": "tool_call", "status": "running", "ended_at": None}
    asked |= {"attempt": None, "started_at": clock.now(), "metadata": {"arguments": '{"id": 7}'}}
    for index, name in enumerate(("lookup", "refund")):
        filled.step(run, turn, name=name, step_index=index, tool_call_id=f"c{index}", **asked)
    now = pages.open("/ui/").rows[0][2]
    assert now in ('refund {"id": 7} asked now · 1 more', 'lookup {"id": 7} asked now · 1 more')


def test_an_answer_from_a_fallback_is_named(pages: FilledPages) -> None:
    filled = pages.filled
    session = filled.session(model="small")
    turn = filled.turn(session, attempts=2, llm_calls=1)
    run = filled.run(turn)
    filled.step(run, turn, status="error", model_requested="big")
    second = {"attempt": 2, "attempt_reason": "fallback", "provider_name": "backup"}
    filled.step(run, turn, step_index=1, model="small", model_requested="big", **second)
    assert "big → backup/small" in pages.open("/ui/").rows[0][1]


def test_what_clients_said_stays_text(pages: FilledPages) -> None:
    filled = pages.filled
    names = {"title": HOSTILE, "agent_name": HOSTILE, "model": HOSTILE}
    filled.session(HOSTILE, **names)
    filled.turn(None, user_input=HOSTILE, agent_name=HOSTILE, final_model=HOSTILE)
    for path in ("/ui/", "/ui/turns"):
        page = pages.open(path)
        assert page.rows[0][1].count(HOSTILE) == 3
        scripts = page.tree.all("script")
        assert all(script.attributes.get("src", "").startswith("/ui/static/") for script in scripts)


# -- filters ---------------------------------------------------------------------------------------


def test_a_query_narrows_the_list(pages: FilledPages) -> None:
    pages.filled.session("a", agent_name="support")
    pages.filled.session("b", agent_name="billing")
    page = pages.open("/ui/?q=agent%3Abilling")
    assert [row[1].split(" · ")[-1] for row in page.rows] == ["b"]
    assert page.tree.one("input", id="filter").attributes["value"] == "agent:billing"
    assert (
        page.tree.one("span", id="connection")
        .attributes["hx-ws:connect"]
        .startswith("/ui/socket?q=agent%3Abilling&page=sessions&after=")
    )


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/ui/?q=foo%3Abar", "There is no word 'foo'"),
        ("/ui/?q=cost%3Amuch", "Cost is compared"),
        ("/ui/?since=yesterday", "since: not a time"),
        ("/ui/turns?status=odd", "status: must be one of"),
    ],
)
def test_a_mistake_is_a_sentence_and_the_list_is_empty(
    pages: FilledPages, path: str, words: str
) -> None:
    pages.filled.session()
    pages.filled.turn()
    page = pages.open(path)
    assert (page.reply.status, page.rows) == (422, [])
    assert page.tree.one("p", id="filter-mistake").text.startswith(words)
    assert page.tree.all("span", id="connection") == []


def test_nothing_yet_shows_how_to_begin_and_nothing_found_does_not(pages: FilledPages) -> None:
    empty = pages.open("/ui/").tree.all(class_="empty")[0].text
    base = pages.open("/ui/").tree.all(class_="base-url")[0].one("code").text
    assert base == f"{pages.client.url}/v1"
    for told in (f"curl -N {base}/chat/completions", f"OPENAI_BASE_URL={base}", "OPENAI_API_KEY"):
        assert told in empty
    assert f'base_url="{base}"' in empty
    nothing = pages.open("/ui/?q=refund").tree.all(class_="empty")[0].text
    assert nothing.startswith("Nothing matches this filter")
    assert "OPENAI_BASE_URL" not in nothing


def test_where_a_key_is_needed_the_examples_say_so_and_show_none(tmp_path: Path) -> None:
    with filled_pages(tmp_path, server=Server(token="the-token-0001")) as pages:
        page = pages.open("/ui/", authorization="Bearer the-token-0001")
        told = page.tree.all(class_="empty")[0].text
    assert 'OPENAI_API_KEY="$XGW_TOKEN"' in told
    assert 'os.environ["XGW_TOKEN"]' in told
    assert "the-token-0001" not in page.reply.body.decode()


def test_each_count_leads_to_what_it_counts(pages: FilledPages) -> None:
    filled = pages.filled
    for key, status in (("runs", "running"), ("waits", "waiting_tool"), ("stalls", "running")):
        turn = filled.turn(filled.session(key), **OPEN)
        fresh = {} if key == "stalls" else {"started_at": clock.now()}
        filled.run(turn, status=status, **fresh)
    failed = filled.session("failed", last_turn_at=clock.now())
    filled.turn(failed, status="error", error_type="upstream_error", ended_at=clock.now())
    old = filled.session("old", -9000)
    filled.turn(old, -9000, status="error", error_type="upstream_error")
    counts = pages.open("/ui/").tree.all(class_="strip-count")
    told = [count.text for count in counts]
    assert told == ["2 running", "1 waiting for you", "1 stalled", "1 errors in the last hour"]
    found = [pages.open(count.attributes["href"]).rows for count in counts]
    keys = [{row[1].split(" · ")[-1] for row in rows} for rows in found]
    assert keys == [{"runs", "stalls"}, {"waits"}, {"stalls"}, {"failed"}]


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/ui/", "/ui/turns"])
def test_older_pages_follow_by_links_alone(pages: FilledPages, path: str) -> None:
    for number in range(2 * board.LIMIT + 3):
        pages.filled.session(f"s{number}", number)
        pages.filled.turn(None, number)
    seen: list[str] = []
    page, visited = pages.open(path), 0
    while True:
        seen += page.ids
        visited += 1
        older = page.tree.one("tbody", id="older")
        assert older.attributes["hx-get"] == older.one("a").attributes["href"]
        if "hidden" in older.attributes:
            break
        page = pages.open(older.one("a").attributes["href"])
    assert (visited, len(seen), len(set(seen))) == (3, 103, 103)
    newest = page.tree.all(class_="newest")[0].one("a").attributes["href"]
    assert pages.open(newest).ids == seen[:50]
    assert "older=1" in page.tree.one("span", id="connection").attributes["hx-ws:connect"]


def test_an_older_page_keeps_the_filter(pages: FilledPages) -> None:
    for number in range(board.LIMIT + 1):
        pages.filled.session(f"s{number}", number, agent_name="a" if number else "b")
    page = pages.open("/ui/?q=agent%3Aa")
    older = page.tree.one("tbody", id="older")
    assert "hidden" in older.attributes
    pages.filled.session("s99", -1, agent_name="a")
    href = pages.open("/ui/?q=agent%3Aa").tree.one("tbody", id="older").one("a").attributes["href"]
    assert urlsplit(href).query.startswith("q=agent%3Aa&cursor=")
    assert [row[1].split(" · ")[-1] for row in pages.open(href).rows] == ["s99"]


def test_pages_take_few_statements_whatever_they_hold(pages: FilledPages) -> None:
    filled = pages.filled
    for number in range(60):
        session = filled.session(f"s{number}", number, model="gpt-4o")
        asked = filled.text(f"Hello {number} " * (100 if number % 2 else 1))
        turn = filled.turn(session, number, user_input=asked, attempts=2, llm_calls=1)
        filled.step(filled.run(turn, number), turn, number, session_id=session)
        filled.turn(None, number, user_input=asked, attempts=2, llm_calls=1)
    # What no index finds is looked for among so many: how far that goes is a statement more.
    most = {"/ui/": 3, "/ui/turns": 3, "/ui/?q=model%3Agpt-*": 4, "/ui/strip": 1}
    for path, count in most.items():
        assert len(pages.statements(path)) == count, path


# -- live ------------------------------------------------------------------------------------------


def test_a_row_of_which_something_happened_is_drawn_as_the_page_has_it(pages: FilledPages) -> None:
    filled = pages.filled
    session, other = filled.session("s", title="One"), filled.session("other")
    screen = pages.screen("sessions")
    swaps = by_target(
        screen.drawn(event("step.completed", session), event("turn.updated", session))
    )
    assert swaps.keys() == {"strip", f"session-{session}"}
    html = swaps[f"session-{session}"].html
    assert html in pages.client.get("/ui/").body.decode()
    # "In the last hour" names the second in which the page was made.
    made_at = re.compile(r"since=[\w.%-]+")
    page = made_at.sub("", pages.client.get("/ui/").body.decode())
    assert made_at.sub("", swaps["strip"].html) in page
    # Nothing is drawn twice, and the counts only once they change.
    assert screen.drawn() == []
    assert [swap.target for swap in screen.drawn(event("turn.updated", other))] == [
        f"session-{other}"
    ]


def test_new_sessions_come_in_on_top_newest_last(pages: FilledPages) -> None:
    screen = pages.screen("sessions")
    first, second = (pages.filled.session(key, n) for n, key in enumerate(("a", "b")))
    swaps = screen.drawn(event("session.created", second), event("turn.started", first))
    added = [swap for swap in swaps if swap.style == "afterend"]
    assert [swap.target for swap in added] == ["rows-head", "rows-head"]
    rows = [rows_of(parse(swap.html))[0] for swap in added]
    assert [row.attributes["id"] for row in rows] == [f"session-{first}", f"session-{second}"]
    assert all("data-hold" in row.attributes for row in rows)


def test_nothing_comes_in_on_older_pages(pages: FilledPages) -> None:
    screen = pages.screen("sessions", older="1")
    session = pages.filled.session()
    swaps = screen.drawn(event("session.created", session))
    assert [swap.style for swap in swaps] == ["outerMorph", "outerMorph"]


def test_what_does_not_fit_the_filter_stays_out_and_goes(pages: FilledPages) -> None:
    fits = pages.filled.session("fits", agent_name="a")
    other = pages.filled.session("other", agent_name="b")
    screen = pages.screen("sessions", q="agent:a")
    swaps = screen.drawn(event("session.created", fits), event("session.created", other))
    assert [swap.target for swap in swaps if swap.style == "afterend"] == ["rows-head"]
    gone = next(swap for swap in swaps if swap.target == f"session-{other}")
    assert "data-gone" in rows_of(parse(gone.html))[0].attributes
    assert not any("data-gone" in swap.html for swap in swaps if fits in swap.target)


def test_a_deleted_session_is_taken_off(pages: FilledPages) -> None:
    gone = ids.mint("sess")
    swaps = by_target(pages.screen("sessions").drawn(event("session.deleted", gone)))
    assert swaps[f"session-{gone}"].style == "delete"


def test_an_archived_session_goes_from_the_list(pages: FilledPages) -> None:
    session = pages.filled.session(status="archived")
    [swap] = [
        s for s in pages.screen("sessions").drawn(event("session.updated", session)) if s.html
    ][1:]
    assert "data-gone" in rows_of(parse(swap.html))[0].attributes


def test_many_rows_are_read_at_once(pages: FilledPages) -> None:
    sessions = [pages.filled.session(start=n) for n in range(40)]
    screen = pages.screen("sessions")
    with selects() as statements:
        swaps = screen.drawn(*(event("step.started", session) for session in sessions))
    assert len(swaps) == 41
    assert len(statements) == 3


def test_turns_of_sessions_are_not_in_the_list_of_those_without(pages: FilledPages) -> None:
    session = pages.filled.session()
    inside, loose = pages.filled.turn(session), pages.filled.turn(None)
    assert pages.open("/ui/turns").ids == [f"turn-{loose}"]
    screen = pages.screen("turns")
    swaps = screen.drawn(event("turn.started", session, inside), event("turn.started", None, loose))
    assert [swap.target for swap in swaps] == ["strip", f"turn-{loose}", "rows-head"]


@pytest.mark.parametrize("query", ["status=error", "model=rare"])
def test_turns_without_a_session_are_narrowed_among_the_newest_first(
    pages: FilledPages, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(queries, "EXAMINED", 10)
    wanted = pages.filled.turn(None, 0, status="error", final_model="rare")
    for number in range(1, 15):
        pages.filled.turn(None, number)
    first = pages.open(f"/ui/turns?{query}")
    assert first.ids == []
    older = first.tree.one("tbody", id="older").one("a").attributes["href"]
    assert pages.open(older).ids == [f"turn-{wanted}"]


def test_no_list_is_told_what_is_said(pages: FilledPages) -> None:
    for page in ("sessions", "turns"):
        types = pages.screen(page).screen.wanted.types
        assert types is not None
        assert not types & {"step.delta", "step.progress", "message.added"}


def test_a_call_comes_in_while_the_page_is_open_and_is_there_after_a_reload(tmp_path: Path) -> None:
    with gate_and_model(tmp_path) as gate:
        gate.model.will(says("yes"), says("yes"))
        with watching(gate, open_page(gate, "/ui/")) as socket:
            gate.ended(gate.post(chat("In a session"), x_session_id="s1"))
            came = socket.until_swap("In a session", "rows-head")
            [row] = rows_of(came)
            # Drawn once or twice, as the call may be over before the first drawing.
            done = socket.until_swap("done", "rows-head", row.attributes["id"])
        assert rows_of(open_page(gate, "/ui/"))[0].text == rows_of(done)[0].text
        gate.ended(gate.post(chat("Alone")))
        [turn] = rows_of(open_page(gate, "/ui/turns"))
        assert turn.one("a").text == "Alone"
        assert len(rows_of(open_page(gate, "/ui/"))) == 1


def test_the_list_of_a_key_with_odd_letters(pages: FilledPages) -> None:
    pages.filled.session("a b/ü?&", 1)
    query = quote('"a b/ü?&"')
    assert len(pages.open(f"/ui/?q={query}").rows) == 1
