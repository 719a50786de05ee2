"""Answers watched in a real browser as they come: in order and whole, whatever happens."""

from __future__ import annotations

import datetime
import signal
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import pytest

from faults import CONFIG, Running
from gateway_fixtures import PROVIDER_KEY, Gate, Reading, a_test_of, gate_and_model, provider
from scripted_model import (
    Answer,
    Asked,
    Model,
    asks_for,
    call,
    chat,
    delta,
    named,
    says,
    streams,
    whole,
)
from scripted_upstream import Peer
from servers import DEADLINE, Installation, eventually, installed
from spoken import Talk
from test_waterfall import AXES
from visits import Visits, behind_another_tab, offline
from xgw.config import Retry, Route

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

PIECES = [f"word {n}\n\n" if n % 10 == 9 else f"word {n} " for n in range(60)]
TEXT = "".join(PIECES)
BUSY = {"error": {"message": "slow down"}}

WATCH = """selector => {
  window.grown = []
  const place = document.querySelector(selector)
  const text = () => [...place.children].map(block => block.textContent).join("")
  new MutationObserver(() => window.grown.push(text()))
    .observe(place, {childList: true, characterData: true, subtree: true})
}"""


COUNT = """selector => {
  window.counts = []
  const place = document.querySelector(selector)
  const words = () => place.textContent.split(/\\s+/).filter(Boolean).length
  new MutationObserver(() => window.counts.push([words(), Date.now()]))
    .observe(place, {childList: true, characterData: true, subtree: true})
}"""
SOON_MS = 200
"""Within so long 95 % of what comes at PACE is on an open page; a busy machine is given five times
as much."""
PACE = 1 / 60


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    model = Model()
    fast = Retry(max_attempts=2, base_delay_ms=40, max_retry_after_seconds=1)
    with gate_and_model(
        tmp_path_factory.mktemp("live"),
        model,
        providers=(provider(model), provider(model, "p2")),
        routes=(
            Route(model="m", targets=("p1/m",)),
            Route(model="two", targets=("p1/m-a", "p2/m-b"), retry=fast),
        ),
    ) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def live(page: Page) -> Page:
    """The page once its socket is open; it can tell whether it was loaded anew since."""
    page.locator("#connection", has_text="live").wait_for()
    page.evaluate("window.same = true")
    return page


def is_same(page: Page) -> bool:
    """Whether the page was never loaded anew."""
    return bool(page.evaluate("window.same === true"))


def shown(page: Page) -> list[tuple[str, str]]:
    """The entries of the conversation: what each is of, and its words."""
    return [
        (str(entry.get_attribute("id")), entry.inner_text())
        for entry in page.locator(".entry").all()
    ]


def words(page: Page) -> list[str]:
    """The words of the conversation, each piece of white space as a blank."""
    texts = page.locator(".entry .text, .entry .prose, .entry .stream").all_inner_texts()
    return [" ".join(text.split()) for text in texts]


def holds(page: Page, place: str, text: str) -> None:
    """Wait until exactly this text stands there."""
    wanted = " ".join(text.split())
    eventually(lambda: " ".join(page.locator(place).inner_text().split()) == wanted)


def await_cut_off(page: Page, visit: Visits) -> None:
    """The page has tried in vain by then, which is all that its console may tell of."""
    page.locator("#connection", has_text="not connected").wait_for()
    visit.allow("ERR_CONNECTION_REFUSED", "htmx:ws:error")
    eventually(lambda: any("htmx:ws:error" in told for told in visit.complaints()))


def done(page: Page) -> None:
    page.locator(".truth", has_text="Done in").wait_for()


