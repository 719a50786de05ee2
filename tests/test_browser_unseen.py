"""Characters that cannot be seen or turn a text round, in a real browser: drawn, inert, copied."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from accessibility import assert_accessible
from agent_gates import RUNS
from agents_fixtures import AgentGate, a_test_with, agents, asks, tools
from page_width import assert_fits
from scripted_model import Row, call, delta, says, stream
from servers import eventually
from visits import NARROW, WIDE, Visits
from xgw.web.unseen import literal

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

TURNED = "\u202eevil gnp.exe"
ARGUMENTS = f'{{"text": "{TURNED}"}}'
CHARACTERS = (
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u200b\u200c\u200d"
    "\u2060\ufeff\xad\x01\x0b\x0c\r\x1b\x1c\x7f\x80\x85\x9f\u2028\u2029\U000e0041\U000e007f"
)

DRAWN = """element => {
  // Each letter and each sign with where it stands, from the left in lines from above.
  const found = [], range = document.createRange();
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const sign = node.parentElement.closest(".unseen");
    if (sign) { found.push([sign.dataset.code, sign.getBoundingClientRect()]); continue; }
    for (let at = 0; at < node.length; at++) {
      range.setStart(node, at);
      range.setEnd(node, at + 1);
      found.push([node.data[at], range.getBoundingClientRect()]);
    }
  }
  const seen = found.filter(([, place]) => place.width > 1);
  const below = (a, b) => Math.abs(a.bottom - b.bottom) > 9 ? a.bottom - b.bottom : 0;
  seen.sort(([, a], [, b]) => below(a, b) || a.left - b.left);
  return seen.map(([text]) => text).join("");
}"""


ALIGNED = """element => {
  const range = document.createRange(), all = element.getBoundingClientRect();
  range.selectNodeContents(element);
  const text = range.getBoundingClientRect();
  return text.left - all.left < 1 ? "left" : all.right - text.right < 1 ? "right" : "";
}"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    guarded = tools(note={"approval": "always"})
    with agents(tmp_path_factory.mktemp("unseen"), tools=guarded) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


def waiting(gate: AgentGate, arguments: str = ARGUMENTS, message: str = TURNED) -> Row:
    """The answer to a message whose turn waits for a person."""
    gate.model.will(asks(("c1", "note", arguments), text=f"I note {TURNED}"))
    answer: Row = gate.chat(message).json
    return answer


def live(page: Page) -> Page:
    page.locator("#connection", has_text="live").wait_for()
    return page


def drawn(place: Locator) -> str:
    """What is read there, from left to right."""
    return str(place.evaluate(DRAWN)).replace("\xa0", " ")


def copied(page: Page, place: Locator) -> str:
    """What is in the clipboard once a person has selected all of it and copied."""
    place.evaluate("place => getSelection().selectAllChildren(place)")
    page.keyboard.press("Control+c")
    return str(page.evaluate("navigator.clipboard.readText()"))


def put(page: Page, html: str) -> None:
    page.evaluate("html => { document.querySelector('main').innerHTML = html; }", html)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_what_is_asked_for_is_read_and_what_is_approved_runs(
    gate: AgentGate, visit: Visits, width: int
) -> None:
    answer = waiting(gate)
    page = live(visit(f"{gate.gate.url}/ui/sessions/{answer['sessionId']}", width=width))
    assert drawn(page.locator(".session-title h1")) == "\\u202eevil gnp.exe"
    assert drawn(page.locator(".line-input")).replace(" ", "") == "\\u202eevilgnp.exe"
    assert drawn(page.locator(".is-bubble")) == "\\u202eevil gnp.exe"
    assert drawn(page.locator(".entry .prose p")) == "I note \\u202eevil gnp.exe"
    assert drawn(page.locator(".asked .line")).startswith('{"text": "\\u202eevil')
    field = page.get_by_label("Arguments")
    assert field.input_value() == '{\n  "text": "\\u202eevil gnp.exe"\n}'
    assert page.title() == "\\u202eevil gnp.exe · xgw"
    assert_fits(page)
    assert_accessible(page)
    gate.model.will(says("Noted."))
    page.get_by_role("button", name="Approve").click()
    page.locator(".entry.is-call", has_text="Noted.").wait_for()
    assert RUNS == ["note " + TURNED]
    [step] = gate.steps(answer, "tool_call")
    assert step["metadata"]["arguments"] == ARGUMENTS
    assert "arguments" not in step["metadata"]["decision"]
    page.locator(".tool-body summary").click()
    body = page.locator(".tool-body pre")
    assert '"text": "\\u202eevil gnp.exe"' in drawn(body.nth(0))
    assert drawn(body.nth(1)) == "kept: \\u202eevil gnp.exe"
    assert_fits(page)


