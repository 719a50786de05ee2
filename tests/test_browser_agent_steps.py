"""What an agent keeps and does, in a real browser: plan, memory, context, compaction, its steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from accessibility import assert_accessible, assert_for_everyone
from agents_fixtures import AgentGate, a_test_with, agent, agents, asks, tools
from scripted_model import Row, says
from servers import eventually
from visits import NARROW, Visits
from xgw.store.models import Turn

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "<img src=x onerror=alert(1)>"
ITEMS = f'[{{"text":"Look {HOSTILE}","state":"done"}},{{"text":"Answer","state":"in_progress"}}]'
TO_BILLING = ("h1", "handoff_to_billing", '{"message": "What does it cost?"}')
FOLDS = ("plan", "memory", "context-of", "more", "tools-of")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    folder = tmp_path_factory.mktemp("kept")
    (folder / "docs").mkdir()
    (folder / "docs" / "refunds.md").write_text(f"A refund takes five days. {HOSTILE}\n")
    given = {
        "a": agent(
            tools=("look", "remember", "docs"),
            handoffs=("billing",),
            context={"window": 50_000, "keep_last_turns": 1},
            modes={"task": {"planner": True}},
        ),
        "billing": {"model": "m", "tools": ("look",)},
    }
    more = {
        "docs": {"retrieval": {"path": str(folder / "docs")}},
        "remember": {"builtin": "remember"},
    }
    with agents(folder, agents=given, tools=tools() | more) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def live(page: Page) -> Page:
    """The page once its socket is open."""
    page.locator("#connection", has_text="live").wait_for()
    return page


def worked(gate: AgentGate) -> Row:
    """A turn with a step of each kind."""
    calls = (
        ("p1", "plan", f'{{"action":"set","items":{ITEMS}}}'),
        ("d1", "docs", '{"query":"refund"}'),
        ("m1", "remember", f'{{"key":"customer","value":"{HOSTILE}"}}'),
        TO_BILLING,
    )
    gate.model.will(asks(*calls), says("9 euros"), says("Five days."))
    answer = gate.say("How long?", mode="task")
    gate.ended(answer)
    return answer


def test_the_head_of_an_agents_session_is_for_everyone(gate: AgentGate, visit: Visits) -> None:
    answer = worked(gate)
    page = live(visit(f"{gate.gate.url}/ui/sessions/{answer['sessionId']}"))
    for name in FOLDS:
        page.locator(f".session-folds > details[id^={name}-] > summary").click()
    page.locator(".session-folds table.parts").wait_for()
    page.locator(".session-folds .tool").first.wait_for()
    assert f"Look {HOSTILE}" in page.locator(".plan .is-done").inner_text()
    assert HOSTILE in page.locator("[id^=memory-]").inner_text()
    assert page.locator("img").count() == 0
    assert_for_everyone(page)


def test_a_context_is_made_shorter_before_ones_eyes(gate: AgentGate, visit: Visits) -> None:
    session = None
    for text in ("first", "second"):
        gate.model.will(says(f"so: {text}"))
        answer = gate.say(text, session)
        gate.ended(answer)
        session = answer["sessionId"]
    page = live(visit(f"{gate.gate.url}/ui/sessions/{session}"))
    visit.allow("status of 409")
    page.evaluate("window.same = true")
    page.locator("[id^=context-of-] > summary").click()
    gate.model.will(says(f"It was said first. {HOSTILE}"))
    page.get_by_role("button", name="Compact now").click()
    mark = page.locator(".is-compaction")
    mark.locator("summary", has_text="2 messages summarised").click()
    assert HOSTILE in mark.inner_text()
    page.locator(".entry-head", has_text="compacted").first.wait_for()
    page.locator("[id^=memory-] summary", has_text="summary").wait_for()
    page.get_by_role("button", name="Compact now").click()
    page.get_by_role("alert").get_by_text("There is nothing to compact").wait_for()
    assert page.evaluate("window.same === true")
    assert_accessible(page)


def test_each_kind_of_step_is_for_everyone(gate: AgentGate, visit: Visits) -> None:
    answer = worked(gate)
    for step in gate.steps(answer):
        if step["step_type"] != "llm_call":
            page = visit(f"{gate.gate.url}/ui/steps/{step['id']}", width=NARROW)
            assert page.locator("img").count() == 0
            assert_for_everyone(page)
    page = visit(f"{gate.gate.url}/ui/turns/{answer['turnId']}?from={step['id']}")
    assert_for_everyone(page)


def test_a_message_is_sent_to_another_model_without_scripts(gate: AgentGate, visit: Visits) -> None:
    session = gate.post("/sessions", {"agent": "a"}).json["id"]
    page = visit(f"{gate.gate.url}/ui/sessions/{session}", scripts=False)
    gate.model.will(says("Hello from another"))
    page.fill("#message", "Hello")
    page.fill("#model", "p1/other")
    with page.expect_navigation():
        page.get_by_role("button", name="Send").click()
    where = Turn.session_id == session
    eventually(lambda: [turn for turn in gate.gate.all(Turn, where) if turn["ended_at"]])
    page.reload()
    page.locator(".prose", has_text="another").wait_for()
    assert gate.model.asked[-1].json["model"] == "other"
    page.locator("[id^=context-of-] > summary").click()
    page.get_by_role("link", name="What its next call would send").click()
    page.locator("table.parts").wait_for()