# -- what grows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["turn", "session"])
def test_an_answer_grows_in_order(gate: Gate, visit: Visits, kind: str) -> None:
    talk = Talk(gate, f"grows-{kind}", PIECES[0])
    page = live(visit(gate.url + (talk.turn_path if kind == "turn" else talk.session_path)))
    holds(page, talk.place, PIECES[0])
    page.evaluate(WATCH, talk.place)
    for number, piece in enumerate(PIECES[1:], start=2):
        talk.say(piece)
        if number % 15 == 0:
            holds(page, talk.place, "".join(PIECES[:number]))
    holds(page, talk.place, TEXT)
    grown: list[str] = page.evaluate("window.grown")
    assert all(later.startswith(earlier) for earlier, later in pairwise(grown))
    assert len(grown) >= 4
    talk.end()
    done(page)
    assert words(page) == ["Tell me", " ".join(TEXT.split())]
    assert page.locator(".stream").count() == 0
    assert is_same(page)


def test_a_piece_stands_on_the_page_soon_after_it_came(gate: Gate, visit: Visits) -> None:
    talk, pace = Talk(gate, "soon", "So "), threading.Event()
    page = live(visit(gate.url + talk.turn_path))
    holds(page, talk.place, "So")
    page.evaluate(COUNT, talk.place)
    said = []
    for number in range(180):
        pace.wait(PACE)
        said.append(time.time() * 1000)
        talk.say(f"piece-{number} ")
    holds(page, talk.place, " ".join(["So", *(f"piece-{n}" for n in range(len(said)))]))
    counts: list[tuple[int, float]] = page.evaluate("window.counts")
    late = [
        next(at for words, at in counts if words > number + 1) - moment
        for number, moment in enumerate(said)
    ]
    assert quantiles(late, n=20)[-1] < 5 * SOON_MS
    talk.end()
    done(page)


def test_arguments_of_tools_are_seen_as_they_form(gate: Gate, visit: Visits) -> None:
    talk = Talk(gate, "arguments", "I look. ")
    page = live(visit(gate.url + talk.turn_path))
    talk.say(delta(tool_calls=[{"index": 0, **call("c1", "look", '{"for": ')}]))
    place = f"#stream-{talk.step}-tool_arguments-0"
    holds(page, place, '{"for":')
    talk.say(delta(tool_calls=[{"index": 0, "function": {"arguments": '"it"}'}}]))
    holds(page, place, '{"for": "it"}')
    holds(page, talk.place, "I look.")
    talk.end("tool_calls")
    page.locator(".truth", has_text="Waiting").wait_for()
    assert page.locator(".entry.is-tool .tool-name", has_text="look").count() == 1
    gate.model.will(says("Found it"))
    gate.post(
        chat(
            "Tell me",
            {
                "role": "assistant",
                "content": "I look. ",
                "tool_calls": [call("c1", "look", '{"for": "it"}')],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "here"},
            **named("arguments"),
        )
    )
    done(page)
    assert words(page)[-1] == "Found it"


def test_reload_second_tab_and_api_agree(gate: Gate, visit: Visits) -> None:
    talk = Talk(gate, "agree", "One **two** ")
    first = live(visit(gate.url + talk.session_path))
    talk.say("three ")
    holds(first, talk.place, "One **two** three")
    second = live(visit.open(first.context, gate.url + talk.turn_path))
    holds(second, talk.place, "One **two** three")
    assert words(second) == words(first)
    talk.say("four")
    for page in (first, second):
        holds(page, talk.place, "One **two** three four")
    first.reload()
    holds(live(first), talk.place, "One **two** three four")
    talk.say(" five")
    talk.end()
    for page in (first, second):
        done(page)
        before = [shown(page), page.locator(".side .boxes").inner_text()]
        page.reload()
        assert [shown(page), page.locator(".side .boxes").inner_text()] == before
    assert shown(first) == shown(second)
    assert words(first) == ["Tell me", "One two three four five"]
    agrees_with_api(gate, talk, first)


