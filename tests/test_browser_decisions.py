"""What people decide about agents' turns, in a real browser: approve, change, resume, run again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accessibility import assert_accessible, assert_for_everyone
from agent_gates import RUNS
from agents_fixtures import AgentGate, a_test_with, agents, asks, tools
from page_width import assert_fits
from scripted_model import Model, Row, result, says
from servers import eventually, installed
from test_browser_live import Servers, await_cut_off
from visits import Visits

if TYPE_CHECKING:
    from playwright.sync_api import Page

NOTE = ("c1", "note", '{"text": "the order is on hold"}')
OTHER = ("c2", "note", '{"text": "another"}')


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    guarded = tools(note={"approval": "always"})
    with agents(tmp_path_factory.mktemp("decided"), tools=guarded) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def live(page: Page) -> Page:
    """The page once its socket is open."""
    page.locator("#connection", has_text="live").wait_for()
    return page


def waiting(gate: AgentGate, *calls: tuple[str, str, str]) -> Row:
    """The answer to a message whose turn waits for a person."""
    gate.model.will(asks(*(calls or (NOTE,)), text="I will note that."))
    answer: Row = gate.chat("Note that A-17 is on hold").json
    return answer


def test_two_people_decide_about_the_same_calls(gate: AgentGate, visit: Visits) -> None:
    answer = waiting(gate, NOTE, OTHER)
    url = f"{gate.gate.url}/ui/sessions/{answer['sessionId']}"
    one, two = live(visit(url)), live(visit(url, dark=True))
    visit.allow("status of 422")
    first, second = one.locator(".decision").nth(0), one.locator(".decision").nth(1)
    first.get_by_label("Arguments").fill('{"text": 5}')
    first.get_by_role("button", name="Approve").click()
    first.get_by_role("alert").get_by_text("Input should be a valid string").wait_for()
    assert first.get_by_label("Arguments").input_value() == '{"text": 5}', "what was typed stays"
    second.get_by_label("Arguments").fill('{"text": "half wri')
    assert_accessible(one)
    first.get_by_label("Arguments").fill('{"text": "better"}')
    first.get_by_role("button", name="Approve").click()
    two.locator(".decision-state", has_text="approved by dashboard").wait_for()
    first.locator(".decision-state", has_text="approved by dashboard").wait_for()
    assert second.get_by_label("Arguments").input_value() == '{"text": "half wri'
    gate.model.will(says("Both are noted."))
    other = two.locator(".decision").nth(1)
    other.get_by_role("textbox", name="Why not").fill("not this one")
    other.get_by_role("textbox", name="Why not").press("Enter")
    one.locator(".entry.is-call", has_text="Both are noted.").wait_for()
    eventually(lambda: one.locator(".decision").count() == 0)
    assert RUNS == ["note better"]
    gate.ended(answer)


def test_who_sends_a_decision_that_came_too_late_is_told(gate: AgentGate, visit: Visits) -> None:
    answer = waiting(gate, NOTE, OTHER)
    page = live(visit(f"{gate.gate.url}/ui/turns/{answer['turnId']}"))
    visit.allow("status of 409")
    # The other decision is made while this one is on its way.
    path = f"/runs/{answer['runId']}/approvals"
    page.route(
        "**/ui/runs/*/approvals",
        lambda route: (
            gate.post(path, {"tool_call_id": "c1", "decision": "deny"}),
            route.continue_(),
        ),
        times=1,
    )
    page.get_by_role("button", name="Approve note").first.click()
    words = "It was decided already: note was denied by api."
    page.get_by_text(words).wait_for()
    assert_accessible(page)
    gate.cancel(answer["turnId"])


def test_decisions_are_for_everyone(gate: AgentGate, visit: Visits) -> None:
    answer = waiting(gate)
    for path in (f"sessions/{answer['sessionId']}", f"turns/{answer['turnId']}"):
        page = live(visit(f"{gate.gate.url}/ui/{path}"))
        page.locator("summary", has_text="Give its result").click()
        assert_for_everyone(page)
    gate.cancel(answer["turnId"])


def test_without_scripts_a_call_is_decided_and_a_turn_run_again(
    gate: AgentGate, visit: Visits
) -> None:
    answer = waiting(gate)
    page = visit(f"{gate.gate.url}/ui/sessions/{answer['sessionId']}", scripts=False)
    visit.allow("status of 422")
    page.get_by_label("Arguments").fill("{")
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("alert").get_by_text("The arguments are no JSON").wait_for()
    assert page.get_by_label("Arguments").input_value() == "{"
    page.get_by_label("Arguments").fill('{"text": "by hand"}')
    gate.model.will(says("Noted."))
    page.get_by_role("button", name="Approve").click()
    page.wait_for_url("**/ui/turns/*")
    gate.ended(answer)
    page.reload()
    page.locator("summary", has_text="Run again").click()
    page.get_by_label("Message").fill("And now?")
    gate.model.will(says("Twice."))
    with page.expect_navigation():
        page.get_by_role("button", name="Run again").click()
    eventually(lambda: gate.turn(answer)["final_output"] == "Twice.")
    page.reload()
    page.locator(".prose", has_text="Twice.").wait_for()
    assert page.locator(".tabs a").all_inner_texts()[1].startswith("Run 2 · run again")
    assert RUNS == ["note by hand"]
    gate.ended(answer)
    page.get_by_role("button", name="Fork here").click()
    page.wait_for_url("**/ui/sessions/*")
    assert answer["sessionId"] not in page.url


def test_a_turn_is_run_again_and_watched(gate: AgentGate, visit: Visits) -> None:
    gate.model.will(asks(("l1", "look", '{"city": "Oslo"}')), says("21 degrees"))
    answer = gate.say("How is Oslo?")
    gate.ended(answer)
    page = live(visit(f"{gate.gate.url}/ui/sessions/{answer['sessionId']}"))
    page.locator("summary", has_text="Run again").click()
    page.evaluate("window.same = true")
    gate.model.will(says("Warm."))
    page.get_by_label("Instructions").fill("Say it in a word.")
    page.locator(".rerun").get_by_role("button").click()
    page.locator(".prose", has_text="Warm.").wait_for()
    page.locator(".run-words", has_text="that of run 2").wait_for()
    assert page.locator(".prose", has_text="21 degrees").count() == 0
    assert page.evaluate("window.same === true")
    assert_fits(page)
    assert_for_everyone(page)
    gate.ended(answer)


# -- interrupted -----------------------------------------------------------------------------------

CONFIG = """
[[providers]]
name = "p1"
base_url = "{url}"
[agents.a]
model = "m"
handoffs = ["careful"]
[agents.careful]
model = "m"
tools = ["send"]
[tools.send]
python = "{folder}/mine.py:send"
timeout_seconds = 600
"""
SEND = '''
def send(text: str) -> str:
    """Send it, and wait for ever."""
    open("{folder}/sent", "a").write(text)
    return open("{folder}/pipe").read()
'''


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    model = Model()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "mine.py").write_text(SEND.format(folder=tmp_path))
    try:
        with installed(tmp_path, CONFIG.format(url=model.url, folder=tmp_path)) as one:
            servers = Servers(one, model)
            yield servers
            servers.gate.store.close()
        model.check()
    finally:
        model.close()


@pytest.mark.slow
def test_a_run_whose_process_was_killed_goes_on_by_a_click(
    servers: Servers, visit: Visits, tmp_path: Path
) -> None:
    """It was in a tool of an agent that a task was handed over to: what became of that, the person
    says."""
    model = servers.gate.model
    model.will(asks(("h1", "handoff_to_careful", '{"message": "send it"}')))
    model.will(asks(("c1", "send", '{"text": "a letter"}')))
    answer = servers.gate.post({"message": "Write to them", "wait": 0}, "/agents/a/chat").json
    page = live(visit(f"{servers.gate.url}/ui/sessions/{answer['sessionId']}"))
    eventually((tmp_path / "sent").exists)
    page.locator(".truth", has_text="Running").get_by_text("send").wait_for()
    servers.end(signal.SIGKILL)
    await_cut_off(page, visit)
    servers.start()
    page.locator(".truth", has_text="Paused: its process ended; it can be resumed").wait_for()
    page.locator("#connection", has_text="live").wait_for()
    page.locator(".paused-box", has_text="The process that ran it has ended").wait_for()
    assert_accessible(page)
    page.get_by_role("button", name="Resume").click()
    page.locator(".truth", has_text="for a decision on send").wait_for()
    asked = page.get_by_role("region", name="Call of send by agent careful")
    asked.get_by_text("nobody knows whether it was done").wait_for()
    assert page.get_by_role("button", name="Resume").count() == 0
    assert_for_everyone(page)
    asked.get_by_label("Result").fill("it was sent")
    model.will(says("I sent it."), says("They have it."))
    asked.get_by_role("button", name="Use this result").click()
    page.locator(".truth", has_text="Done in").wait_for()
    page.locator(".prose", has_text="They have it.").wait_for()
    assert model.asked[-2].json["messages"][-1] == result("c1", "it was sent")
    assert (tmp_path / "sent").read_text() == "a letter"
    runs = page.locator(".tabs a").all_inner_texts()
    assert [text.split(" · ")[1].split()[0] for text in runs] == ["first", "resumed"]
