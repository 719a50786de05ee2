"""Where a reader is on the page of a long session: what scrolls, what is shown, what stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model
from page_width import assert_fits
from scripted_model import (
    Row,
    call,
    chat,
    completion,
    delta,
    named,
    result,
    said,
    says,
    user,
    whole,
)
from spoken import Talk
from visits import NARROW, Visits

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

TURNS = 45
"""Three windows of them, the last one not full."""

ANSWER = "A line of some length that fills the page.\n\n" * 8


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("places")) as gate:
        gate.model.always(says(ANSWER))
        long(gate, "long", TURNS)
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def long(gate: Gate, session: str, turns: int, answer: str = ANSWER) -> None:
    """So many turns, each with an answer of half a window."""
    gate.model.always(says(answer))
    for number in range(turns):
        gate.post(chat(f"Question {number}", **named(session)))


def path(gate: Gate, session: str = "long") -> str:
    return f"{gate.url}/ui/sessions/{gate.session(session)['id']}"


def height(place: Locator) -> float:
    """Where in the window it begins."""
    box = place.bounding_box()
    assert box is not None
    return box["y"]


def settled(page: Page) -> None:
    """Wait until what was scrolled has come to its end: two frames without a change."""
    page.evaluate(
        """() => new Promise(done => {
          const now = () => [scrollY, ...[...document.querySelectorAll(".talk, .turn-list")]
            .map(one => one.scrollTop)].join()
          let was = now(), same = 0
          const look = () => {
            same = now() === was ? same + 1 : 0
            was = now()
            same > 3 ? done() : requestAnimationFrame(look)
          }
          look()
        })"""
    )


# -- nothing scrolls into nothing ------------------------------------------------------------------


def test_the_page_itself_of_a_long_session_does_not_scroll(gate: Gate, visit: Visits) -> None:
    page = visit(path(gate))
    assert_fits(page)
    page.mouse.move(1000, 500)
    page.mouse.wheel(0, 3000)
    for key in ("End", "Space"):
        page.keyboard.press(key)
    settled(page)
    assert page.evaluate("scrollY") == 0
    assert_fits(visit(path(gate), width=NARROW))


# -- the turn that was chosen ----------------------------------------------------------------------

BLOCK_TOP = """id => document.getElementById(`block-${id}`).getBoundingClientRect().top
  - document.querySelector(".talk").getBoundingClientRect().top"""
AT_END = """(() => { const box = document.querySelector(".talk")
  return box.scrollHeight - box.scrollTop - box.clientHeight < 48 })()"""
ROW_SHOWN = """(() => {
  const row = document.querySelector(".turn-line.is-chosen").getBoundingClientRect()
  const list = document.querySelector(".turn-list").getBoundingClientRect()
  return row.top >= list.top && row.bottom <= list.bottom
})()"""


def chosen(page: Page) -> list[str]:
    """The turns that are shown as the chosen one."""
    found = page.locator(".turn-line.is-chosen a").evaluate_all(
        "all => all.map(one => one.dataset.turn)"
    )
    return [str(id) for id in found]


def test_a_session_opens_at_its_end_and_its_newest_row(gate: Gate, visit: Visits) -> None:
    page = visit(path(gate))
    assert page.evaluate(AT_END)
    assert chosen(page) == [gate.turns("long")[-1]["id"]]
    assert page.evaluate(ROW_SHOWN)


def test_the_turn_that_is_asked_for_is_before_the_readers_eyes(gate: Gate, visit: Visits) -> None:
    for index in (8, 20, TURNS - 5):
        turn = gate.turns("long")[index]["id"]
        page = visit(f"{path(gate)}?turn={turn}")
        assert abs(page.evaluate(BLOCK_TOP, turn)) < 2
        assert chosen(page) == [turn]
        assert page.evaluate(ROW_SHOWN)
        assert page.evaluate("scrollY") == 0
    page = visit(f"{path(gate)}?turn={turn}", width=NARROW)
    top = page.evaluate(
        "id => document.getElementById(`block-${id}`).getBoundingClientRect().top", turn
    )
    bar = page.evaluate("document.querySelector('.topbar').getBoundingClientRect().bottom")
    assert 0 <= top - bar < 20


def test_a_row_that_is_clicked_stays_under_the_pointer(gate: Gate, visit: Visits) -> None:
    page = visit(path(gate))
    turn = gate.turns("long")[-9]["id"]
    row = page.locator(f"#line-{turn} a")
    row.scroll_into_view_if_needed()
    before = height(row)
    with page.expect_navigation():
        row.click()
    assert abs(height(page.locator(f"#line-{turn}.is-chosen a")) - before) < 2
    assert abs(page.evaluate(BLOCK_TOP, turn)) < 2


def test_the_list_goes_on_to_a_turn_that_comes_in(gate: Gate, visit: Visits) -> None:
    long(gate, "comes", 15)
    page = live(visit(path(gate, "comes")))
    ask(gate, page, "comes", "One more")
    assert page.evaluate(AT_END)
    assert page.evaluate(ROW_SHOWN)
    # Not under the pointer, nor where the reader looks at other rows.
    page.hover(".turn-line.is-chosen")
    ask(gate, page, "comes", "Another")
    assert not page.evaluate(ROW_SHOWN)
    page.mouse.move(600, 400)
    assert page.evaluate(ROW_SHOWN)
    page.evaluate("document.querySelector('.turn-list').scrollTop = 0")
    page.evaluate("document.querySelector('.talk').scrollTop = 300")
    ask(gate, page, "comes", "The last")
    assert page.evaluate("document.querySelector('.turn-list').scrollTop") == 0
    assert page.evaluate("document.querySelector('.talk').scrollTop") == 300


def live(page: Page) -> Page:
    """The page once its socket is open."""
    page.locator("#connection", has_text="live").wait_for()
    return page


def ask(gate: Gate, page: Page, session: str, text: str) -> None:
    """Another turn, to its end, on the page, too."""
    gate.post(chat(text, **named(session)))
    turn = gate.turns(session)[-1]["id"]
    page.locator(f"#line-{turn}.is-chosen").wait_for(state="attached")
    page.locator(f"#foot-{turn}", has_text="done").wait_for(state="attached")


# -- earlier turns ---------------------------------------------------------------------------------


def numbers(page: Page, what: str) -> list[str]:
    """The numbers of the turns on the page, in order, as blocks or lines."""
    found = page.locator(what).evaluate_all(
        "all => all.map(one => /Question (\\d+)/.exec(one.textContent)[1])"
    )
    return [str(number) for number in found]


def test_earlier_turns_come_as_one_scrolls_and_the_reader_stays(gate: Gate, visit: Visits) -> None:
    page = visit(path(gate))
    turns = [turn["id"] for turn in gate.turns("long")]
    rows = "document.querySelector('.turn-list').scrollTop = 40"
    page.evaluate(rows)
    read, row = turns[TURNS - 20], turns[TURNS - 19]
    row_top = "id => document.getElementById(`line-${id}`).getBoundingClientRect().top"
    at = page.evaluate(row_top, row)
    page.evaluate("document.querySelector('.talk').scrollTop = 0")
    top = page.evaluate(BLOCK_TOP, read)
    page.locator(f"#block-{turns[TURNS - 40]}").wait_for(state="attached")
    settled(page)
    assert abs(page.evaluate(BLOCK_TOP, read) - top) < 2
    assert abs(page.evaluate(row_top, row) - at) < 2
    assert chosen(page) == [turns[-1]]
    # The next ones come when these have been read, not before.
    assert len(numbers(page, ".turn-block")) == 40
    page.mouse.move(500, 400)
    page.mouse.wheel(0, -20000)
    page.locator(f"#block-{turns[0]}").wait_for(state="attached")
    settled(page)
    everyone = [str(number) for number in range(TURNS)]
    assert numbers(page, ".turn-block") == everyone
    assert numbers(page, ".turn-line") == everyone
    assert page.locator("#more-turns a").count() == 0


def test_a_window_that_is_not_filled_loads_earlier_turns(gate: Gate, visit: Visits) -> None:
    long(gate, "short", 25, "Yes")
    page = visit(path(gate, "short"), height=5000)
    page.locator(".turn-block >> nth=24").wait_for(state="attached")
    assert "cursor" not in page.url
    settled(page)
    assert page.evaluate(AT_END)
    assert chosen(page) == [gate.turns("short")[-1]["id"]]


def test_on_a_narrow_page_earlier_turns_are_behind_a_link(gate: Gate, visit: Visits) -> None:
    page = visit(path(gate), width=NARROW)
    first = gate.turns("long")[TURNS - 20]["id"]
    link = page.locator("#more-turns a")
    link.scroll_into_view_if_needed()
    before = height(page.locator(f"#block-{first}"))
    link.click()
    page.locator(".turn-block >> nth=39").wait_for(state="attached")
    settled(page)
    assert abs(height(page.locator(f"#block-{first}")) - before) < 2


# -- the turn on a narrow page ---------------------------------------------------------------------


def test_the_turn_in_full_is_a_click_away_on_a_narrow_page(gate: Gate, visit: Visits) -> None:
    page = visit(path(gate), width=NARROW)
    link = page.get_by_role("link", name="Turn in full")
    assert height(link) < 800
    link.click()
    settled(page)
    assert 0 < height(page.locator(".truth")) < 400
    assert not visit(path(gate)).locator(".to-turn").is_visible()


def test_names_of_steps_can_be_read_on_a_narrow_page(gate: Gate, visit: Visits) -> None:
    tool: Row = {"type": "function", "function": {"name": "order_status"}}
    asked = completion(None, call("c1", "order_status"))
    gate.model.will(whole(asked), says("It is here"))
    talk = [user("Where is it?")]
    gate.post(chat(*talk, tools=[tool], **named("steps")))
    talk += [said(None, call("c1", "order_status", "{}")), result("c1", "here")]
    gate.post(chat(*talk, tools=[tool], **named("steps")))
    page = visit(path(gate, "steps"), width=NARROW)
    name = page.locator(".bar-name", has_text="order_status")
    assert name.evaluate("one => one.scrollWidth <= one.clientWidth")
    assert name.locator("b").evaluate("one => one.scrollWidth <= one.clientWidth")


def test_what_is_below_the_line_of_truth_stays_where_it_is(gate: Gate, visit: Visits) -> None:
    talk = Talk(gate, "truth", delta(role="assistant"))
    page = live(visit(gate.url + talk.turn_path, width=NARROW))
    figures, panel = page.locator(".turn-panel .boxes"), page.locator(".turn-panel")
    before = height(figures) - height(panel)
    talk.say("So ", "it goes")
    page.locator(".truth", has_text="first token").wait_for()
    assert height(figures) - height(panel) == before
    talk.end()
    page.locator(".truth", has_text="Done in").wait_for()
    assert height(figures) - height(panel) == before


@pytest.mark.parametrize("marked", ["two** thr", "One **two** three\n\nfour"])
def test_what_is_selected_in_an_answer_stays_so_at_its_end(
    gate: Gate, visit: Visits, marked: str
) -> None:
    text = "One **two** three\n\nfour [two three](https://x.test)"
    talk = Talk(gate, "selects", text)
    page = live(visit(gate.url + talk.turn_path))
    page.locator(talk.place, has_text="four").wait_for()
    at = text.index(marked)
    page.evaluate(
        """([place, from, to]) => {
          const node = document.querySelector(place).firstElementChild.firstChild
          getSelection().setBaseAndExtent(node, from, node, to)
        }""",
        [talk.place, at, at + len(marked)],
    )
    assert page.evaluate("String(getSelection())") == marked
    talk.end()
    page.locator(".prose", has_text="four").wait_for()
    selected = page.evaluate("String(getSelection())")
    assert selected.split() == marked.replace("*", "").split()
