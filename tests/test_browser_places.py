"""Where a reader is on the page of a long session: what scrolls, what is shown, what stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model
from page_width import assert_fits
from scripted_model import chat, named, says
from visits import NARROW, Visits

if TYPE_CHECKING:
    from playwright.sync_api import Page

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


def long(gate: Gate, session: str, turns: int) -> None:
    """So many turns, each with an answer of half a window."""
    gate.model.always(says(ANSWER))
    for number in range(turns):
        gate.post(chat(f"Question {number}", **named(session)))


def path(gate: Gate, session: str = "long") -> str:
    return f"{gate.url}/ui/sessions/{gate.session(session)['id']}"


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
