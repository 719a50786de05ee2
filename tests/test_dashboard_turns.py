"""The pages of a session and of a turn: what was said and done, what it cost, why it ended."""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from dashboard import Browser
from filled_pages import filled_pages
from filled_store import FilledStore, at, selects
from gateway_fixtures import Gate, a_test_of, gate_and_model, provider
from live_pages import Element, open_page, page_of
from scripted_model import (
    CUT,
    DONE,
    Model,
    Row,
    asks_for,
    call,
    chat,
    completion,
    delta,
    finish,
    named,
    result,
    said,
    says,
    stream,
    streams,
    user,
    whole,
)
from servers import eventually
from xgw.config import Retry, Route
from xgw.events import Envelope
from xgw.queries import runs
from xgw.queries.wording import first_token_words
from xgw.store.models import Message, Step

HOSTILE = (
    '</pre><script>window.hacked=1</script><img src="http://x.test/a.png" onerror="hacked=1">'
    '<hx-partial hx-target="body">x</hx-partial><style>*{display:none}</style>'
)
PATIENT = Retry(max_attempts=2, max_retry_after_seconds=60)
FAILED = {"error": {"message": "slow down", "type": "rate_limit", "param": None, "code": None}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    model = Model()
    fast = Retry(max_attempts=2, base_delay_ms=40, max_retry_after_seconds=1)
    with gate_and_model(
        tmp_path_factory.mktemp("turns"),
        model,
        providers=(provider(model), provider(model, "p2")),
        routes=(
            Route(model="m", targets=("p1/m",)),
            Route(model="two", targets=("p1/m-a", "p2/m-b"), retry=fast),
            Route(model="patient", targets=("p1/m-p",), retry=PATIENT),
        ),
    ) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def entries(page: Element) -> list[Element]:
    return page.all("article", class_="entry")


def bars(page: Element) -> list[Element]:
    return page.one(class_="waterfall").all("li")


def turn_page(gate: Gate, turn: Row) -> Element:
    return open_page(gate, f"/ui/turns/{turn['id']}")


def share(element: Element, name: str) -> float:
    return float(element.attributes[name].removesuffix("%"))


# -- turns -----------------------------------------------------------------------------------------


def test_a_turn_shows_what_was_said_and_what_it_took(gate: Gate) -> None:
    gate.model.will(says("An answer"))
    turn = gate.turn(gate.post(chat("A question", **named("plain"))))
    page = turn_page(gate, turn)
    asked, answered = entries(page)
    assert asked.one(class_="text").text == "A question"
    assert answered.one(class_="prose").text == "An answer"
    assert "m-served at p1 · 3 tokens" in answered.text
    boxes = [box.text for box in page.one(class_="boxes").all(class_="figure")]
    assert boxes == ["7 input tokens", "3 output", "– cache hit", "1 round-trip"]
    assert page.one(class_="truth").text.startswith("Done in ")
    assert page.one(class_="truth").text.endswith(" · p1/m-served · finish reason stop")
    assert [bar.one("a").text for bar in bars(page)] == ["llm_call m-served"]
    assert "A question" in page.one("title").text


def test_between_two_attempts_the_page_says_what_is_waited_for(gate: Gate) -> None:
    later = "Retry-After: 30\r\n"
    gate.model.will(whole(FAILED, status="429 Too Many Requests", headers=later))
    with contextlib.closing(gate.send(chat(model="patient", **named("between tries")))):
        eventually(lambda: gate.all(Step, Step.error_message == "slow down", Step.model == "m-p"))
        (turn,) = gate.turns("between tries")
        truth = turn_page(gate, turn).one(class_="truth").text
    assert truth.startswith("Running 00:")
    assert truth.endswith(" · waits 30.0 s, then asks p1/m-p again")
    eventually(lambda: gate.turns("between tries")[0]["ended_at"])


def test_three_attempts_are_drawn_with_the_wait_between_them(gate: Gate) -> None:
    gate.model.will(
        whole(FAILED, status="429 Too Many Requests"),
        whole(FAILED, status="503 Busy"),
        says("served at last"),
    )
    turn = gate.turn(gate.post(chat(model="two", **named("tries"))))
    page = turn_page(gate, turn)
    first, second, third = bars(page)
    assert [bar.one("a").text for bar in (first, second, third)] == [
        "llm_call m-a",
        "llm_call 2nd attempt",
        "llm_call fallback m-served",
    ]
    assert [bar.all("span")[-1].text for bar in (first, second)] == ["429", "503"]
    assert [len(bar.all("line", class_="wait")) for bar in (first, second, third)] == [0, 1, 0]
    wait, work = second.one("line"), second.one("rect", class_="work")
    assert share(wait, "x1") < share(wait, "x2") == share(work, "x")
    steps = gate.steps(turn)
    assert (
        f"after a wait of {steps[1]['waited_ms']} ms" in second.one("svg").attributes["aria-label"]
    )
    assert "served by the 3rd attempt" in page.one(class_="truth").text
    assert "1 round-trip +2 failed" in page.one(class_="boxes").text
    told = [entry.text for entry in entries(page)[1:]]
    assert ["slow down" in words for words in told] == [True, True, False]
    lists = open_page(gate, "/ui/")
    row = lists.one(id=f"session-{turn['session_id']}")
    assert "+2" in row.text


def test_an_answer_that_broke_off_says_so_with_its_cause(gate: Gate) -> None:
    gate.model.will(stream(delta("half an ans"), CUT))
    turn = gate.ended(gate.post(chat(stream=True, **named("cut"))))
    page = turn_page(gate, turn)
    answer = entries(page)[-1]
    assert "half an ans" in answer.text
    assert "broke off here" in answer.text
    assert "upstream truncated" in answer.text
    assert page.one(class_="error-box").text.startswith("upstream truncated: ")
    assert page.one(class_="truth").text.startswith("Failed after ")


def test_a_turn_that_waits_for_tools_says_for_which_and_until_when(gate: Gate) -> None:
    gate.model.will(asks_for("call_1"))
    turn = gate.turn(gate.post(chat("look", **named("waits"))))
    page = turn_page(gate, turn)
    truth = page.one(class_="truth").text
    assert truth.startswith("Waiting 00:0")
    assert truth.endswith("for the results of look")
    assert "waiting for tools" in page.one(class_="stops").text
    assert page.one(class_="stops").text.endswith("of 15 min 00 s")
    assert "data-open" in bars(page)[-1].one("rect").attributes
    asked = [user("look"), said(None, call("call_1")), result("call_1")]
    gate.model.will(says("thanks"))
    gate.post(chat(*asked, **named("waits")))


def test_calls_outside_of_a_session_show_the_tools_they_ask_for(gate: Gate) -> None:
    gate.model.will(whole(completion(None, call("call_7", "look", '{"at": "me"'))))
    turn = gate.turn(gate.post(chat("look")))
    page = turn_page(gate, turn)
    asked = page.one(class_="asked")
    assert asked.one(class_="tool-name").text == "look"
    assert asked.one(class_="line").text == '{"at": "me"'
    assert [e.text for e in page.one("nav", class_="crumbs").all("a")] == ["Without a session"]


def test_a_running_turn_can_be_cancelled_where_it_is_shown(gate: Gate) -> None:
    wait = threading.Event()
    gate.model.will(stream(delta("so far"), wait, finish(), DONE))
    reading = gate.open(chat("go", stream=True, **named("cancel")))
    reading.until(b"so far")
    browser = Browser(gate.url)
    page = browser.open("/ui/sessions/cancel")
    [turn] = gate.turns("cancel")
    action = f"/ui/turns/{turn['id']}/cancel"
    assert [e.attributes["action"] for e in page.all("form", method="post")][-1] == action
    assert browser.send(action, {"csrf": "x"}, follow=False).status == 403
    sent = browser.send(
        action, {}, follow=False, Referer=f"{gate.url}/ui/sessions/cancel?turn=active"
    )
    assert (sent.status, sent.headers["location"]) == (303, "/ui/sessions/cancel?turn=active")
    wait.set()
    assert b"turn_cancelled" in reading.rest().body
    after = open_page(gate, "/ui/sessions/cancel")
    assert "cancelled by a person" in after.one(class_="truth").text
    assert not after.all("button", class_="danger")


def test_the_first_tokens_time_is_the_same_live_and_afterwards(gate: Gate) -> None:
    wait = threading.Event()
    gate.model.will(stream(delta("so far"), wait, finish(), DONE))
    reading = gate.open(chat("go", stream=True, **named("first")))
    reading.until(b"so far")
    [turn] = gate.turns("first")
    [step] = gate.steps(turn)
    told = gate.services.recorder.live.progress_of(step["id"])
    wait.set()
    reading.rest()
    assert told is not None
    page = turn_page(gate, gate.ended(reading))
    assert first_token_words(told) in page.one(class_="truth").text


def test_nothing_that_was_said_becomes_markup(gate: Gate) -> None:
    arguments = '{"x": "' + HOSTILE.replace('"', '\\"') + '"}'
    gate.model.will(
        whole(completion(HOSTILE, call("call_<b>", HOSTILE[:60], arguments))),
        whole({"error": {"message": HOSTILE, "type": "x"}}, status="400 Bad Request"),
    )
    key = "k" + HOSTILE[:40]
    messages = [{"role": "system", "content": HOSTILE}, user(HOSTILE)]
    turn = gate.turn(gate.post(chat(*messages, **named(key))))
    failed = gate.turn(gate.post(chat(HOSTILE, model="m", **named(key))))
    paths = [f"/ui/turns/{t['id']}" for t in (turn, failed)]
    for path in [*paths, f"/ui/sessions/{turn['session_id']}", "/ui/"]:
        page = open_page(gate, path)
        scripts = [e.attributes.get("src", "") for e in page.all("script")]
        assert len(scripts) == 5
        assert all(source.startswith("/ui/static/") for source in scripts)
        for tag in ("img", "style", "hx-partial", "template"):
            assert not page.one("main").all(tag)
        for element in page.walk():
            assert not [name for name in element.attributes if name.startswith("on")]
            assert "style" not in element.attributes


def test_a_turn_that_is_not_there(gate: Gate) -> None:
    page = page_of(gate.get("/ui/turns/turn_nothing"), 404)
    assert "There is no turn" in page.text


@contextlib.contextmanager
def filled_gate(folder: Path) -> Iterator[tuple[Gate, FilledStore]]:
    """A whole server, into whose store a test writes row by row, as another process would."""
    with gate_and_model(folder) as gate:
        filled = FilledStore(folder)
        try:
            yield gate, filled
        finally:
            filled.close()


@pytest.mark.parametrize("kind", ["chat", "agent"])
@pytest.mark.parametrize("count", [1, 30])
def test_pages_take_few_statements_however_much_there_is(
    tmp_path: Path, kind: str, count: int
) -> None:
    with filled_gate(tmp_path) as (gate, filled):
        session = filled.session("many", kind=kind, agent_name="a" if kind == "agent" else None)
        columns: dict[str, Any] = {"agent_name": "a", "endpoint": None} if kind == "agent" else {}
        config = filled.body({"limits": {"max_iterations": 9}, "instructions": "Be brief. " * 90})
        for index in range(count):
            asked = filled.text(f"asked {index} at length " * 60)
            answer = filled.text(f"answered {index} at length " * 60)
            turn = filled.turn(
                session,
                index,
                turn_index=index,
                user_input=asked,
                final_output=answer,
                config_snapshot=config if kind == "agent" else None,
                **columns,
            )
            run = filled.run(turn, index)
            steps = [
                filled.step(run, turn, index, step_index=n, session_id=session) for n in range(3)
            ]
            parts = [{"type": "text", "text": f"part {index} " * 300}]
            filled.message(session, turn, 2 * index, content=asked, parts=filled.json(parts))
            filled.message(session, turn, 2 * index + 1, step_id=steps[0], content=answer)
        asking = {**columns, "turn_index": count, "status": "queued", "user_input": "Next?"}
        filled.turn(session, count, **asking)
        paths = {
            f"/ui/turns/{turn}": 3,
            f"/ui/sessions/{session}": 4,
            "/ui/sessions/many?turn=active": 4,
            f"/ui/sessions/{session}?turn={turn}": 4,
        }
        for path, most in paths.items():
            with selects() as found:
                page = open_page(gate, path)
            statements = [one for one in found if "api_keys" not in one[0]]
            assert len(statements) == most, [text for text, _ in statements]
        page = open_page(gate, f"/ui/sessions/{session}")
        assert page.one("h1").text.startswith("asked 0 at length")
        assert len(page.all("section", class_="turn-block")) == min(20, count + 1)
        assert page.one("section", class_="turn-panel").attributes["id"] == f"turn-{turn}"
        assert ("iterations" in page.one("aside").text) == (kind == "agent")
        if kind == "agent":
            assert "Next?" in page.one(id=f"waiting-{session}").text


def test_the_panel_of_a_turn_with_very_many_steps_has_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MOST_STEPS", 3)
    with filled_gate(tmp_path) as (gate, filled):
        session = filled.session()
        turn = filled.turn(session)
        run = filled.run(turn)
        for number in range(5):
            filled.step(run, turn, number, step_index=number, session_id=session)
        page = open_page(gate, f"/ui/sessions/{session}")
        assert len(page.one("aside").all("li", class_="bar")) == 5
        assert len(page.one(id=f"entries-{turn}").all("article")) == 3


# -- sessions --------------------------------------------------------------------------------------


def test_a_session_shows_its_head_its_turns_and_the_newest_of_them(gate: Gate) -> None:
    gate.model.will(says("one"), says("two"))
    messages = [user("First question")]
    gate.post(chat(*messages, **named("head")))
    messages += [said("one"), user("Second question")]
    gate.post(chat(*messages, **named("head")))
    page = open_page(gate, "/ui/sessions/head")
    assert page.one("h1").text == "First question"
    figures = [f.text for f in page.one("header", class_="session-head").all(class_="figure")]
    assert figures[:4] == ["4 messages", "14 / 6 tokens in / out", "– cached", "– cost"]
    lines = page.one(id="turn-list").all("li")
    assert [line.one(class_="line-input").text for line in lines] == [
        "First question",
        "Second question",
    ]
    assert ["is-chosen" in line.attributes["class"].split() for line in lines] == [False, True]
    assert [e.text for e in page.one(id="side").all("h2")] == ["Turn 2"]
    first = gate.turns("head")[0]
    other = open_page(gate, f"/ui/sessions/head?turn={first['id']}")
    assert [e.text for e in other.one(id="side").all("h2")] == ["Turn 1"]


def test_a_title_can_be_given_and_taken_back(gate: Gate) -> None:
    gate.model.will(says())
    gate.post(chat("My first words", **named("titled")))
    browser = Browser(gate.url)
    page = browser.open("/ui/sessions/titled")
    action = next(
        e.attributes["action"] for e in page.all("form") if "/title" in e.attributes["action"]
    )
    assert "Named by hand" in browser.send(action, {"title": " Named by hand "}).text
    assert gate.session("titled")["title"] == "Named by hand"
    assert browser.send(action, {"title": "x" * 501}).status == 422
    again = browser.send(action, {"title": ""})
    assert gate.session("titled")["title"] is None
    assert "My first words" in again.text


def test_the_tools_of_the_last_call_each_with_its_schema(gate: Gate) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    gate.model.will(says())
    gate.post(chat("hi", tools=[tool], **named("tooled")))
    page = open_page(gate, "/ui/sessions/tooled/tools")
    assert page.one(class_="tool").one("code").text == "weather"
    assert '"city"' in page.one(class_="tool").one("pre").text
    link = page.one("nav", class_="crumbs").one("a").attributes["href"]
    head = open_page(gate, link).one("header", class_="session-head")
    assert "hx-get" in head.one(hx_get=f"{link}/tools").attributes


def test_earlier_turns_come_by_pages_that_meet(gate: Gate) -> None:
    for number in range(23):
        gate.model.will(says(f"answer {number}"))
        gate.post(chat(f"question {number}", **named("long")))
    page = open_page(gate, "/ui/sessions/long")
    shown = [e.text for e in page.all(class_="line-input")]
    assert shown == [f"question {n}" for n in range(3, 23)]
    link = page.one(id="more-turns").one("a").attributes["href"]
    older = open_page(gate, link)
    assert [e.text for e in older.all(class_="line-input")] == [f"question {n}" for n in range(3)]
    assert not older.one(id="more-turns").all("a")
    assert "Newest turns" in older.text


def test_a_very_long_message_is_cut_and_can_be_read_whole(gate: Gate) -> None:
    text = "line of words\n" * 40_000
    gate.model.will(says("short"))
    turn = gate.turn(gate.post(chat(text, **named("huge"))))
    reply = gate.get(f"/ui/turns/{turn['id']}")
    assert len(reply.body) < 600_000
    page = page_of(reply)
    link = page.one(class_="cut-note").one("a").attributes["href"]
    assert "560.0 kB in all" in page.one(class_="cut-note").text
    found = gate.get(link)
    assert found.headers["content-type"] == "text/plain; charset=utf-8"
    assert found.body.decode() == text
    message = gate.all(Message, Message.turn_id == turn["id"])[0]
    assert link == f"/ui/messages/{message['id']}"
    assert gate.get("/ui/messages/msg_nothing").status == 404


def test_a_session_without_a_turn_shows_how_to_begin(gate: Gate) -> None:
    gate.post({"session_key": "empty-1"}, path="/sessions")
    page = open_page(gate, "/ui/sessions/empty-1")
    assert "Nothing was said yet" in page.text
    line = page.one(id="conversation-empty").one("code").text
    command, url, *options = shlex.split(line.replace(" -N ", " "))
    assert (command, url) == ("curl", f"{gate.url}/v1/chat/completions")
    assert "X-Session-Id: empty-1" in options
    gate.model.will(streams("Here"))
    body = orjson.loads(options[options.index("-d") + 1])
    gate.ended(gate.post(body, x_session_id="empty-1"))
    assert "Nothing was said yet" not in open_page(gate, "/ui/sessions/empty-1").text


def test_a_key_that_no_header_takes_is_named_in_the_url(gate: Gate) -> None:
    id = gate.post({"session_key": "ключ 1"}, path="/sessions").json["id"]
    line = open_page(gate, f"/ui/sessions/{id}").one(id="conversation-empty").one("code").text
    assert f"{gate.url}/s/{quote('ключ 1')}/v1/chat/completions" in line
    assert "X-Session-Id" not in line


def test_session_keys_with_anything_in_them_have_a_page(gate: Gate) -> None:
    gate.model.will(says())
    turn = gate.turn(gate.post(chat(**named("a key/with ünïcode?&#"))))
    page = open_page(gate, f"/ui/sessions/{turn['session_id']}")
    assert "a key/with ünïcode?&#" in page.text


def test_streams_stand_on_a_page_that_is_opened_in_the_middle(gate: Gate) -> None:
    wait = threading.Event()
    gate.model.will(stream(delta("already here"), wait, finish(), DONE))
    reading = gate.open(chat("go", stream=True, **named("middle")))
    reading.until(b"already here")
    gate.services.recorder.live.pulse()
    page = open_page(gate, "/ui/sessions/middle")
    place = page.one(class_="is-text")
    assert place.text == "already here"
    assert place.attributes["data-length"] == "12"
    wait.set()
    reading.rest()


@pytest.mark.parametrize("page", ["turn", "session"])
def test_a_text_that_goes_on_costs_the_server_no_reading(tmp_path: Path, page: str) -> None:
    with filled_pages(tmp_path) as pages:
        filled = pages.filled
        session = filled.session("s")
        turn = filled.turn(session, status="running", ended_at=None)
        step = filled.step(filled.run(turn, status="running"), turn, status="running")
        screen = pages.screen(page, id=turn if page == "turn" else session)
        pieces = [
            Envelope(
                None,
                "step.delta",
                at(0),
                "default",
                session,
                turn,
                None,
                step,
                {"kind": "text", "index": 0, "text": "x", "text_length": length},
            )
            for length in (1, 2, 3)
        ]
        assert [swap.target for swap in screen.drawn(pieces[0])] == [f"step-{step}"]
        with selects() as statements:
            assert screen.drawn(*pieces[1:]) == []
        assert statements == []