def test_what_is_copied_is_the_true_text(gate: AgentGate, visit: Visits) -> None:
    text = "".join(f"a{character}b " for character in CHARACTERS) + "end"
    page = visit(f"{gate.gate.url}/ui/", permissions=["clipboard-read", "clipboard-write"])
    for element in ("pre class=body", "div class=text", "code"):
        put(page, f"<{element} id=x>{literal(text)}")
        place = page.locator("#x")
        assert copied(page, place) == text
        assert drawn(place).count("\\") == len(CHARACTERS)
        assert place.evaluate("place => place.textContent") == text


def test_nothing_beside_them_is_turned(gate: AgentGate, visit: Visits) -> None:
    page = visit(f"{gate.gate.url}/ui/")
    for character in CHARACTERS:
        told = literal(f"two {character} three {character}{character} four")
        put(page, f"<p id=x>one <b>{told}</b> six</p>")
        words = [word for word in drawn(page.locator("#x")).split() if not word.startswith("\\")]
        assert words == ["one", "two", "three", "four", "six"], ascii(character)


def test_it_grows_as_it_is_shown_afterwards(gate: AgentGate, visit: Visits) -> None:
    go = threading.Event()
    asked = [delta(tool_calls=[{"index": 0, **call("c1", "note", ARGUMENTS[:12])}])]
    rest: Any = delta(tool_calls=[{"index": 0, "function": {"arguments": ARGUMENTS[12:]}}])
    begin = [delta("first \u202e"), delta("turned\u2069 👨\u200d"), delta("👩 שלום\u200f!")]
    gate.model.will(stream(*begin, *asked, rest, go))
    session = gate.post("/sessions", {"agent": "a"}).json["id"]
    page = live(visit(f"{gate.gate.url}/ui/sessions/{session}"))
    page.fill("#message", "go")
    page.press("#message", "Enter")
    text = page.locator(".stream.is-text")
    eventually(lambda: "\u200f!" in str(text.text_content()))
    assert text.text_content() == "first \u202eturned\u2069 👨\u200d👩 שלום\u200f!"
    assert drawn(text).startswith("first \\u202eturned\\u2069 ")
    arguments = page.locator(".stream.is-tool_arguments")
    eventually(lambda: arguments.text_content() == ARGUMENTS)
    assert drawn(arguments) == '{"text": "\\u202eevil gnp.exe"}'
    page.reload()
    assert page.locator(".stream.is-tool_arguments").text_content() == ARGUMENTS
    assert drawn(arguments) == '{"text": "\\u202eevil gnp.exe"}'
    go.set()


def test_a_long_text_grows_so_too(gate: AgentGate, visit: Visits) -> None:
    more, go = threading.Event(), threading.Event()
    pieces = [f"\u202e{n} turned\n{'word ' * 40}\u202e\n" for n in range(60)]
    gate.model.will(stream(*map(delta, pieces[:30]), more, *map(delta, pieces[30:]), go))
    session = gate.post("/sessions", {"agent": "a"}).json["id"]
    page = live(visit(f"{gate.gate.url}/ui/sessions/{session}"))
    page.fill("#message", "go")
    page.press("#message", "Enter")
    text = page.locator(".stream.is-text")
    eventually(lambda: "29 turned" in str(text.text_content()))
    more.set()
    eventually(lambda: text.locator(".unseen").count() == 120)
    assert str(text.text_content()).count("\u202e") == 120
    blocks = text.locator("> div").count()
    go.set()
    assert blocks > 1


def test_language_from_right_to_left_reads_as_it_should(gate: AgentGate, visit: Visits) -> None:
    said = "שלום, עולם!\n\nنمی\u200cخواهم\n\nplain 👨\u200d👩\u200d👧"
    gate.model.will(says(said))
    answer = gate.chat("שלום C++\u200e!").json
    page = visit(f"{gate.gate.url}/ui/sessions/{answer['sessionId']}")
    gate.ended(answer)
    page.reload()
    assert page.locator(".unseen").count() == 0
    first, second, last = page.locator(".entry .prose p").all()
    assert drawn(first) == "!םלוע ,םולש"
    ends = [one.evaluate(ALIGNED) for one in (first, second, last)]
    assert ends == ["right", "right", "left"]
    assert drawn(page.locator(".is-bubble")).endswith("םולש")
