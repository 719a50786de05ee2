"""Agents on pages: what they are, chats with them, what waits, what is refused, what stops them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_gates import GATES, wait_for
from agents_fixtures import TOOLS, AgentGate, a_test_with, agent, agents, asks
from dashboard import Browser, Page
from filled_pages import OpenScreen
from filled_store import selects
from gateway_fixtures import Reading, gate_and_model
from live_pages import Element, PageSocket, open_page, parse, watching
from scripted_model import chat, named, says, streams
from servers import eventually
from xgw.cli import reading
from xgw.config import Config, Route
from xgw.queries.events import list_events
from xgw.store.models import Step
from xgw.web.live.screens import open_screen

HOSTILE = "<script>alert(1)</script>\"'&<!--"
STUCK = ("c1", "stuck", "{}")
LIMITS = {
    "max_iterations": 4,
    "max_turn_tokens": 1000,
    "max_turn_cost_usd": 2.0,
    "max_seconds": 300,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    given = {
        "a": agent(description="Answers briefly", parameters={"temperature": 0.2}, limits=LIMITS),
        "hostile": agent(description=HOSTILE, instructions=HOSTILE, tools=()),
    }
    with agents(tmp_path_factory.mktemp("pages"), agents=given) as gate:
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


def open_session(gate: AgentGate, key: str) -> str:
    """A session with the agent `a`, in which nothing was said yet."""
    reply = gate.post("/sessions", {"agent": "a", "session_key": key})
    return f"/ui/sessions/{reply.json['id']}"


def begin_stuck(gate: AgentGate, browser: Browser, path: str) -> None:
    """Say something whose tool runs until `free` is opened; returns once that is in the store."""
    gate.model.will(asks(STUCK))
    assert browser.send(f"{path}/messages", {"message": "first"}).status == 200
    wait_for("stuck runs")
    eventually(lambda: gate.gate.all(Step, Step.step_type == "tool_call", Step.status == "running"))


# -- what they are ---------------------------------------------------------------------------------


def test_the_list_tells_agents_at_a_glance(gate: AgentGate, browser: Browser) -> None:
    gate.model.will(says("hello"))
    gate.say("hi", "listed")
    page = tree(browser.open("/ui/agents"))
    rows = [[cell.text for cell in row.all("td")] for row in page.all("tbody", class_="row")]
    assert [row[0] for row in rows] == ["a Answers briefly", f"hostile {HOSTILE}"]
    assert rows[0][1:3] == ["m", f"{len(TOOLS)} tools"]
    assert rows[1][1:] == ["m", "0 tools", "0 sessions", "–"]
    assert int(rows[0][3].split()[0]) >= 1
    assert rows[0][4] != "–"
    assert page.one("a", href="/ui/agents", aria_current="page").text == "Agents"
    assert page.all("a", href="/ui/agents/a")


def test_without_agents_the_list_says_how_to_define_one(tmp_path: Path) -> None:
    with gate_and_model(tmp_path) as gate:
        page = open_page(gate, "/ui/agents")
        assert not page.all("table")
        assert "[agents.support]" in page.one("section", class_="empty").text


def test_the_page_has_the_whole_configuration(gate: AgentGate, browser: Browser) -> None:
    page = tree(browser.open("/ui/agents/a"))
    assert "Be brief." in page.text
    assert "temperature 0.2" in page.text
    assert "most turn cost $2.00 most seconds 5 min 00 s" in page.text
    look = page.one("details", id="tool-1").text
    assert look.startswith("look Look at the weather.")
    assert '"Celsius or Fahrenheit."' in look


def test_what_an_agent_is_told_stays_text(browser: Browser) -> None:
    for path in ("/ui/agents", "/ui/agents/hostile"):
        page = browser.open(path)
        assert HOSTILE in page.text
        assert b"<script>alert" not in page.body
    assert browser.open("/ui/agents/%3Cscript%3Ealert(1)").status == 404
    assert b"<script>alert" not in browser.open("/ui/agents/%3Cscript%3Ealert(1)").body


def test_the_pages_ask_the_store_little(browser: Browser) -> None:
    for path, most in (("/ui/agents", 2), ("/ui/agents/a", 3)):
        with selects() as statements:
            browser.open(path)
        assert len([text for text, _ in statements if "api_keys" not in text]) == most


# -- live ------------------------------------------------------------------------------------------


def test_the_list_counts_an_agents_sessions_while_they_come_and_go(gate: AgentGate) -> None:
    gate.model.will(says("hello"), says("plain"))
    before = int(row_of(open_page(gate.gate, "/ui/agents")).split()[0])
    with watching(gate.gate, open_page(gate.gate, "/ui/agents")) as socket:
        gate.gate.ended(gate.gate.post(chat("not an agent's", **named("no agent"))))
        session = gate.ended(gate.say("hi", "counted"))["session_id"]
        drawn = socket.until_swap(f"{before + 1} session", "agent-a")
        assert row_of(open_page(gate.gate, "/ui/agents")) == row_of(drawn)
        assert gate.gate.get(f"/sessions/{session}", "DELETE").status == 204
        socket.until_swap(f"{before} session", "agent-a")


def row_of(page: Element) -> str:
    """How much the agent `a` is used."""
    [row] = [row for row in page.all("tbody") if row.attributes["id"] == "agent-a"]
    return row.one("td", class_="cell-sessions").text


def test_the_page_of_an_agent_shows_its_sessions_while_they_come_and_go(gate: AgentGate) -> None:
    gate.model.will(says("hello"), says("plain"))
    page = open_page(gate.gate, "/ui/agents/a")
    count = int(page.one("dl", id="use").all("dd")[0].text)
    with watching(gate.gate, page) as socket:
        gate.gate.ended(gate.gate.post(chat("not an agent's", **named("nobody's"))))
        session = gate.ended(gate.say("hi", "watched"))["session_id"]
        [row] = socket.until_swap("hi", "rows-head").all("tbody")
        assert row.attributes["id"] == f"session-{session}"
        socket.until_swap("done", f"session-{session}")
        socket.until_swap(f"sessions {count + 1} last used", "use")
        assert gate.gate.get(f"/sessions/{session}", "DELETE").status == 204
        socket.until(lambda: socket.placed(f"session-{session}", "delete"))
        socket.until_swap(f"sessions {count} last used", "use")
    added = [row.text for row in socket.placed("rows-head", "afterend")]
    assert not [text for text in added if "not an agent's" in text]


def test_the_page_of_an_agent_that_there_is_not_is_not_kept_up_to_date(gate: AgentGate) -> None:
    socket = PageSocket(gate.gate, "/ui/socket?page=agent&name=nobody&after=0")
    assert socket.end() == 1008
    socket.close()


# -- chats -----------------------------------------------------------------------------------------


def test_a_chat_is_started_and_gone_on_with(gate: AgentGate, browser: Browser) -> None:
    gate.model.will(says("one"), says("two"))
    sent = browser.send("/ui/agents/a/chat", {"message": "Hello", "mode": "task"}, follow=False)
    path = sent.headers["location"]
    assert (sent.status, path[:18]) == (303, "/ui/sessions/sess_")
    [turn] = gate.gate.turns(path.rpartition("/")[2])
    gate.ended({"turnId": turn["id"]})
    page = browser.open(path)
    assert "a · task" in page.text
    [form] = page.all("form", action=f"{path}/messages", method="post")
    assert "data-composer" in form.attributes
    browser.send(f"{path}/messages", {"message": "And\r\nthen?", "mode": "chat"})
    eventually(lambda: len(gate.gate.turns(path.rpartition("/")[2])) == 2)
    later = gate.gate.turns(path.rpartition("/")[2])[1]
    assert gate.ended({"turnId": later["id"]})["final_output"] == "two"
    assert gate.sent(1)[-1] == {"role": "user", "content": "And\nthen?"}
    assert "two" in browser.open(path).text


def test_what_is_sent_meanwhile_waits_with_its_place(gate: AgentGate, browser: Browser) -> None:
    path = open_session(gate, "queue")
    begin_stuck(gate, browser, path)
    for text in ("second", HOSTILE):
        browser.send(f"{path}/messages", {"message": text})
    page = tree(browser.open(path))
    waiting = [item.text for item in page.one("ol", aria_label="Queued messages").all("li")]
    assert waiting == [
        "Queued, 1st secondWithdraw turn 2",
        f"Queued, 2nd {HOSTILE}Withdraw turn 3",
    ]
    assert page.one("section", class_="turn-panel").one("h2").text == "Turn 1"
    assert [e.text for e in page.all("p", class_="turn-foot")][1:] == [
        "Turn 2 queued queued",
        "Turn 3 queued queued",
    ]
    queued = page.all("article", class_="is-queued")
    assert [article.one("div").text for article in queued] == ["second", HOSTILE]
    second, third = (t["id"] for t in gate.gate.turns("queue")[1:])
    assert browser.send(f"/ui/turns/{third}/cancel", {}).status == 200
    gate.model.will(says("after"), says("two"))
    GATES["free"].set()
    assert gate.ended({"turnId": second})["final_output"] == "two"
    page = tree(browser.open(path))
    assert not page.all("ol", aria_label="Queued messages")
    assert page.one("div", class_="waiting").text == ""


def test_a_turn_that_waited_begins_where_it_stands(gate: AgentGate, browser: Browser) -> None:
    path = open_session(gate, "live")
    page = open_page(gate.gate, path)
    with watching(gate.gate, page) as socket:
        begin_stuck(gate, browser, path)
        browser.send(f"{path}/messages", {"message": "second"})
        id, session = gate.gate.turns("live")[1]["id"], path.rpartition("/")[2]
        socket.until_swap("Queued, 1st second", f"waiting-{session}")
        socket.until_swap("second", "conversation")
        gate.model.will(says("one"), streams("two"))
        GATES["free"].set()
        begun = socket.until_swap("second", f"block-{id}")
        assert not begun.all("article", class_="is-queued")
        socket.until_swap("two", f"block-{id}", f"entries-{id}", *entries(gate, id))
        added = [e for e in socket.placed("conversation", "beforeend") if "second" in e.text]
        assert len(added) == 1
        eventually(lambda: gate.gate.turns("live")[1]["ended_at"])


def entries(gate: AgentGate, turn_id: str) -> list[str]:
    """Where the answers of a turn are redrawn."""
    return [f"step-{step['id']}" for step in gate.steps({"turnId": turn_id})]


def test_a_session_of_a_client_has_no_composer(gate: AgentGate, browser: Browser) -> None:
    gate.model.will(says())
    gate.gate.ended(gate.gate.post(chat("Hi", **named("gateway"))))
    page = browser.open("/ui/sessions/gateway")
    assert not page.all("textarea")
    sent = browser.send("/ui/sessions/gateway/messages", {"message": "x"})
    assert sent.status == 404


def test_a_conversation_with_a_model_alone_goes_on_too(gate: AgentGate, browser: Browser) -> None:
    gate.model.will(says("one"), says("two"))
    session = gate.ended(gate.say("Hi", "alone", name="chat"))["session_id"]
    sent = browser.send(f"/ui/sessions/{session}/messages", {"message": "On"}, follow=False)
    assert sent.status == 303
    assert gate.ended({"turnId": gate.gate.turns("alone")[1]["id"]})["final_output"] == "two"
    assert browser.open("/ui/sessions/alone").all("textarea")
    assert "/ui/agents/chat" not in browser.open("/ui/agents").links


# -- what is refused -------------------------------------------------------------------------------

REFUSALS = [
    ("  \r\n ", "There is nothing to send: the message is empty."),
    ("x" * 100_001, "The message has 100,001 characters, more than 100,000."),
]


@pytest.mark.parametrize(("text", "words"), REFUSALS)
def test_a_refusal_is_one_sentence_at_the_field(
    gate: AgentGate, browser: Browser, text: str, words: str
) -> None:
    path = open_session(gate, f"refused-{len(text)}")
    for form in (f"{path}/messages", "/ui/agents/a/chat"):
        page = browser.send(form, {"message": text})
        assert page.status == 422
        assert tree(page).one("p", role="alert", id="message-refused").text == words
    told = browser.send(f"{path}/messages", {"message": text}, HX_Request="true")
    assert (told.status, told.body.decode()) == (422, words)
    assert told.headers["content-type"].startswith("text/plain")
    assert gate.gate.turns(f"refused-{len(text)}") == []


def test_a_session_that_is_closed_says_so(gate: AgentGate, browser: Browser) -> None:
    path = open_session(gate, "closed")
    id = path.rpartition("/")[2]
    closing = Reading(gate.gate.send({"status": "closed"}, f"/sessions/{id}", "PATCH"))
    assert closing.rest().status == 200
    page = browser.open(path)
    assert not page.all("textarea")
    assert "This session is closed: nothing more can be said in it." in page.text
    sent = browser.send(f"{path}/messages", {"message": HOSTILE})
    assert sent.status == 409
    assert HOSTILE in sent.text, "what was written is not lost"
    told = browser.send(f"{path}/messages", {"message": "x"}, HX_Request="true")
    assert (told.status, told.body.decode()) == (409, f"Session {id} is closed.")


def test_a_form_of_another_page_is_refused(gate: AgentGate, browser: Browser) -> None:
    path = open_session(gate, "csrf")
    for form in (f"{path}/messages", "/ui/agents/a/chat"):
        assert browser.send(form, {"message": "x", "csrf": ""}).status == 403
        foreign = browser.send(form, {"message": "x"}, Origin="https://attacker.test")
        assert foreign.status == 403
    assert gate.gate.turns("csrf") == []


def test_a_script_is_told_that_it_is_done(gate: AgentGate, browser: Browser) -> None:
    path = open_session(gate, "script")
    begin_stuck(gate, browser, path)
    [turn] = gate.gate.turns("script")
    done = browser.send(f"/ui/turns/{turn['id']}/cancel", {}, HX_Request="true")
    assert (done.status, done.body) == (204, b"")
    GATES["free"].set()


# -- what would stop it ----------------------------------------------------------------------------


def test_the_limits_of_a_turn_are_bars(gate: AgentGate, browser: Browser) -> None:
    path = open_session(gate, "limits")
    begin_stuck(gate, browser, path)
    stops = tree(browser.open(path)).one("dl", class_="stops")
    told = {row.all("dt")[0].text: row.all("dd")[-1].text for row in stops.all("div")}
    assert told["iterations"] == "1 of 4"
    assert told["turn tokens"] == "15 of 1,000"
    assert told["turn cost"].endswith("of $2.00")
    assert told["time"].endswith("of 5 min 00 s")
    labels = [svg.attributes["aria-label"] for svg in stops.all("svg")]
    assert labels[:2] == ["iterations: 25 %", "turn tokens: 2 %"]
    gate.model.will(says("done"))
    GATES["free"].set()
    gate.ended({"turnId": gate.gate.turns("limits")[0]["id"]})


# -- kept up to date -------------------------------------------------------------------------------


def test_an_entry_that_came_with_its_turn_is_not_added_again(gate: AgentGate) -> None:
    """The store is ahead of the events: a turn is drawn with what they have yet to tell of."""
    gate.model.will(asks(("c1", "look", '{"city": "Oslo"}')), says("done"))
    answer = gate.say("hi", "ahead")
    services, id = gate.gate.services, answer["sessionId"]
    screen = OpenScreen(open_screen(services, {"page": "session", "id": id}))
    told = list_events(services.store, 0, 100, session_id=id)
    begins = next(n for n, event in enumerate(told) if event.type == "turn.started") + 1
    drawn = [*screen.drawn(*told[:begins]), *screen.drawn(*told[begins:])]
    place = f"entries-{answer['turnId']}"
    for step in gate.steps(answer):
        mine = [swap for swap in drawn if f'id="step-{step["id"]}"' in swap.html]
        assert mine[0].target == "conversation"
        assert place not in {swap.target for swap in mine}


# -- the window ------------------------------------------------------------------------------------


def test_a_model_that_answers_by_another_name_has_the_window_of_the_one_asked(
    tmp_path: Path,
) -> None:
    named = {"a": agent(model="gpt-4o", tools=()), "routed": agent(model="smart", tools=())}
    routes = tuple(Route(model=name, targets=("p1/gpt-4o",)) for name in ("gpt-4o", "smart"))
    with agents(tmp_path, agents=named, routes=routes) as gate:
        for name in named:
            gate.model.will(says("hi"))
            answer = gate.say("hello", None, name=name)
            session = gate.gate.get(f"/sessions/{answer['sessionId']}").json
            assert session["model"] == "m-served"
            assert session["context"]["window"] == 128_000
            page = open_page(gate.gate, f"/ui/sessions/{answer['sessionId']}")
            assert "of 128,000" in page.one("header", class_="session-head").text
            told = page.one("dl", class_="stops").text
            assert "context window" in told
            assert "of 128,000" in told
            [row] = open_page(gate.gate, "/ui/").all(id=f"session-{answer['sessionId']}")
            assert row.all("svg", class_="gauge")


def test_a_terminal_knows_the_window_of_an_agent(tmp_path: Path) -> None:
    own = agent(model="gpt-4o", context={"window": 900})
    config = Config.model_validate({"agents": {"a": agent(model="gpt-4o"), "own": own}})
    served = {"provider_name": "openai", "model": "gpt-of-tomorrow"}
    window_of = reading.windows(config)
    windows = [window_of({"agent_name": name, **served}) for name in ("a", "own", None)]
    assert windows == [128_000, 900, None]
