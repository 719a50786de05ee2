"""The page of a step in a real browser: for everyone, by keyboard, and while an answer grows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from accessibility import assert_for_everyone
from gateway_fixtures import Gate, a_test_of, gate_and_model, provider
from scripted_model import DONE, Model, call, chat, delta, finish, named, stream, usage, user, whole
from servers import eventually
from visits import Visits
from xgw.config import Route
from xgw.web.steps.view import TABS

if TYPE_CHECKING:
    from playwright.sync_api import Page

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
FAILURE = whole({"error": {"message": "slow down"}}, status="429 Too Many Requests")
ANSWER = "# Found\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```python\nprint('it')  # yes\n```\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    model = Model()
    with gate_and_model(
        tmp_path_factory.mktemp("steps"),
        model,
        providers=(provider(model), provider(model, "p2")),
        routes=(Route(model="m", targets=("p1/m", "p2/m")),),
    ) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def a_call(gate: Gate, session: str) -> list[str]:
    """A failed attempt and the one that answered: the ids of their steps."""
    gate.model.will(
        FAILURE,
        stream(
            delta(reasoning_content="hm"),
            delta(ANSWER),
            delta(tool_calls=[{"index": 0, **call("c1", "look", "{")}]),
            finish("stop"),
            usage(7, 3),
            DONE,
        ),
    )
    body = chat({"role": "system", "content": "Be brief. " * 200}, user("Find it"), tools=[TOOL])
    gate.post({**body, "stream": True, **named(session)})
    return [step["id"] for step in gate.steps(gate.turns(session)[-1], "llm_call")]


@pytest.mark.slow
def test_each_tab_can_be_used_by_everyone(gate: Gate, visit: Visits) -> None:
    a_call(gate, "everyone")
    failed, answered = a_call(gate, "everyone")
    looks = [(failed, tab) for tab in ("summary", "received", "timing", "usage", "raw")]
    page, readable = visit(f"{gate.url}/ui/"), visit(f"{gate.url}/ui/", scripts=False)
    for step, tab in (*looks, *((answered, tab) for tab in TABS)):
        path = f"{gate.url}/ui/steps/{step}?tab={tab}"
        page.goto(path)
        assert_for_everyone(page)
        readable.goto(path)
        assert readable.locator(".step-tab").is_visible()


def test_tabs_and_neighbours_by_keyboard(gate: Gate, visit: Visits) -> None:
    failed, answered = a_call(gate, "keys")
    page = visit(f"{gate.url}/ui/steps/{answered}")
    for number, tab in enumerate(TABS, start=1):
        if number > 1:
            press(page, str(number), f"/ui/steps/{answered}?tab={tab}")
    press(page, "1", f"/ui/steps/{answered}")
    press(page, "8", f"/ui/steps/{answered}?tab=raw")
    press(page, "[", f"/ui/steps/{failed}?tab=raw")
    press(page, "]", f"/ui/steps/{answered}?tab=raw")
    press(page, "{", f"/ui/steps/{failed}?tab=raw")


def press(page: Page, key: str, leads_to: str) -> None:
    page.keyboard.press(key)
    page.wait_for_url(f"**{leads_to}")


def numbers(page: Page) -> list[int]:
    """Those of the messages that are on the page."""
    heads = page.locator(".sent-head > .num").all_inner_texts()
    return [int(text) for text in heads]


def test_what_was_sent_loads_page_by_page(gate: Gate, visit: Visits) -> None:
    gate.model.will(whole({"choices": [{"index": 0, "message": {"content": "ok"}}]}))
    gate.post({**chat(*(user(f"say {n}") for n in range(1, 161))), **named("long")})
    [step] = [row["id"] for row in gate.steps(gate.turns("long")[-1])]
    page = visit(f"{gate.url}/ui/steps/{step}?tab=sent")
    assert numbers(page) == [*range(1, 51)]
    for more in (100, 160):
        page.get_by_role("link", name="Later messages").scroll_into_view_if_needed()
        page.locator(f"#sent-{step}-{more}").wait_for()
        assert numbers(page) == [*range(1, more + 1)]
    page.get_by_role("link", name="Later messages").wait_for(state="detached")
    deep = visit(f"{gate.url}/ui/steps/{step}?tab=sent&from=130#sent-{step}-130")
    assert numbers(deep) == [*range(101, 161)]
    assert deep.locator(f"#sent-{step}-130").evaluate("e => e.matches(':target')")
    for more in (51, 1):
        deep.get_by_role("link", name="Earlier messages").click()
        deep.locator(f"#sent-{step}-{more}").wait_for()
        assert numbers(deep) == [*range(more, 161)]
    plain = visit(f"{gate.url}/ui/steps/{step}?tab=sent", scripts=False)
    with plain.expect_navigation():
        plain.get_by_role("link", name="Later messages").click()
    assert numbers(plain) == [*range(51, 101)]


def test_an_answer_grows_and_becomes_markdown(gate: Gate, visit: Visits) -> None:
    begun, end = threading.Event(), threading.Event()
    gate.model.will(
        stream(delta("It **is"), begun, delta(" so**."), end, finish(), usage(7, 3), DONE)
    )
    reading = gate.open(chat("go", stream=True, **named("grows")))
    eventually(lambda: gate.turns("grows") and gate.steps(gate.turns("grows")[0]))
    step = gate.steps(gate.turns("grows")[0])[0]["id"]
    eventually(lambda: gate.services.recorder.live.texts(step))
    page = visit(f"{gate.url}/ui/steps/{step}")
    place = page.locator(f"#stream-{step}-text-0")
    place.filter(has_text="It **is").wait_for()
    begun.set()
    place.filter(has_text="It **is so**.").wait_for()
    end.set()
    reading.rest()
    page.locator(".prose strong", has_text="is so").wait_for()
    page.locator(".truth", has_text="Done in").wait_for()
    assert page.locator(".stream").count() == 0