def agrees_with_api(gate: Any, talk: Talk, page: Page) -> None:
    """The newest turn of the page is what the API tells, with the same ids."""
    turn = gate.get(f"/turns/{talk.turn['id']}").json
    messages = gate.get(f"/sessions/{turn['session_id']}/messages").json["data"]
    mine = [m for m in messages if m["turn_id"] == turn["id"]]
    asked, answered = sorted(mine, key=lambda m: m["message_index"])
    ids = [id for id, _ in shown(page)][-2:]
    assert ids == [f"message-{asked['id']}", f"step-{answered['step_id']}"]
    assert words(page)[-2] == asked["content"]
    assert words(page)[-1] == " ".join(str(answered["content"]).replace("*", "").split())
    assert page.locator(f"#turn-{turn['id']} .boxes").inner_text().split()[0] == "7"


# -- what goes wrong meanwhile ---------------------------------------------------------------------


def test_without_network_in_mid_stream_nothing_is_lost(gate: Gate, visit: Visits) -> None:
    talk = Talk(gate, "offline", "Before. ")
    page = live(visit(gate.url + talk.session_path))
    holds(page, talk.place, "Before.")
    with offline(page):
        for piece in PIECES:
            talk.say(piece)
        eventually(lambda: gate.services.recorder.live.texts(talk.step)["text", 0].endswith(TEXT))
    holds(page, talk.place, f"Before. {TEXT}")
    with offline(page):
        talk.say("After.")
        talk.end()
        gate.model.will(says("And on"))
        gate.post(chat("Go on", **named("offline")))
    page.locator(".entry", has_text="And on").wait_for()
    eventually(lambda: "Turn 2" in page.locator(".turn-panel h2").inner_text())
    done(page)
    found = words(page)
    assert found == ["Tell me", " ".join(f"Before. {TEXT}After.".split()), "Go on", "And on"]
    assert is_same(page)
    page.reload()
    assert words(page) == found


def test_a_hidden_tab_is_up_to_date_when_it_is_shown(
    gate: Gate, visit: Visits, tabs: BrowserContext
) -> None:
    talk = Talk(gate, "hidden", "Before. ")
    page = live(visit.open(tabs, gate.url + talk.session_path))
    holds(page, talk.place, "Before.")
    page.locator(talk.place).evaluate("place => getSelection().selectAllChildren(place)")
    with behind_another_tab(page):
        talk.say("Behind. ")
    holds(page, talk.place, "Before. Behind.")
    assert str(page.evaluate("String(getSelection())")).startswith("Before.")
    with behind_another_tab(page):
        talk.say("Over.")
        talk.end()
    done(page)
    found = words(page)
    assert found == ["Tell me", "Before. Behind. Over."]
    assert is_same(page)
    page.reload()
    assert words(page) == found


class Servers:
    """One server after the other on the same port, store and model."""

    def __init__(self, installation: Installation, model: Model) -> None:
        self._installation = installation
        self._model = model
        self.gate = Running(installation.serve(), model, installation.store)

    def end(self, how: int) -> None:
        """The one that runs, by a signal."""
        self.gate.server.send_all(how) if how == signal.SIGKILL else self.gate.server.send(how)
        self.gate.server.wait()

    def start(self) -> None:
        """The next one."""
        self.gate.store.close()
        server = self._installation.serve("--port", str(self.gate.server.port))
        self.gate = Running(server, self._model, self._installation.store)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    model = Model()
    try:
        with installed(tmp_path, CONFIG.format(url=model.url, key=PROVIDER_KEY)) as one:
            found = Servers(one, model)
            yield found
            found.gate.store.close()
    finally:
        model.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_a_restart_in_mid_stream_loses_and_doubles_nothing(
    servers: Servers, visit: Visits, how: int
) -> None:
    talk = Talk(servers.gate, "restart", "So far. ")
    page = live(visit(servers.gate.url + talk.session_path))
    holds(page, talk.place, "So far.")
    # What of a text is stored is what a server leaves that is killed.
    eventually(lambda: servers.gate.steps(talk.turn)[0]["partial_output"] == "So far. ")
    servers.end(how)
    talk.spoken.break_off()
    talk.reading.close()
    await_cut_off(page, visit)
    servers.start()
    page.locator("#connection", has_text="live").wait_for()
    cause = "the server shut down" if how == signal.SIGTERM else "interrupted"
    page.locator(".truth", has_text="Failed after").wait_for()
    assert cause in page.locator(".side").inner_text()
    assert words(page) == ["Tell me", "So far."]
    later = Talk(servers.gate, "restart", "Later: ")
    holds(page, later.place, "Later:")
    later.say("on")
    holds(page, later.place, "Later: on")
    later.end()
    done(page)
    assert words(page) == ["Tell me", "So far.", "Tell me", "Later: on"]
    assert is_same(page)
    agrees_with_api(servers.gate, later, page)
    found = shown(page)
    page.reload()
    assert shown(page) == found


