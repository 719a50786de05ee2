"""Every screen in a real browser: for everyone, at both widths, in both colours, by keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from accessibility import assert_accessible, assert_for_everyone
from gateway_fixtures import Gate, a_test_of, gate_and_model, provider
from page_width import assert_fits
from scripted_model import (
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
    usage,
    user,
    whole,
)
from spoken import Talk
from visits import NARROW, WIDE, Visits
from xgw.config import Retry, Route, Server

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

FAILURE = {"error": {"message": "slow down " * 40, "type": "rate_limit"}}
ANSWER = (
    "# Found\n\nSome **bold** text and `code`, [a link](https://x.test).\n\n"
    "| a | b |\n|---|--:|\n| 1 | 2 |\n\n- one\n- two\n\n> said\n\n"
    f"```python\nprint('it', {'1' * 300})  # yes\n```\n\n{'W' * 400}\n"
)
OFFERED = [
    {
        "type": "function",
        "function": {"name": name, "description": "Looks. " * 40, "parameters": {"type": "object"}},
    }
    for name in ("look", "look_for_a_thing_with_a_very_long_name_" * 2)
]
RUNS_ON = re.compile(r"\b([\d.]+ (ms|s|min)( ago)?|now|\d\d:\d\d)\b")
"""Times that go on while a page is looked at."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    model = Model()
    fast = Retry(max_attempts=1, base_delay_ms=10)
    with gate_and_model(
        tmp_path_factory.mktemp("screens"),
        model,
        providers=(provider(model), provider(model, "p2")),
        routes=(Route(model="m", targets=("p1/m", "p2/m"), retry=fast),),
    ) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def conversation(gate: Gate, session: str) -> list[Row]:
    """Turns of every kind: with attempts, reasoning, tools; failed; one that waits for tools."""
    busy = whole(FAILURE, status="429 Too Many Requests")
    gate.model.will(
        busy,
        stream(delta(reasoning_content="hm " * 200), delta(ANSWER), finish(), usage(7, 3), DONE),
        asks_for("c1", "c2"),
        says("Both were found"),
        busy,
        busy,
        asks_for("c3"),
    )
    system: Row = {"role": "system", "content": "Be brief. " * 100}
    say = [system, user("Find it")]
    gate.post(chat(*say, stream=True, tools=OFFERED, **named(session)))
    say += [said(ANSWER), user("Look " * 300)]
    gate.post(chat(*say, tools=OFFERED, **named(session)))
    say += [said(None, call("c1"), call("c2", "look", '{"for": "' + "x" * 500 + '"}'))]
    say += [result("c1", "here " * 400), result("c2", '{"found": [1, 2, 3]}')]
    gate.post(chat(*say, tools=OFFERED, **named(session)))
    say += [said("Both were found")]
    gate.post(chat(*say, "This fails", tools=OFFERED, **named(session)))
    gate.post(chat(*say, "And this waits", tools=OFFERED, **named(session)))
    return gate.turns(session)


def check(page: Page) -> None:
    """It can be used by everyone and fits, also with everything open that can be opened."""
    assert_for_everyone(page)
    if page.locator("main details:not([open])").count():
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        if page.locator("[id^=tools-of-] a").count():
            page.locator("[id^=tools-of-] #tools").wait_for(state="attached")
        assert_for_everyone(page)


@pytest.mark.slow
def test_every_screen_can_be_used_by_everyone(gate: Gate, visit: Visits) -> None:
    turns = conversation(gate, "all")
    empty = gate.post({"session_key": "empty"}, "/sessions").json["id"]
    talk = Talk(gate, "open", ANSWER)
    paths = [
        f"/ui/sessions/{turns[0]['session_id']}",
        f"/ui/sessions/{turns[0]['session_id']}/tools",
        f"/ui/sessions/{empty}",
        *(f"/ui/turns/{turn['id']}" for turn in turns),
        talk.session_path,
        talk.turn_path,
        "/ui/find?q=nowhere",
        "/ui/?q=state%3Aerror+model%3Anone",
        "/ui/nowhere",
    ]
    page = visit(f"{gate.url}/ui/")
    for path in paths:
        page.goto(gate.url + path)
        check(page)
    visit.allow("status of 404")
    talk.end()


@pytest.fixture
def blank(tmp_path: Path) -> Iterator[Gate]:
    with gate_and_model(tmp_path) as opened:
        yield opened


@pytest.fixture
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    server = Server(token="token-0001")
    with gate_and_model(tmp_path_factory.mktemp("closed"), server=server) as opened:
        yield opened


def test_so_can_screens_with_nothing_in_them(blank: Gate, visit: Visits) -> None:
    page = visit(f"{blank.url}/ui/")
    for path in ("/ui/", "/ui/turns", "/ui/requests", "/ui/agents", "/ui/health"):
        page.goto(blank.url + path)
        check(page)


def test_so_can_the_login(closed: Gate, visit: Visits) -> None:
    page = visit(f"{closed.url}/ui/login")
    check(page)
    page.locator("#token").fill("wrong")
    page.keyboard.press("Enter")
    page.locator("#wrong").wait_for()
    visit.allow("status of 403")
    check(page)
    page.locator("#token").fill("token-0001")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{closed.url}/ui/")
    check(page)


# -- what a reader is told -------------------------------------------------------------------------


