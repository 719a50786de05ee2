"""What agents do beside answering, on pages: plans, memory, searches, handoffs, compactions."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import orjson
import pytest

from agent_gates import GATES, wait_for
from agents_fixtures import AgentGate, a_test_with, agent, agents, asks, tools
from dashboard import Browser, Page
from live_pages import Element, open_page, parse, watching
from scripted_model import Row, chat, named, says
from servers import ROOT, eventually
from xgw.store.models import Step

HOSTILE = "<script>alert(1)</script>\"'&<!--"
OWN = [sys.executable, str(ROOT / "tests" / "mcp_server.py")]
LONG = "the order A-17 was sent on Monday " * 20


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    folder = tmp_path_factory.mktemp("kinds")
    docs = folder / "docs"
    docs.mkdir()
    (docs / "refunds.md").write_text(f"A refund takes five days. {HOSTILE}\n")
    (docs / "other.md").write_text("Nothing of the kind.\n")
    given = {
        "a": agent(
            tools=("look", "stuck", "remember", "forget", "docs"),
            handoffs=("billing",),
            context={"window": 50_000, "keep_last_turns": 1},
            modes={"task": {"planner": True}},
        ),
        "billing": {"model": "m", "tools": ("look",)},
        "serving": {"model": "m", "tools": ("own",)},
    }
    more = {
        "docs": {"retrieval": {"path": str(docs)}},
        "own": {"mcp": {"command": OWN, "env": {"NOTES": str(folder)}}},
        "remember": {"builtin": "remember"},
        "forget": {"builtin": "forget"},
    }
    with agents(folder, agents=given, tools=tools() | more) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


@pytest.fixture
def browser(gate: AgentGate) -> Browser:
    browser = Browser(gate.gate.url)
    browser.open("/ui/agents")
    return browser


def tree(page: Page) -> Element:
    return parse(page.body.decode())


def done(gate: AgentGate, *calls: tuple[str, Row], **more: str) -> Row:
    """A turn that has made these calls, one after the other."""
    for number, (name, arguments) in enumerate(calls):
        gate.model.will(asks((f"c{number}", name, orjson.dumps(arguments).decode())))
    gate.model.will(says("done"))
    answer = gate.say("go", **more)
    gate.ended(answer)
    return answer


def step_of(gate: AgentGate, answer: Row, kind: str) -> str:
    [step] = gate.steps(answer, kind)
    return f"/ui/steps/{step['id']}"


# -- their own pages -------------------------------------------------------------------------------


def test_a_search_shows_what_it_found_where(gate: AgentGate, browser: Browser) -> None:
    answer = done(gate, ("docs", {"query": f"refund {HOSTILE}"}))
    shown = browser.open(step_of(gate, answer, "retrieval"))
    page = tree(shown)
    [hit] = page.all("li", class_="hit")
    assert hit.one("code").text == "refunds.md"
    assert "line 1" in hit.one("header").text
    assert f"refund {HOSTILE}" in page.one("section").text
    assert f"five days. {HOSTILE}" in hit.text
    assert b"<script>alert" not in shown.body


def test_a_plan_is_shown_as_it_was_at_each_step(gate: AgentGate, browser: Browser) -> None:
    items = [{"text": "Look", "state": "in_progress"}, {"text": HOSTILE, "state": "pending"}]
    first = ("plan", {"action": "set", "items": items})
    answer = done(
        gate, first, ("plan", {"action": "update", "number": 1, "state": "done"}), mode="task"
    )
    steps = gate.steps(answer, "planner")
    shown = [
        tree(browser.open(f"/ui/steps/{step['id']}")).one("ol", class_="plan") for step in steps
    ]
    states = [[item.attributes["class"] for item in plan.all("li")] for plan in shown]
    assert states == [["is-in_progress", "is-pending"], ["is-done", "is-pending"]]
    page = tree(browser.open(f"/ui/sessions/{answer['sessionId']}"))
    fold = page.one("details", id=f"plan-{answer['sessionId']}")
    assert fold.one("summary").text == "Plan 1 of 2 done"
    assert HOSTILE in fold.text


def test_what_was_noted_is_in_the_head_and_on_its_step(gate: AgentGate, browser: Browser) -> None:
    answer = done(gate, ("remember", {"key": "customer", "value": HOSTILE}))
    page = tree(browser.open(step_of(gate, answer, "memory_write")))
    assert "Remembered: customer" in [h.text for h in page.all("h2")]
    head = tree(browser.open(f"/ui/sessions/{answer['sessionId']}"))
    memory = head.one("details", id=f"memory-{answer['sessionId']}")
    assert memory.one("summary").text == "Memory 1 note"
    assert (memory.one("dt").text, memory.one("dd").text) == ("customer", HOSTILE)


def test_a_handoff_holds_the_steps_of_the_other_agent(gate: AgentGate, browser: Browser) -> None:
    gate.model.will(
        asks(
            ("h1", "handoff_to_billing", '{"message": "What does it cost?"}'),
            ("r1", "remember", '{"key": "k", "value": "v"}'),
        ),
        asks(("l1", "look", '{"city": "A-17"}')),
        says("9 euros"),
        says("It costs 9."),
    )
    answer = gate.say("price?")
    gate.ended(answer)
    page = tree(browser.open(f"/ui/turns/{answer['turnId']}"))
    bars = [bar.one("a").text for bar in page.all("li", class_="bar")]
    assert bars == [
        "llm_call m-served",
        "handoff billing",
        "llm_call m-served",
        "tool_call look",
        "llm_call m-served",
        "memory_write remember",
        "llm_call m-served",
    ]
    within = [entry.one("header").text.split()[0] for entry in page.all(class_="is-within")]
    assert within == ["billing", "look", "billing"]
    step = tree(browser.open(step_of(gate, answer, "handoff")))
    assert [h.text for h in step.all("h2")][:2] == ["Handed over to billing", "Its answer"]
    assert "9 euros" in step.one("div", class_="prose").text


def test_a_tool_of_an_mcp_server_names_it(gate: AgentGate, browser: Browser) -> None:
    answer = done(gate, ("add", {"a": 1, "b": 2}), name="serving")
    page = tree(browser.open(step_of(gate, answer, "tool_call")))
    facts = page.one("div", class_="step-facts").text
    assert "MCP server own" in facts
    turn = tree(browser.open(f"/ui/turns/{answer['turnId']}"))
    assert "tool_call own › add" in [a.text for a in turn.all("a", class_="bar-name")]


# -- the context -----------------------------------------------------------------------------------


def talk(gate: AgentGate, *messages: str) -> str:
    session: str | None = None
    for message in messages:
        gate.model.will(says(f"so: {message}"))
        answer = gate.say(message, session)
        gate.ended(answer)
        session = answer["sessionId"]
    assert session is not None
    return session


def test_the_context_is_shown_by_part_and_made_shorter(gate: AgentGate, browser: Browser) -> None:
    session = talk(gate, LONG, "second")
    path = f"/ui/sessions/{session}"
    parts = tree(browser.open(f"{path}/context")).one("table")
    told = gate.gate.get(f"/sessions/{session}/context").json
    rows = [
        [cell.text for cell in row.all()[1:3] if cell.tag in ("th", "td")]
        for row in parts.all("tr")
    ]
    assert [row[0] for row in rows[1:]] == [
        *("instructions", *(rows[n + 2][0] for n in range(2)), "tools"),
    ]
    tokens = [row.all("td")[1].text for row in parts.all("tr")[1:]]
    assert tokens == [f"~{part['tokens']:,}" for part in told["parts"]]
    assert browser.open(path).all("form", action=f"{path}/compact")
    page = open_page(gate.gate, path)
    with watching(gate.gate, page) as socket:
        gate.model.will(says(f"A-17 was sent. {HOSTILE}"))
        assert browser.send(f"{path}/compact", {}).status == 200
        second = gate.gate.turns(gate.gate.get(f"/sessions/{session}").json["session_key"])[1]["id"]
        drawn = socket.until_swap(
            "2 messages summarised", f"entries-{second}", *marks(gate, session)
        )
        assert f"A-17 was sent. {HOSTILE}" in drawn.text
    page = tree(browser.open(path))
    [mark] = page.all("article", class_="is-compaction")
    assert mark.one("summary").text.startswith("2 messages summarised, context ")
    assert mark.one("a", href=f"/ui/steps/{mark.attributes['id'].removeprefix('step-')}")
    heads = [header.text for header in page.all("header", class_="entry-head")]
    assert [("compacted" in head) for head in heads[:3]] == [True, False, False]
    assert f"A-17 was sent. {HOSTILE}" in page.one("details", id=f"memory-{session}").text
    refused = browser.send(f"{path}/compact", {}, HX_Request="true")
    assert (refused.status, refused.body.decode()[:28]) == (409, "There is nothing to compact:")


def marks(gate: AgentGate, session: str) -> list[str]:
    """Where a compaction is redrawn."""
    steps = gate.gate.all(Step, Step.session_id == session, Step.name == "compaction")
    return [f"step-{step['id']}" for step in steps]


def test_the_context_of_a_clients_session_is_what_it_sent(
    gate: AgentGate, browser: Browser
) -> None:
    gate.model.will(says())
    gate.gate.ended(gate.gate.post(chat(HOSTILE, **named("clients"))))
    page = browser.open("/ui/sessions/clients/context")
    assert "What its client sent last" in page.text
    assert b"<script>alert" not in page.body
    assert not browser.open("/ui/sessions/clients").all("form", action="compact")
    assert browser.open("/ui/sessions/nobodys/context").status == 404


# -- what is said next -----------------------------------------------------------------------------


def test_a_message_takes_a_model_and_what_to_do_while_busy(
    gate: AgentGate, browser: Browser
) -> None:
    session = gate.post("/sessions", {"agent": "a"}).json["id"]
    path = f"/ui/sessions/{session}/messages"
    gate.model.will(asks(("c1", "stuck", "{}")))
    browser.send(path, {"message": "first"})
    wait_for("stuck runs")
    eventually(lambda: gate.gate.all(Step, Step.step_type == "tool_call", Step.status == "running"))
    refused = browser.send(path, {"message": "x", "model": "p1/o", "ifBusy": "reject"})
    assert refused.status == 409
    form = tree(refused).one("form", action=path)
    assert form.one("input", name="model").attributes["value"] == "p1/o"
    assert form.one("option", value="reject", selected="").text == "do not send"
    gate.model.will(says("second"))
    browser.send(path, {"message": "second", "model": "p1/other", "ifBusy": "supersede"})
    GATES["free"].set()
    key = gate.gate.get(f"/sessions/{session}").json["session_key"]
    eventually(lambda: len(turns := gate.gate.turns(key)) == 2 and turns[1]["ended_at"])
    first, second = gate.gate.turns(key)
    assert (first["ended_by"], second["final_output"]) == ("superseded", "second")
    assert gate.model.asked[-1].json["model"] == "other"
    bad = browser.send(path, {"message": "x", "ifBusy": "burn"})
    assert bad.status == 422


def test_the_tools_of_an_agent_are_there_before_its_first_message(
    gate: AgentGate, browser: Browser
) -> None:
    session = gate.post("/sessions", {"agent": "a"}).json["id"]
    page = browser.open(f"/ui/sessions/{session}/tools")
    assert "Look at the weather." in page.text
    models = tree(browser.open(f"/ui/sessions/{session}")).one("datalist", id="models")
    assert [option.attributes["value"] for option in models.all("option")] == ["m"]