# -- attempts --------------------------------------------------------------------------------------


def after(event: threading.Event, answer: Answer) -> Answer:
    """An answer that waits for the event first."""

    def answered(peer: Peer, asked: Asked) -> None:
        assert event.wait(DEADLINE)
        answer(peer, asked)

    return answered


def test_attempts_and_waits_are_drawn_as_they_happen(gate: Gate, visit: Visits) -> None:
    gate.model.will(says("Earlier"))
    session = gate.turn(gate.post(chat("Hello", **named("attempts"))))["session_id"]
    page = live(visit(f"{gate.url}/ui/sessions/{session}"))
    board = live(visit(f"{gate.url}/ui/"))
    second, third = threading.Event(), threading.Event()
    gate.model.will(
        whole(BUSY, status="429 Too Many Requests"),
        after(second, whole(BUSY, status="503 Service Unavailable")),
        after(third, streams("Served ", "at last")),
    )
    asked = gate.send(chat("Hello again", model="two", stream=True, **named("attempts")))
    bars = page.locator(".waterfall .bar")
    page.locator(".truth", has_text="2nd attempt").wait_for()
    assert [bar.split()[-1] for bar in bars.all_inner_texts()][:1] == ["429"]
    second.set()
    page.locator(".truth", has_text="3rd attempt").wait_for()
    assert [bar.split()[-1] for bar in bars.all_inner_texts()][:2] == ["429", "503"]
    third.set()
    Reading(asked).rest()
    done(page)
    assert [bars.nth(n).locator("line.wait").count() for n in range(bars.count())] == [0, 1, 0]
    wait = bars.nth(1).locator("line.wait").bounding_box()
    ends = [bars.nth(n).locator("rect.work").bounding_box() for n in range(3)]
    assert wait is not None
    assert all(end is not None for end in ends)
    assert wait["width"] > 1
    assert [end["x"] for end in ends if end] == sorted(end["x"] for end in ends if end)
    assert page.locator(".truth", has_text="served by the 3rd attempt").count() == 1
    assert words(page) == ["Hello", "Earlier", "Hello again", "Served at last"]
    board.locator("[data-row]", has_text="+2 attempts").wait_for()
    drawn = page.locator(".waterfall .bar").all_inner_texts()
    page.reload()
    assert page.locator(".waterfall .bar").all_inner_texts() == drawn
    assert page.locator(".entry.is-error").count() == 2


def test_the_axis_of_a_turn_that_waits_has_round_moments(gate: Gate, visit: Visits) -> None:
    gate.model.will(asks_for("c1"))
    gate.post(chat("Find it", **named("axis")))
    [turn] = gate.turns("axis")
    page = live(visit(f"{gate.url}/ui/turns/{turn['id']}"))
    begun = datetime.datetime.fromisoformat(
        str(page.locator(".waterfall").get_attribute("data-from"))
    )
    for seconds, labels in AXES[2:]:
        page.clock.set_fixed_time(begun + datetime.timedelta(seconds=seconds))
        eventually(lambda wanted=labels: page.locator(".scale text").all_text_contents() == wanted)
    # A clock behind the server's: the axis is what the server drew.
    page.clock.set_fixed_time(begun - datetime.timedelta(hours=1))
    eventually(lambda: page.locator(".scale text").all_text_contents() != AXES[-1][1])
