"""The log of requests: its list, one of them with headers, bodies and timing, the raw bodies."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from filled_pages import FilledPages, filled_pages, rows_of
from filled_store import at, selects
from gateway_fixtures import CHAT, PROVIDER_KEY, gate_and_model
from live_pages import Element, open_page, parse, socket_path, watching
from scripted_model import chat, says, streams
from xgw import clock, ids
from xgw.events import Envelope
from xgw.queries import pages as queries
from xgw.web import board
from xgw.web.words import SHOWN_BYTES

HOSTILE = "<script>alert(1)</script>\"'&<!--"
OPEN: dict[str, Any] = {"ended_at": None, "status_code": None}


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[FilledPages]:
    with filled_pages(tmp_path) as opened:
        yield opened


def event(type: str, step: str, **payload: Any) -> Envelope:
    return Envelope(1, type, at(0), "default", None, None, None, step, payload)


def session_event(type: str, session: str) -> Envelope:
    return Envelope(1, type, at(0), "default", session, None, None, None, {})


def turn_event(type: str, turn: str, step: str) -> Envelope:
    return Envelope(1, type, at(0), "default", None, turn, None, step, {})


def headings(page: Element) -> list[str]:
    return [heading.text for heading in page.all("h2")]


# -- the list --------------------------------------------------------------------------------------


def test_a_row_tells_a_request_at_a_glance(pages: FilledPages) -> None:
    turn = pages.filled.turn()
    request = pages.filled.request(
        turn,
        provider_name="openai",
        model="gpt-4o",
        endpoint="/chat/completions",
        stream=1,
        latency_ms=1750,
        ttft_ms=466,
        input_tokens=1200,
        output_tokens=44,
        bytes_sent=117,
        bytes_received=12900,
    )
    page = pages.open("/ui/requests")
    [row] = page.rows
    assert page.ids == [f"request-{request}"]
    assert row[1:] == [
        "200",
        "openai/gpt-4o /chat/completions · streamed",
        "took 1.75 s",
        "first token 466 ms",
        "1,200 → 44 tokens",
        "117 B → 12.9 kB",
        "turn",
    ]
    links = [link.attributes["href"] for link in rows_of(page.tree)[0].all("a")]
    assert links == [f"/ui/requests/{request}", f"/ui/turns/{turn}"]


ENDS: list[tuple[dict[str, Any], str, str, str]] = [
    (OPEN, "running", "is-running", "/chat/completions"),
    ({"status_code": 204}, "204", "is-done", "/chat/completions"),
    (
        {"status_code": 429, "error_type": "upstream_rate_limit", "error_message": "slow down"},
        "429",
        "is-error",
        "upstream_rate_limit: slow down",
    ),
    (
        {"status_code": None, "error_type": "upstream_unreachable"},
        "failed",
        "is-error",
        "upstream_unreachable",
    ),
]


@pytest.mark.parametrize(("columns", "status", "colour", "words"), ENDS)
def test_how_it_ended(
    pages: FilledPages, columns: dict[str, Any], status: str, colour: str, words: str
) -> None:
    pages.filled.request(endpoint="/chat/completions", model="m", **columns)
    page = pages.open("/ui/requests")
    assert page.rows[0][1:3] == [status, f"m {words}"]
    assert len(rows_of(page.tree)[0].all(class_=colour)) == 1


def test_it_is_narrowed_by_each_of_its_filters(pages: FilledPages) -> None:
    turn = pages.filled.turn()
    wanted = pages.filled.request(
        turn, provider_name="backup", model="big", status_code=503, error_type="upstream_error"
    )
    pages.filled.request(provider_name="openai", model="small")
    for query in (
        "status=error",
        "status_code=503",
        "status_code=5xx",
        "provider=backup",
        "model=big",
        f"turn_id={turn}",
        "status=error&provider=backup&model=",
    ):
        page = pages.open(f"/ui/requests?{query}")
        assert page.ids == [f"request-{wanted}"], query
    form = pages.open("/ui/requests?status=error&provider=backup&model=big").tree.one(
        "form", role="search", class_="filter"
    )
    chosen = [option.text for option in form.all("option") if "selected" in option.attributes]
    assert chosen == ["error", "backup"]
    assert form.one("input", name="model").attributes["value"] == "big"


def test_a_mistake_and_nothing_found_are_told_apart(pages: FilledPages) -> None:
    assert pages.open("/ui/requests").tree.one(class_="empty").text.startswith("No requests yet")
    pages.filled.request()
    wrong = pages.open("/ui/requests?status_code=999")
    assert (wrong.reply.status, wrong.rows) == (422, [])
    assert wrong.tree.one(id="filter-mistake").text.startswith("status_code: must be")
    nothing = pages.open("/ui/requests?model=x").tree.one(class_="empty").text
    assert nothing.startswith("Nothing matches this filter")


def test_older_pages_follow_by_links_alone(pages: FilledPages) -> None:
    for number in range(board.LIMIT + 5):
        pages.filled.request(start=number, model="m")
    first = pages.open("/ui/requests?model=m")
    href = first.tree.one("tbody", id="older").one("a").attributes["href"]
    second = pages.open(href)
    assert len(first.ids) == board.LIMIT
    assert len(set(first.ids + second.ids)) == board.LIMIT + 5
    assert "hidden" in second.tree.one("tbody", id="older").attributes


def test_what_no_index_finds_is_looked_for_among_the_newest_first(
    pages: FilledPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "EXAMINED", 10)
    wanted = pages.filled.request(start=0, provider_name="rare")
    for number in range(1, 25):
        pages.filled.request(start=number, provider_name="usual")
    page, opened = pages.open("/ui/requests?provider=rare"), 1
    assert "Nothing found so far" in page.tree.one(class_="empty").text
    while not page.ids:
        older = page.tree.one("tbody", id="older").one("a")
        assert older.text == "Look among older ones"
        page, opened = pages.open(older.attributes["href"]), opened + 1
    assert (page.ids, opened) == ([f"request-{wanted}"], 3)


def test_pages_take_few_statements(pages: FilledPages) -> None:
    for number in range(60):
        pages.filled.request(start=number)
    body = pages.filled.body({"messages": [{"role": "user", "content": str(n)} for n in range(9)]})
    request = pages.filled.request(request_payload=body, response_body=body)
    assert len(pages.statements("/ui/requests")) == 2
    # The newest event, the row, its two bodies with all that is kept apart.
    assert len(pages.statements(f"/ui/requests/{request}")) == 3


# -- one request -----------------------------------------------------------------------------------


def test_a_request_is_shown_whole_and_can_be_sent_again(tmp_path: Path) -> None:
    with gate_and_model(tmp_path) as gate:
        gate.model.will(streams("Hel", "lo"))
        turn = gate.ended(gate.post(chat("Hi", stream=True)))
        [log] = gate.requests(turn)
        page = open_page(gate, f"/ui/requests/{log['id']}")
        whole = page.text
        bodies = [pre.text for pre in page.all("pre", class_="body")]
        curl = page.one("div", class_="to-copy").one("button").attributes["data-copy"]
        raw = {
            side: gate.get(f"/ui/requests/{log['id']}/{side}") for side in ("request", "response")
        }
    assert f"POST {log['url']}" in page.one("h1").text
    for told in ("p1/m", "/chat/completions · streamed", "authorization", "text/event-stream"):
        assert told in whole
    assert PROVIDER_KEY not in whole
    assert '"content": "Hi"' in bodies[0]
    assert "data: " in bodies[1]
    assert "[DONE]" in bodies[1]
    assert shlex.split(curl)[:2] == ["curl", log["url"]]
    assert orjson.loads(raw["request"].body) == orjson.loads(gate.model.asked[0].body)
    assert raw["response"].body.endswith(b"data: [DONE]\n\n")
    links = [link.attributes["href"] for link in page.all("a")]
    assert {f"/ui/turns/{turn['id']}", f"/ui/steps/{log['step_id']}"} <= set(links)


def test_a_failure_stands_on_top(pages: FilledPages) -> None:
    request = pages.filled.request(
        status_code=429,
        error_type="upstream_rate_limit",
        error_message="slow down",
        error_body='{"error": 1}',
    )
    page = pages.open(f"/ui/requests/{request}")
    box = page.tree.one("p", class_="error-box")
    assert box.text == "upstream rate limit: slow down"
    assert page.reply.body.index(b"error-box") < page.reply.body.index(b"boxes")
    assert page.tree.one("pre", class_="body").text == '{"error": 1}'
    raw = pages.open(f"/ui/requests/{request}/response").reply
    assert raw.body == b'{"error": 1}'


def test_the_timing_of_a_stream_is_drawn(pages: FilledPages) -> None:
    frames = [[0, 400], [100, 500], [200, 1500]]
    request = pages.filled.request(frames=orjson.dumps(frames).decode(), bytes_received=500)
    page = pages.open(f"/ui/requests/{request}").tree
    chart = page.one("svg", class_="reads")
    words = "3 reads from 400 ms to 1.50 s, longest silence 1.00 s"
    assert chart.attributes["aria-label"] == words
    bars = [(float(b.attributes["x"]), float(b.attributes["height"])) for b in chart.all("rect")]
    assert [round(x) for x, _ in bars] == [26, 33, 99]
    assert [round(height) for _, height in bars] == [33, 33, 100]
    whole = pages.open(f"/ui/requests/{pages.filled.request(latency_ms=5)}").tree
    assert "How the answer came" in headings(page)
    assert "How the answer came" not in headings(whole)


def test_a_long_body_is_cut_with_a_link_to_the_whole(pages: FilledPages) -> None:
    body = b'{"a": "' + b"x" * (2 * SHOWN_BYTES) + b'END"}'
    request = pages.filled.request(request_payload=pages.filled.body(body))
    page = pages.open(f"/ui/requests/{request}")
    shown = page.tree.one("pre", class_="body").text
    assert len(shown) == SHOWN_BYTES
    assert "the first 256 KiB are shown" in page.tree.text
    link = page.tree.one("p", class_="body-note").one("a")
    assert link.text == "the whole"
    assert pages.open(link.attributes["href"]).reply.body == body
    assert "Send it again" not in headings(page.tree)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"a":1,"b":[true]}', '{ "a": 1, "b": [ true ] }'),
        (b'{"a":1,"a":2}', '{"a":1,"a":2}'),
        (b'{"big":123456789012345678901234567890}', '{"big":123456789012345678901234567890}'),
        (b'{"n":1.0e2}', '{"n":1.0e2}'),
        (b"\xff not text", "� not text"),
        (b"[" * 2000, "[" * 2000),
        (b"[" * 600 + b"]" * 600, "[" * 600 + "]" * 600),
    ],
)
def test_json_is_set_out_where_that_changes_nothing(
    pages: FilledPages, body: bytes, shown: str
) -> None:
    request = pages.filled.request(response_body=pages.filled.body(body))
    assert pages.open(f"/ui/requests/{request}").tree.one("pre", class_="body").text == shown


def test_what_is_gone_or_unknown_is_said(pages: FilledPages) -> None:
    gone = pages.filled.body(b"once there")
    request = pages.filled.request(request_payload=gone, **OPEN)
    pages.filled.forget(gone)
    page = pages.open(f"/ui/requests/{request}").tree
    assert "Not in the store any more." in page.text
    assert "No body." in page.text
    assert "Send it again" not in headings(page)
    for path in (f"/ui/requests/{request}/request", f"/ui/requests/{request}/response"):
        assert pages.open(path).reply.status == 404
    for path in ("/ui/requests/req_none", "/ui/requests/req_none/request"):
        assert pages.open(path).reply.status == 404


def test_what_others_sent_stays_text(pages: FilledPages) -> None:
    body = pages.filled.body(HOSTILE.encode())
    pairs = orjson.dumps([[HOSTILE, HOSTILE]]).decode()
    names = ("provider_name", "model", "endpoint", "url", "error_type", "error_message")
    request = pages.filled.request(
        request_payload=body,
        response_body=body,
        error_body=HOSTILE,
        request_headers=pairs,
        response_headers=pairs,
        client=orjson.dumps({"user_agent": HOSTILE}).decode(),
        method=HOSTILE,
        **dict.fromkeys(names, HOSTILE),
    )
    for path in ("/ui/requests", f"/ui/requests/{request}"):
        page = pages.open(path)
        assert HOSTILE.encode() not in page.reply.body
        assert page.tree.text.count(HOSTILE) >= (3 if path == "/ui/requests" else 12)
        assert all("src" in script.attributes for script in page.tree.all("script"))


def test_no_browser_takes_a_raw_body_for_a_page(pages: FilledPages) -> None:
    request = pages.filled.request(response_body=pages.filled.body(HOSTILE.encode()))
    raw = pages.open(f"/ui/requests/{request}/response").reply
    assert raw.body == HOSTILE.encode()
    assert raw.headers["content-type"] == "text/plain; charset=utf-8"
    assert raw.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in raw.headers["content-security-policy"]
    assert raw.headers["cache-control"] == "no-store"


# -- live ------------------------------------------------------------------------------------------


def test_a_request_comes_in_on_top_and_its_end_is_drawn_in_place(pages: FilledPages) -> None:
    screen = pages.screen("requests")
    turn = pages.filled.turn()
    step = pages.filled.step(pages.filled.run(turn), turn)
    request = pages.filled.request(turn, step_id=step, started_at=clock.now(), **OPEN)
    begun = screen.drawn(event("step.started", step, step_type="llm_call"))
    assert [(s.target, s.style) for s in begun] == [
        (f"request-{request}", "outerMorph"),
        ("rows-head", "afterend"),
    ]
    assert "data-hold" in rows_of(parse(begun[1].html))[0].attributes
    [ended] = screen.drawn(event("step.completed", step))
    assert (ended.target, ended.style) == (f"request-{request}", "outerMorph")
    assert screen.drawn() == []


def test_other_steps_and_other_filters_change_nothing(pages: FilledPages) -> None:
    screen = pages.screen("requests", model="big")
    assert screen.drawn(event("step.started", ids.mint("step"), step_type="tool_call")) == []
    turn = pages.filled.turn()
    step = pages.filled.step(pages.filled.run(turn), turn)
    pages.filled.request(turn, step_id=step, model="small")
    [swap] = screen.drawn(event("step.started", step, step_type="llm_call"))
    assert "data-gone" in rows_of(parse(swap.html))[0].attributes


def test_many_are_read_at_once(pages: FilledPages) -> None:
    steps = []
    for _ in range(20):
        turn = pages.filled.turn()
        steps.append(pages.filled.step(pages.filled.run(turn), turn))
        pages.filled.request(turn, step_id=steps[-1])
    screen = pages.screen("requests")
    with selects() as statements:
        assert len(screen.drawn(*(event("step.completed", step) for step in steps))) == 20
    assert len(statements) == 1


def test_requests_of_a_deleted_session_are_named_by_it(pages: FilledPages) -> None:
    session = pages.filled.session()
    request = pages.filled.request(pages.filled.turn(session), session_id=session)
    page = pages.open("/ui/requests").tree
    row = page.one("tbody", id=f"request-{request}")
    assert row.attributes["data-session"] == session
    assert page.one(id="deleted").attributes["data-deleted"] == ""
    screen = pages.screen("requests")
    [swap] = screen.drawn(session_event("session.deleted", session))
    assert swap.target == "deleted"
    assert parse(swap.html).one(id="deleted").attributes["data-deleted"] == session
    assert screen.drawn(session_event("session.created", session)) == []


def test_the_page_of_a_request_is_drawn_once_it_has_ended(pages: FilledPages) -> None:
    filled = pages.filled
    turn = filled.turn()
    run = filled.run(turn)
    step, other = (filled.step(run, turn, step_index=number) for number in range(2))
    request = filled.request(turn, step_id=step, **OPEN)
    page = pages.open(f"/ui/requests/{request}").tree
    assert page.one("h1").one(class_="state").text == "running"
    path = socket_path(page)
    assert all(part in path for part in ("page=request", f"id={request}", f"turn={turn}"))
    screen = pages.screen("request", id=request, turn=turn, step=step)
    assert screen.drawn(turn_event("step.completed", turn, other)) == []
    filled.change("request_logs", request, status_code=200, ended_at=at(2))
    [swap] = screen.drawn(turn_event("step.completed", turn, step))
    assert swap.target == f"request-{request}"
    assert swap.html.strip() in pages.client.get(f"/ui/requests/{request}").body.decode()
    assert parse(swap.html).one("h1").one(class_="state").text == "200"
    assert screen.drawn() == []


def test_a_request_without_a_turn_is_not_kept_up_to_date(pages: FilledPages) -> None:
    page = pages.open(f"/ui/requests/{pages.filled.request()}").tree
    assert not [e for e in page.walk() if "hx-ws:connect" in e.attributes]


def test_an_attempt_is_seen_while_it_happens_and_after_a_reload(tmp_path: Path) -> None:
    with gate_and_model(tmp_path) as gate:
        gate.model.will(says("yes"))
        with watching(gate, open_page(gate, "/ui/requests")) as socket:
            gate.ended(gate.post(chat("Hi"), CHAT))
            [row] = rows_of(socket.until_swap("p1/m", "rows-head"))
            done = socket.until_swap("200", "rows-head", row.attributes["id"])
        assert rows_of(open_page(gate, "/ui/requests"))[0].text == rows_of(done)[0].text
