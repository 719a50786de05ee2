"""What readers did on a page stays as they left it, whatever comes in meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model
from scripted_model import asks_for, call, chat, named, result, said, says, user
from servers import eventually
from spoken import Talk
from visits import NARROW, Visits

if TYPE_CHECKING:
    from playwright.sync_api import Page

LONG = "A line of some length that fills the page.\n\n" * 60
OFFERED = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("reader")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def live(page: Page) -> Page:
    """The page once its socket is open."""
    page.locator("#connection", has_text="live").wait_for()
    return page


def worked(gate: Gate, session: str) -> None:
    """A turn in which a tool was used, and one with a long answer."""
    gate.model.will(asks_for("c1"), says("Found"), says(LONG))
    gate.post(chat("Look", tools=OFFERED, **named(session)))
    talk = [user("Look"), said(None, call("c1", "look", "{}")), result("c1", "it is here")]
    gate.post(chat(*talk, tools=OFFERED, **named(session)))
    gate.post(chat(*talk, said("Found"), "More", tools=OFFERED, **named(session)))


def go_on(gate: Gate, page: Page, session: str, text: str) -> None:
    """Another turn begins, streams and ends, on the page, too."""
    talk = Talk(gate, session, f"{text} ")
    page.locator(talk.place, has_text=text.strip()).wait_for(state="attached")
    talk.say("and on")
    page.locator(talk.place, has_text="and on").wait_for(state="attached")
    talk.end()
    page.locator(f"#step-{talk.step} .prose", has_text="and on").wait_for(state="attached")


def test_what_was_opened_typed_selected_and_focused_stays(gate: Gate, visit: Visits) -> None:
    worked(gate, "stays")
    page = live(visit(f"{gate.url}/ui/sessions/{gate.session('stays')['id']}"))
    for name in ("Details", "Tools"):
        page.locator(".session-folds summary", has_text=name).click()
    page.locator(".session-details .tool summary").click()
    page.locator(".entry.is-tool .tool-body summary").click()
    page.locator(".more summary", has_text="Everything about this turn").click()
    opened = page.locator("details[open]").evaluate_all("all => all.map(one => one.id)")
    assert len(opened) == 5
    title = page.locator("input[name=title]")
    title.fill("A title that is not sent yet")
    title.evaluate("one => one.setSelectionRange(2, 7)")
    page.evaluate(
        "() => getSelection().selectAllChildren(document.querySelector('.entry.is-tool pre'))"
    )
    chosen = page.evaluate("String(getSelection())")
    assert chosen
    title.focus()
    # What was selected in the page: focusing a field leaves that alone.
    page.evaluate(
        "() => getSelection().selectAllChildren(document.querySelector('.entry.is-tool pre'))"
    )
    for text in ("first", "second"):
        go_on(gate, page, "stays", text)
    assert page.evaluate("String(getSelection())") == chosen
    still = page.locator("details[open]").evaluate_all("all => all.map(one => one.id)")
    # The panel went on to the newest turn, so that this turn's details are not there any more.
    assert [one for one in opened if not one.startswith("more-turn")] == still
    assert title.input_value() == "A title that is not sent yet"
    assert page.locator(".session-details .tool .tool-name", has_text="look").is_visible()
    page.locator("input[name=title] + button").click()
    page.wait_for_url("**/ui/sessions/*")
    assert page.locator("h1").inner_text() == "A title that is not sent yet"


def test_the_panel_of_a_turn_that_goes_on_stays_open(gate: Gate, visit: Visits) -> None:
    talk = Talk(gate, "panel", "So ")
    page = live(visit(gate.url + talk.turn_path))
    page.locator(".more summary", has_text="Everything about this turn").click()
    button = page.get_by_role("button", name="Cancel turn")
    button.focus()
    place = page.locator(talk.place)
    place.evaluate("one => getSelection().selectAllChildren(one)")
    assert page.evaluate("String(getSelection())").strip() == "So"
    talk.say("it ")
    place.filter(has_text="So it").wait_for()
    talk.say("goes")
    place.filter(has_text="So it goes").wait_for()
    assert page.evaluate("String(getSelection())").startswith("So")
    assert button.evaluate("one => one === document.activeElement")
    talk.end()
    page.locator(".truth", has_text="Done in").wait_for()
    assert page.locator(".more[open] .fields").is_visible()
    assert button.count() == 0


def test_focus_on_a_row_survives_and_can_be_seen(gate: Gate, visit: Visits) -> None:
    gate.model.will(says("yes"), says("yes"), says("yes"))
    for session in ("one", "two"):
        gate.post(chat("Hello", **named(session)))
    page = live(visit(f"{gate.url}/ui/"))
    page.keyboard.press("j")
    focused = "document.activeElement.closest('[data-row]').id"
    row = page.evaluate(focused)
    gate.post(chat("Again", **named("two")))
    page.locator("[data-row]", has_text="2 turns").wait_for()
    assert page.evaluate(focused) == row
    assert page.evaluate("document.activeElement.matches(':focus-visible')")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_focus_on_a_turn_survives_the_next_one(gate: Gate, visit: Visits) -> None:
    worked(gate, "focus")
    page = live(visit(f"{gate.url}/ui/sessions/{gate.session('focus')['id']}"))
    page.keyboard.press("j")
    page.keyboard.press("j")
    turn = gate.turns("focus")[1]["id"]
    assert page.evaluate("document.activeElement.dataset.turn") == turn
    # It is the chosen one, and is not any more once another turn has begun.
    assert page.locator(f"#line-{turn}.is-chosen").count() == 1
    go_on(gate, page, "focus", "first")
    page.locator(f"#line-{turn}:not(.is-chosen)").wait_for()
    assert page.evaluate("document.activeElement.dataset.turn") == turn
    assert page.evaluate("document.activeElement.matches(':focus-visible')")


BOX = "document.querySelector('.talk')"
AT_END = f"{BOX}.scrollHeight - {BOX}.scrollTop - {BOX}.clientHeight < 48"


def test_the_page_follows_its_end_until_somebody_scrolls_up(gate: Gate, visit: Visits) -> None:
    worked(gate, "follows")
    page = live(visit(f"{gate.url}/ui/sessions/{gate.session('follows')['id']}"))
    assert page.evaluate(AT_END)
    talk = Talk(gate, "follows", LONG)
    page.locator(talk.place, has_text="A line").wait_for()
    assert page.evaluate(AT_END)
    pill = page.locator("#new-entries")
    assert not pill.is_visible()
    page.mouse.move(500, 400)
    page.mouse.wheel(0, -1500)
    eventually(lambda: not page.evaluate(AT_END))
    eventually(lambda: steady(page))
    top = page.evaluate(f"{BOX}.scrollTop")
    talk.say("The end")
    page.locator(talk.place, has_text="The end").wait_for()
    talk.end()
    page.locator(".prose", has_text="The end").wait_for()
    assert page.evaluate(f"{BOX}.scrollTop") == top
    assert not pill.is_visible()
    for text, count in (("first", 2), ("second", 4)):
        go_on(gate, page, "follows", text)
        assert pill.inner_text() == f"{count} new ↓"
        assert page.evaluate(f"{BOX}.scrollTop") == top
    pill.click()
    eventually(lambda: page.evaluate(AT_END))
    assert not pill.is_visible()
    go_on(gate, page, "follows", "third")
    assert page.evaluate(AT_END)
    assert not pill.is_visible()


def test_new_ones_have_been_seen_by_who_scrolls_down(gate: Gate, visit: Visits) -> None:
    worked(gate, "seen")
    page = live(visit(f"{gate.url}/ui/sessions/{gate.session('seen')['id']}"))
    page.mouse.move(500, 400)
    page.mouse.wheel(0, -1500)
    eventually(lambda: not page.evaluate(AT_END) and steady(page))
    go_on(gate, page, "seen", "first")
    pill = page.locator("#new-entries")
    assert pill.inner_text() == "2 new ↓"
    page.mouse.wheel(0, 9000)
    pill.wait_for(state="hidden")
    go_on(gate, page, "seen", "second")
    assert page.evaluate(AT_END)
    assert not pill.is_visible()


END_BELOW = f"{BOX}.getBoundingClientRect().bottom - innerHeight"


def test_a_narrow_page_follows_the_end_of_what_is_said(gate: Gate, visit: Visits) -> None:
    gate.model.will(says("Short"))
    gate.post(chat("Hello", **named("narrow")))
    path = f"{gate.url}/ui/sessions/{gate.session('narrow')['id']}"
    page = live(visit(path, width=NARROW))
    pill = page.locator("#new-entries")
    go_on(gate, page, "narrow", "first")
    assert page.evaluate("scrollY") == 0
    assert not pill.is_visible()
    talk = Talk(gate, "narrow", LONG)
    page.locator(talk.place, has_text="A line").wait_for()
    eventually(lambda: abs(page.evaluate(END_BELOW)) < 48)
    assert page.evaluate("scrollY") > 1000
    talk.end()
    page.locator(f"#step-{talk.step} .prose").wait_for()
    assert -800 < page.evaluate(END_BELOW) < 48
    page.evaluate("scrollTo(0, 800)")
    eventually(lambda: steady(page))
    top = page.evaluate("scrollY")
    go_on(gate, page, "narrow", "third")
    assert page.evaluate("scrollY") == top
    assert pill.inner_text() == "2 new ↓"
    pill.click()
    eventually(lambda: abs(page.evaluate(END_BELOW)) < 48)
    assert not pill.is_visible()


def steady(page: Page) -> bool:
    """Whether the wheel's scrolling has come to its end."""
    return bool(
        page.evaluate(
            f"""() => new Promise(done => {{
              const now = () => {BOX}.scrollTop + scrollY, top = now()
              const look = () => done(now() === top)
              requestAnimationFrame(() => requestAnimationFrame(look))
            }})"""
        )
    )
