"""A chat with an agent in a real browser: said, watched, queued, cancelled, without a reload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from accessibility import assert_accessible
from agent_gates import GATES, wait_for
from agents_fixtures import AgentGate, a_test_with, agent, agents, asks
from page_width import assert_fits
from scripted_model import says, streams
from servers import eventually
from spoken import Spoken
from visits import NARROW, WIDE, Visits

if TYPE_CHECKING:
    from playwright.sync_api import Page

STUCK = ("c1", "stuck", "{}")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    given = {"a": agent(description="Answers briefly", limits={"max_turn_tokens": 1000})}
    with agents(tmp_path_factory.mktemp("chats"), agents=given) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def live(page: Page) -> Page:
    """The page once its socket is open."""
    page.locator("#connection", has_text="live").wait_for()
    return page


def say(page: Page, text: str) -> None:
    page.fill("#message", text)
    page.press("#message", "Enter")


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_chat_from_the_first_message_to_a_cancelled_one(
    gate: AgentGate, visit: Visits, width: int
) -> None:
    page = visit(f"{gate.gate.url}/ui/agents/a", width=width)
    assert_accessible(page)
    assert_fits(page)
    gate.model.will(asks(STUCK))
    say(page, "Look for it")
    page.wait_for_url("**/ui/sessions/*")
    live(page)
    page.evaluate("window.same = true")
    wait_for("stuck runs")
    page.locator(".entry.is-tool .tool-name", has_text="stuck").wait_for()
    page.fill("#message", "And")
    page.press("#message", "Shift+Enter")
    page.keyboard.type("then?")
    page.press("#message", "Enter")
    page.locator(".waiting", has_text="Queued, 1st And then?").wait_for()
    eventually(lambda: page.input_value("#message") == "")
    assert page.locator(".entry.is-queued").inner_text().endswith("And\nthen?")
    say(page, "third")
    page.locator(".waiting", has_text="Queued, 2nd third").wait_for()
    assert_accessible(page)
    assert_fits(page)
    page.fill("#message", "not sent yet")
    page.get_by_role("button", name="Withdraw turn 3").click()
    page.locator(".turn-foot", has_text="Turn 3 cancelled").wait_for(state="attached")
    spoken = Spoken()
    gate.model.will(streams("Found it"), spoken)
    spoken.say("Now I ")
    GATES["free"].set()
    page.locator(".entry", has_text="Found it").wait_for()
    page.locator(".stream", has_text="Now I").wait_for()
    assert page.locator(".entry.is-user", has_text="And").count() == 1
    page.get_by_role("button", name="Cancel turn 2").click()
    page.locator(".turn-foot", has_text="Turn 2 cancelled").wait_for()
    eventually(lambda: page.locator(".waiting-turn").count() == 0)
    assert page.input_value("#message") == "not sent yet"
    assert page.evaluate("window.same === true"), "it was never loaded anew"
    spoken.break_off()


def test_what_is_not_taken_stays_in_the_field(gate: AgentGate, visit: Visits) -> None:
    session = gate.post("/sessions", {"agent": "a"}).json["id"]
    page = live(visit(f"{gate.gate.url}/ui/sessions/{session}"))
    visit.allow("status of 422")
    say(page, "   ")
    page.get_by_role("alert").get_by_text("There is nothing to send").wait_for()
    assert page.locator("#message").get_attribute("aria-invalid") == "true"
    assert_accessible(page)
    gate.model.will(says("Yes"))
    say(page, "Now?")
    page.locator(".entry.is-call", has_text="Yes").wait_for()
    assert page.input_value("#message") == ""
    assert page.locator("#message-refused").inner_text() == ""


def test_it_works_as_plain_forms(gate: AgentGate, visit: Visits) -> None:
    page = visit(f"{gate.gate.url}/ui/agents/a", scripts=False)
    visit.allow("status of 422")
    gate.model.will(says("Yes"))
    page.fill("#message", "Hello")
    page.get_by_role("button", name="Send").click()
    page.locator("h1", has_text="Hello").wait_for()
    page.fill("#message", " ")
    page.get_by_role("button", name="Send").click()
    page.locator("#message-refused", has_text="There is nothing to send").wait_for()