def test_what_stands_beside_a_text_is_named_and_nothing_is_not(gate: Gate, visit: Visits) -> None:
    answer = completion("A cat")
    answer["choices"][0]["message"] |= {"annotations": [], "audio": None}
    gate.model.will(whole(answer))
    picture = "data:image/png;base64," + "A" * 4000
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": picture}},
        {"type": "image_url", "image_url": {"url": "https://x.test/cat.png"}},
    ]
    gate.post(chat(user(parts), **named("beside")))
    [turn] = gate.turns("beside")
    page = visit(f"{gate.url}/ui/sessions/{turn['session_id']}")
    assert page.locator(".entry .prose").inner_text() == "A cat"
    assert page.locator(".entry .part-other").all_inner_texts() == [
        "image image/png, 4.0 kB in the request, not loaded",
        "image https://x.test/cat.png, not loaded",
    ]


def test_of_a_turn_that_is_over_nothing_is_said_to_be_yet_to_come(
    gate: Gate, visit: Visits
) -> None:
    assert gate.post(b"{").status == 400
    page = visit(f"{gate.url}/ui/turns")
    row = page.locator("[data-row]", has_text="No input").first
    assert row.locator(".row-sub").first.inner_text() == "chat.completions · no answer"
    row.locator("a").first.click()
    page.get_by_text("It ended before any step.").wait_for()
    assert "yet" not in page.locator("main").inner_text().split()


def test_a_step_that_waits_for_its_client_says_so(gate: Gate, visit: Visits) -> None:
    gate.model.will(whole(completion(None, call("c1"), model="gpt-4o")))
    gate.post(chat("Find it", model="p1/gpt-4o", **named("client")))
    [turn] = gate.turns("client")
    steps = gate.get(f"/turns/{turn['id']}").json["runs"][0]["steps"]
    page = visit(f"{gate.url}/ui/steps/{steps[-1]['id']}")
    assert "the client has yet to send its result" in page.locator(".truth").inner_text()
    page.goto(f"{gate.url}/ui/turns/{turn['id']}")
    waits, window = page.locator(".stops .gauge").evaluate_all(
        "all => all.map(one => [one.getBoundingClientRect().x, one.getBoundingClientRect().right])"
    )
    assert waits == window, "the bars of limits are as long as each other"
    assert gate.post({}, f"/turns/{turn['id']}/cancel").status < 300
    page.goto(f"{gate.url}/ui/sessions/{turn['session_id']}")
    told = page.locator(".session-head .state").inner_text()
    assert told == "cancelled · by a person"


# -- keys ------------------------------------------------------------------------------------------


def focused(page: Page) -> str:
    """What has the focus: its id or words; AssertionError where that cannot be seen."""
    assert page.evaluate("document.activeElement.matches(':focus-visible')")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    return str(page.evaluate("document.activeElement.id || document.activeElement.innerText"))


def test_a_session_is_read_by_keyboard(gate: Gate, visit: Visits) -> None:
    turns = conversation(gate, "keys")
    page = visit(f"{gate.url}/ui/sessions/{turns[0]['session_id']}")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.keyboard.press("Enter")
    page.locator("#main:focus").wait_for()
    page.keyboard.press("/")
    assert focused(page) == "find"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.locator("#help[open]").wait_for()
    assert_accessible(page)
    page.keyboard.press("Escape")
    page.locator("#help[open]").wait_for(state="detached")
    page.keyboard.press("j")
    assert "Find it" in focused(page)
    page.keyboard.press("j")
    assert "Look" in focused(page)
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**?turn={turns[0]['id']}")
    page.locator(f"#turn-{turns[0]['id']}").wait_for()


# -- without scripts -------------------------------------------------------------------------------


def test_names_of_tools_fit_a_narrow_window(gate: Gate, visit: Visits) -> None:
    name = "w" * 64
    gate.model.will(whole(completion(None, call("c1", name))), says("Done"))
    say = [user("Find it")]
    gate.post(chat(*say, tools=OFFERED, **named("tools")))
    say += [said(None, call("c1", name)), result("c1", "here")]
    gate.post(chat(*say, tools=OFFERED, **named("tools")))
    [turn] = gate.turns("tools")
    steps = gate.get(f"/turns/{turn['id']}").json["runs"][0]["steps"]
    page = visit(f"{gate.url}/ui/sessions/{turn['session_id']}", width=NARROW)
    for path in ("", *(f"/ui/steps/{step['id']}" for step in steps[:2])):
        page.goto(f"{gate.url}{path}" if path else page.url)
        assert_fits(page)
        ends = page.locator(".tool-name").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().right)"
        )
        assert ends
        assert max(ends) < NARROW


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_conversation_reads_the_same_without_scripts(
    gate: Gate, visit: Visits, width: int
) -> None:
    turns = conversation(gate, f"read-{width}")
    for path in (f"/ui/sessions/{turns[0]['session_id']}", f"/ui/turns/{turns[1]['id']}"):
        texts = [
            RUNS_ON.sub("", visit(gate.url + path, width=width, scripts=scripts).inner_text("main"))
            for scripts in (True, False)
        ]
        assert texts[0].split() == texts[1].split()
        assert "Both were found" in texts[0]


def test_what_is_under_way_is_read_without_scripts(gate: Gate, visit: Visits) -> None:
    talk = Talk(gate, "under way", "As far ")
    talk.say("as this")
    page = visit(gate.url + talk.turn_path, scripts=False)
    assert "As far" in page.locator(talk.place).inner_text()
    page.get_by_role("button", name="Cancel turn").click()
    page.locator(".truth", has_text="Cancelled").wait_for()
    talk.spoken.break_off()
    talk.reading.close()
