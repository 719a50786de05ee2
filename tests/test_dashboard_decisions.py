"""What people do with agents' turns on pages: decide, resume, run again, fork; as plain forms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_gates import RUNS
from agents_fixtures import AgentGate, a_test_with, agent, agents, asks, tools
from dashboard import Browser, Page
from filled_store import FilledStore
from live_pages import Element, open_page, parse, watching
from scripted_model import Row, chat, says, streams, whole
from servers import eventually
from xgw.store.models import Run

HOSTILE = "<script>alert(1)</script>\"'&<!--"
NOTE = ("c1", "note", '{"text": "x"}')
BAD = whole({"error": {"message": "no"}}, status="400 Bad")
OTHER = ("c2", "note", '{"text": "y"}')


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    guarded = tools(note={"approval": "always"})
    limits = {"max_iterations": 9, "max_seconds": 600}
    named = {"a": agent(), "boss": {"model": "m", "handoffs": ("a",), "limits": limits}}
    with agents(tmp_path_factory.mktemp("decisions"), agents=named, tools=guarded) as gate:
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


def waiting(gate: AgentGate, *calls: tuple[str, str, str]) -> Row:
    """The answer to a message whose turn waits for a person."""
    gate.model.will(asks(*(calls or (NOTE,))))
    reply = gate.chat("go")
    assert reply.status == 202, reply.body
    answer: Row = reply.json
    return answer


def decide(browser: Browser, answer: Row, decision: str, call: str = "c1", **more: str) -> Page:
    fields = {"tool_call_id": call, "decision": decision}
    headers = {name: more.pop(name) for name in ("HX_Request",) if name in more}
    return browser.send(f"/ui/runs/{answer['runId']}/approvals", {**fields, **more}, **headers)


def states(page: Element) -> list[tuple[str, str]]:
    """The calls of a turn that waits: the name of each, and how it stands."""
    return [
        (call.one("code", class_="tool-name").text, call.one("span", class_="decision-state").text)
        for call in page.all("section", class_="decision")
    ]


# -- deciding --------------------------------------------------------------------------------------


def test_a_call_that_waits_is_shown_with_its_forms(gate: AgentGate, browser: Browser) -> None:
    answer = waiting(gate, ("c1", "note", f'{{"text": "{HOSTILE[:25]}"}}'), ("c2", "look", "{}"))
    for path in (f"/ui/turns/{answer['turnId']}", f"/ui/sessions/{answer['sessionId']}"):
        shown = browser.open(path)
        page = tree(shown)
        assert states(page) == [
            ("note", "waiting for approval"),
            ("look", "runs once all are decided"),
        ]
        assert "for a decision on note" in page.one(id=f"truth-{answer['turnId']}").text
        [arguments] = page.all("textarea", name="arguments")
        assert arguments.text == f'{{ "text": "{HOSTILE[:25]}" }}'
        assert b"<script>alert" not in shown.body
        verdicts = [e.attributes["value"] for e in page.all("input", name="decision")]
        assert verdicts == ["approve", "deny", "result"]
    rows = tree(browser.open("/ui/?q=state:waiting")).all("td", class_="cell-state")
    assert [row.text for row in rows] == ["waiting for approval"]
    gate.cancel(answer["turnId"])


def test_what_is_approved_runs_as_the_model_asked_for_it(gate: AgentGate, browser: Browser) -> None:
    answer = waiting(gate)
    gate.model.will(says("noted"))
    [shown] = tree(browser.open(f"/ui/turns/{answer['turnId']}")).all("textarea", name="arguments")
    text = "".join(c for c in shown.children if isinstance(c, str)).removeprefix("\n")
    page = decide(browser, answer, "approve", arguments=text.replace("\n", "\r\n"))
    assert page.status == 200
    assert gate.ended(answer)["final_output"] == "noted"
    [step] = gate.steps(answer, "tool_call")
    assert step["metadata"]["decision"] == {"decision": "approve", "by": "dashboard"}
    assert "decided approved by dashboard" in tree(browser.open(f"/ui/steps/{step['id']}")).text
    assert step["metadata"]["arguments"] == '{"text": "x"}'
    assert RUNS == ["note x"]


UNSEEN = [
    '{"text": "\u202eevil gnp.exe"}',
    '{"text" :"a\u200b\ufeff\U000e0041\x7f\x85\u2028"}',
    '\r\n{"text":\r"x\u2069", "text":\t"\u202ey"}',
    '{"text": "\\u202espelled and \u202eraw"}',
]


@pytest.mark.parametrize("asked", UNSEEN)
def test_what_cannot_be_seen_is_spelled_and_runs_untouched(
    gate: AgentGate, browser: Browser, asked: str
) -> None:
    answer = waiting(gate, ("c1", "note", asked))
    gate.model.will(says("noted"))
    [shown] = tree(browser.open(f"/ui/turns/{answer['turnId']}")).all("textarea", name="arguments")
    text = "".join(c for c in shown.children if isinstance(c, str)).removeprefix("\n")
    assert not set(text) & set("\u202e\u2069\u200b\ufeff\U000e0041\x7f\x85\u2028")
    assert json.loads(text) == json.loads(asked)
    decide(browser, answer, "approve", arguments=re.sub("\r\n?|\n", "\r\n", text))
    gate.ended(answer)
    [step] = gate.steps(answer, "tool_call")
    assert step["metadata"]["decision"] == {"decision": "approve", "by": "dashboard"}
    assert step["metadata"]["arguments"] == asked
    assert [f"note {json.loads(asked)['text']}"] == RUNS


def test_what_the_message_of_another_run_holds_is_told(gate: AgentGate, browser: Browser) -> None:
    gate.model.will(says("done"))
    answer = gate.chat("run \u202eevil gnp.exe").json
    gate.ended(answer)
    form = tree(browser.open(f"/ui/turns/{answer['turnId']}")).one("details", class_="rerun")
    assert form.one("textarea", name="message").text == "run \u202eevil gnp.exe"
    assert form.one("i", class_="unseen").attributes["data-code"] == "\\u202e"


def test_what_cannot_be_seen_may_be_edited(gate: AgentGate, browser: Browser) -> None:
    answer = waiting(gate, ("c1", "note", UNSEEN[0]))
    refused = tree(decide(browser, answer, "approve", arguments='{"text": "\u202e'))
    assert refused.one("textarea", name="arguments").text == '{"text": "\\u202e'
    gate.model.will(says("noted"))
    decide(browser, answer, "approve", arguments='{"text": "\\u202elive"}')
    gate.ended(answer)
    assert RUNS == ["note \u202elive"]


def test_arguments_are_changed_denied_and_replaced_by_a_result(
    gate: AgentGate, browser: Browser
) -> None:
    answer = waiting(gate, NOTE, OTHER, ("c3", "note", '{"text": "z"}'))
    gate.model.will(says("done"))
    decide(browser, answer, "approve", arguments='{"text": "better"}')
    decide(browser, answer, "deny", "c2", reason="not\r\nthis one")
    page = tree(browser.open(f"/ui/turns/{answer['turnId']}"))
    assert [state for _, state in states(page)] == [
        "approved by dashboard",
        "denied by dashboard",
        "waiting for approval",
    ]
    decide(browser, answer, "result", "c3", result="by\r\nhand")
    gate.ended(answer)
    assert RUNS == ["note better"]
    results = [message["content"] for message in gate.sent(1)[-3:]]
    assert results == ["kept: better", "Error: the call was denied: not\nthis one", "by\nhand"]


REFUSALS = [
    ("{nothing", "The arguments are no JSON:"),
    ("[1]", "Arguments must be an object."),
    ('{"text": 5}', "Input should be a valid string"),
]


@pytest.mark.parametrize(("text", "words"), REFUSALS)
def test_arguments_that_do_not_fit_stay_with_why(
    gate: AgentGate, browser: Browser, text: str, words: str
) -> None:
    answer = waiting(gate)
    page = decide(browser, answer, "approve", arguments=text)
    assert page.status == 422
    [field] = tree(page).all("textarea", name="arguments")
    assert (field.text, field.attributes["aria-invalid"]) == (text, "true")
    told = tree(page).one("p", id=field.attributes["aria-describedby"])
    assert words in told.text
    scripted = decide(browser, answer, "approve", arguments=text, HX_Request="true")
    assert (scripted.status, scripted.headers["content-type"][:10]) == (422, "text/plain")
    assert words in scripted.body.decode()
    gate.cancel(answer["turnId"])
    assert RUNS == []


def test_who_decides_too_late_is_told_what_was_decided(gate: AgentGate, browser: Browser) -> None:
    answer = waiting(gate, NOTE, OTHER)
    decide(browser, answer, "approve")
    late = decide(browser, answer, "deny")
    words = "It was decided already: note was approved by dashboard."
    assert (late.status, words in late.text) == (409, True)
    gate.model.will(says("done"))
    decide(browser, answer, "deny", "c2")
    gate.ended(answer)
    late = decide(browser, answer, "approve", "c2", HX_Request="true")
    told = "It was decided already: note was denied by dashboard."
    assert (late.status, late.body.decode()) == (409, told)


def test_the_form_goes_at_once_when_another_person_decides(gate: AgentGate) -> None:
    answer = waiting(gate, NOTE, OTHER)
    page = open_page(gate.gate, f"/ui/sessions/{answer['sessionId']}")
    with watching(gate.gate, page) as socket:
        path = f"/runs/{answer['runId']}/approvals"
        gate.post(path, {"tool_call_id": "c1", "decision": "deny"})
        panel = socket.until_swap("denied by api", f"turn-{answer['turnId']}")
        assert [state for _, state in states(panel)] == ["denied by api", "waiting for approval"]
    gate.cancel(answer["turnId"])


def test_calls_of_agents_with_a_task_are_told_apart(gate: AgentGate, browser: Browser) -> None:
    """Both ask for the same, with the same id."""
    tasks = [(f"h{n}", "handoff_to_a", f'{{"message": "task {n}"}}') for n in range(2)]
    gate.model.will(asks(*tasks), asks(NOTE), asks(NOTE))
    answer = gate.chat("go", name="boss").json
    page = tree(browser.open(f"/ui/turns/{answer['turnId']}"))
    assert states(page) == [("note", "waiting for approval")] * 2
    calls = page.all("section", class_="decision")
    assert ["agent a" in call.one("header").text for call in calls] == [True] * 2
    truth = page.one(id=f"truth-{answer['turnId']}").text
    assert truth.endswith("for a decision on note, note")
    row = tree(browser.open("/ui/")).one("tbody", id=f"session-{answer['sessionId']}").text
    assert "waiting for approval" in row
    assert "handoff_to_a" not in row, "that is not what is asked"
    stops = page.one("dl", class_="stops").text
    assert "3 of 9" in stops
    assert "waiting for tools" not in stops
    first, second = (one["stepId"] for one in answer["pendingApprovals"])
    refused = decide(browser, answer, "approve", step_id=second, arguments="{")
    assert refused.status == 422
    alerts = [
        call.all("p", role="alert")[0].text
        for call in tree(refused).all("section", class_="decision")
    ]
    assert [bool(text) for text in alerts] == [False, True]
    assert decide(browser, answer, "deny", step_id=second).status == 200
    assert states(tree(browser.open(f"/ui/turns/{answer['turnId']}"))) == [
        *(("note", "waiting for approval"), ("note", "denied by dashboard")),
    ]
    gate.model.will(says("one"), says("two"), says("both"))
    assert decide(browser, answer, "approve", step_id=first).status == 200
    assert gate.ended(answer)["final_output"] == "both"
    assert RUNS == ["note x"]


def test_a_form_of_another_page_decides_nothing(gate: AgentGate, browser: Browser) -> None:
    answer = waiting(gate)
    assert decide(browser, answer, "approve", csrf="").status == 403
    assert decide(browser, answer, "burn").status == 422
    assert browser.send("/ui/runs/run_nothing/approvals", {}).status == 404
    assert gate.gate.all(Run, Run.id == answer["runId"])[0]["status"] == "waiting_tool"
    gate.cancel(answer["turnId"])


# -- interrupted -----------------------------------------------------------------------------------


@pytest.fixture
def filled(gate: AgentGate, served: AgentGate) -> Iterator[FilledStore]:
    filled = FilledStore(Path(served.gate.services.store.path).parent)
    yield filled
    filled.close()


def interrupted(filled: FilledStore, status: str, state: str) -> tuple[str, str]:
    """A turn whose process is gone, in the middle of a call; its id and that of its run."""
    session = filled.session(kind="agent", agent_name="a")
    own = {"agent_name": "a", "endpoint": None, "status": "running", "ended_at": None}
    turn = filled.turn(session, user_input="go", **own)
    call = {
        "tool_call_id": "c1",
        "name": "look",
        "arguments": '{"city": "Oslo"}',
        "arguments_json_valid": True,
        "incomplete": False,
        "state": state,
    }
    kept = {"next": "decisions", "pending_tool_calls": [call], "messages_upto": 1}
    run = filled.run(turn, status=status, checkpoint=filled.json(kept), ended_at=None)
    return turn, run


def test_an_interrupted_turn_offers_to_go_on(filled: FilledStore, browser: Browser) -> None:
    turn, run = interrupted(filled, "paused", "outcome_unknown")
    page = tree(browser.open(f"/ui/turns/{turn}"))
    assert "Paused" in page.one(id=f"truth-{turn}").text
    [form] = page.all("form", action=f"/ui/runs/{run}/resume")
    assert form.one("button").text == "Resume"
    assert page.all("form", action=f"/ui/turns/{turn}/cancel")
    assert not states(page)


def test_a_turn_is_resumed_and_goes_on_in_its_place(
    gate: AgentGate, filled: FilledStore, browser: Browser
) -> None:
    session = filled.session(kind="agent", agent_name="a", message_count=1)
    own = {"agent_name": "a", "endpoint": None, "status": "running", "ended_at": None}
    turn = filled.turn(session, user_input="go", **own)
    kept = {"next": "llm_call", "step_id": None, "pending_tool_calls": [], "messages_upto": 0}
    run = filled.run(turn, status="paused", checkpoint=filled.json(kept), ended_at=None)
    filled.message(session, turn, 0, content="go", run_id=run)
    step = filled.step(run, turn, session_id=session, status="error", error_type="crash")
    page = open_page(gate.gate, f"/ui/sessions/{session}")
    gate.model.will(says("went on"))
    with watching(gate.gate, page) as socket:
        assert browser.send(f"/ui/runs/{run}/resume", {}).path == f"/ui/turns/{turn}"
        place = f"entries-{turn}"
        socket.until(lambda: [e for e in socket.placed(place, "outerMorph") if said(e)])
        drawn = socket.placed(place, "outerMorph")[-1]
    assert drawn.all("article", id=f"step-{step}"), "what was broken off stays"
    assert said(drawn) == ["went on"]
    shown = tree(browser.open(f"/ui/turns/{turn}"))
    assert [tab.text for tab in shown.one("nav", aria_label="Runs").all("a")] == [
        *("Run 1 · first cancelled cancelled", "Run 2 · resumed done done"),
    ]
    assert shown.one("p", class_="run-words").text.startswith(
        "Goes on from run 1. The turn's answer"
    )
    assert browser.send(f"/ui/runs/{run}/resume", {}).status == 409


def test_a_call_of_unknown_outcome_offers_three_ways(filled: FilledStore, browser: Browser) -> None:
    turn, _ = interrupted(filled, "waiting_tool", "outcome_unknown")
    page = tree(browser.open(f"/ui/turns/{turn}"))
    assert states(page) == [("look", "outcome unknown")]
    buttons = [button.text for button in page.one("section", class_="decision").all("button")]
    assert buttons == ["Run again look", "Mark as failed look", "Use this result for look"]


# -- run again -------------------------------------------------------------------------------------


def done(gate: AgentGate, text: str = "one") -> Row:
    gate.model.will(asks(("l1", "look", '{"city": "Oslo"}')), says(text))
    answer = gate.say("How is Oslo?")
    gate.ended(answer)
    return answer


def again(gate: AgentGate, browser: Browser, answer: Row, **fields: str) -> Page:
    """Run it again, and wait for the end."""
    before = len(gate.gate.get(f"/turns/{answer['turnId']}").json["runs"])
    page = browser.send(f"/ui/turns/{answer['turnId']}/runs", fields)
    assert page.status == 200, page.text
    where = Run.turn_id == answer["turnId"], Run.run_index == before
    eventually(lambda: [run for run in gate.gate.all(Run, *where) if run["ended_at"]])
    gate.ended(answer)
    return browser.open(f"/ui/turns/{answer['turnId']}")


def said(page: Element) -> list[str]:
    """The answers in the conversation."""
    return [e.text for e in page.all("div", class_="prose")]


def test_a_turn_runs_again_beside_what_it_did(gate: AgentGate, browser: Browser) -> None:
    answer = done(gate)
    page = tree(browser.open(f"/ui/turns/{answer['turnId']}"))
    form = page.one("details", class_="rerun")
    assert form.one("textarea", name="message").text == "How is Oslo?"
    assert form.one("textarea", name="instructions").text == "Be brief."
    offered = [option.text for option in form.one("select", name="from_step_id").all("option")]
    assert offered == [
        *("its message", "step 1 · llm_call m", "step 2 · tool_call look", "step 3 · llm_call m"),
    ]
    gate.model.will(says("two"))
    fields = {
        "message": "How is Oslo?",
        "instructions": "Be long.",
        "model": "p1/n",
        "reuse": "none",
    }
    page = tree(again(gate, browser, answer, **fields))
    [run] = gate.gate.all(Run, Run.turn_id == answer["turnId"], Run.run_index == 1)
    changed = {"instructions": "Be long.", "model": "p1/n", "reuse": "none"}
    assert run["overrides"] == {"mode": "chat", **changed}
    assert said(page) == ["two"]
    tabs = page.one("nav", aria_label="Runs")
    assert [tab.text for tab in tabs.all("a")] == [
        *("Run 1 · first done done", "Run 2 · run again done done"),
    ]
    words = page.one("p", class_="run-words").text
    assert words == (
        "Repeats run 1 · model p1/n · other instructions · tools run anew. "
        "The turn's answer is that of run 2, the newest that succeeded. "
        "Its 2 runs together used 24 in → 11 out tokens. Export this run"
    )
    first = tree(browser.open(tabs.all("a")[0].attributes["href"]))
    assert said(first) == ["one"]
    assert len(first.all("article", class_="is-tool")) == 1
    assert said(tree(browser.open(f"/ui/sessions/{answer['sessionId']}"))) == ["two"]


def test_a_turn_runs_again_from_one_of_its_steps(gate: AgentGate, browser: Browser) -> None:
    answer = done(gate)
    step = gate.steps(answer, "llm_call")[1]["id"]
    path = f"/ui/turns/{answer['turnId']}?from={step}"
    assert f"{path}#rerun-{answer['turnId']}" in browser.open(f"/ui/steps/{step}").links
    form = tree(browser.open(path)).one("details", class_="rerun")
    assert "open" in form.attributes
    chosen = form.one("select", name="from_step_id").one("option", selected="").attributes
    assert chosen["value"] == step
    gate.model.will(says("again"))
    page = tree(again(gate, browser, answer, from_step_id=step))
    assert page.one("p", class_="run-words").text.startswith("Repeats run 1 · from step 3 · ")
    assert said(page) == ["again"]
    assert len(page.all("article", class_="is-tool")) == 1, "what stands before it is taken over"
    assert RUNS == ["look Oslo"]


def test_the_newest_answer_stays_when_a_later_run_fails(gate: AgentGate, browser: Browser) -> None:
    answer = done(gate)
    gate.model.will(BAD)
    page = tree(again(gate, browser, answer))
    assert said(page) == ["one"]
    words = page.one("p", class_="run-words").text
    assert "The turn's answer is that of run 1, the newest that succeeded." in words
    assert said(tree(browser.open(f"/ui/sessions/{answer['sessionId']}"))) == ["one"]


def test_what_cannot_be_run_again_says_why_at_the_form(gate: AgentGate, browser: Browser) -> None:
    answer = done(gate)
    page = browser.send(
        f"/ui/turns/{answer['turnId']}/runs", {"message": HOSTILE, "from_step_id": "step_nothing"}
    )
    assert page.status == 404
    form = tree(page).one("details", class_="rerun")
    assert "open" in form.attributes
    assert form.one("textarea", name="message").text == HOSTILE
    assert "no step 'step_nothing'" in form.one("p", class_="refused").text
    assert b"<script>alert" not in page.body


def test_a_rerun_is_seen_live_in_the_place_of_the_answer(gate: AgentGate, browser: Browser) -> None:
    answer = done(gate)
    page = open_page(gate.gate, f"/ui/sessions/{answer['sessionId']}")
    with watching(gate.gate, page) as socket:
        gate.model.will(streams("two"))
        again(gate, browser, answer, message="And Bergen?")
        place = f"entries-{answer['turnId']}"
        socket.until(lambda: [e for e in socket.placed(place, "outerMorph") if said(e)])
        drawn = socket.placed(place, "outerMorph")[-1]
        assert said(drawn) == ["two"]
        assert "And Bergen?" in drawn.text
        assert "How is Oslo?" not in drawn.text
        socket.until_swap("The turn's answer is that of run 2", f"turn-{answer['turnId']}")


def test_a_session_is_forked_at_a_turn(gate: AgentGate, browser: Browser) -> None:
    answer = done(gate)
    page = browser.send(f"/ui/turns/{answer['turnId']}/fork", {}, follow=False)
    path = page.headers["location"]
    assert (page.status, path == f"/ui/sessions/{answer['sessionId']}") == (303, False)
    assert "one" in browser.open(path).text
    assert browser.send("/ui/turns/turn_no/fork", {}).status == 404


def test_a_turn_of_a_client_has_none_of_this(gate: AgentGate, browser: Browser) -> None:
    gate.model.will(says("plain"))
    turn = gate.gate.ended(gate.gate.post(chat("x")))
    page = tree(browser.open(f"/ui/turns/{turn['id']}"))
    assert not page.all("details", class_="rerun")
    assert not page.all("form", action=f"/ui/turns/{turn['id']}/fork")
    step = gate.gate.steps(turn)[0]["id"]
    assert not [link for link in browser.open(f"/ui/steps/{step}").links if "from=" in link]
