"""A very long answer in a real browser: each piece costs what the one before it did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model
from page_metrics import Meter, Metrics
from spoken import Talk
from visits import Visits

if TYPE_CHECKING:
    from playwright.sync_api import Page, WebSocket

LENGTH = 50_000
TOGETHER = 500
"""Characters that come at once: ten pieces of an answer of 1,000, as they do in 50 ms."""

UNITS = {
    "paragraphs": "one two three four five six seven eight nine ten. " * 9 + "\n\n",
    "one line": "one two three ",
    "one word": "x",
}
BLOCK = 16_000
"""Characters that a browser lays out anew for a further piece, at most."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("long")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


class Traffic:
    """How many characters came over a page's sockets."""

    def __init__(self, page: Page) -> None:
        self.received = 0
        page.on("websocket", self._watch)

    def _watch(self, socket: WebSocket) -> None:
        socket.on("framereceived", self._count)

    def _count(self, frame: str | bytes) -> None:
        self.received += len(frame)


@dataclass(frozen=True)
class Quarter:
    """What a quarter of the text cost: on the page, and on its socket."""

    page: Metrics
    received: int


def quarters_of(talk: Talk, page: Page, text: str) -> list[Quarter]:
    """Let a text come on the page of its turn, which is open anew for that."""
    traffic, meter = Traffic(page), Meter(page)
    page.reload()
    page.locator("#connection", has_text="live").wait_for()
    begun = int(page.locator(talk.place).get_attribute("data-length") or 0)
    found = []
    for quarter in range(4):
        metrics, received = meter.read(), traffic.received
        for at in range(quarter * len(text) // 4, (quarter + 1) * len(text) // 4, TOGETHER):
            talk.say(text[at : at + TOGETHER])
            arrived(page, talk, begun + at + TOGETHER)
        found.append(Quarter(meter.read() - metrics, traffic.received - received))
    return found


def arrived(page: Page, talk: Talk, length: int) -> None:
    """Wait until so many characters stand there."""
    page.evaluate(
        """([place, length]) => new Promise(done => {
          const look = () => Number(document.querySelector(place).dataset.length) >= length
            ? done() : requestAnimationFrame(look)
          look()
        })""",
        [talk.place, length],
    )


def largest_block(page: Page, talk: Talk) -> int:
    """The characters of the largest of the blocks that are laid out each by itself."""
    blocks = page.locator(f"{talk.place} > div")
    return int(blocks.evaluate_all("all => Math.max(...all.map(one => one.textContent.length))"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNITS)
def test_a_piece_costs_the_same_however_long_the_text_is(
    gate: Gate, visit: Visits, kind: str
) -> None:
    talk = Talk(gate, f"long {kind}", "Go: ")
    page = visit(gate.url + talk.turn_path)
    text = (UNITS[kind] * LENGTH)[:LENGTH]
    first, *_, last = quarters_of(talk, page, text)
    assert last.page.nodes < 200
    assert last.page.layouts < 4 * LENGTH / 4 / TOGETHER
    assert last.received < 2 * first.received
    assert largest_block(page, talk) < BLOCK
    # Who opens the page now goes on likewise.
    page.reload()
    page.locator("#connection", has_text="live").wait_for()
    talk.say(text[:TOGETHER], text[:TOGETHER])
    arrived(page, talk, len("Go: ") + LENGTH + 2 * TOGETHER)
    assert page.locator(f"{talk.place} > div").count() > 1
    talk.end()
    page.locator(".truth", has_text="Done in").wait_for()
    said = " ".join(page.locator(".prose").inner_text().split())
    assert said == " ".join(f"Go: {text}{text[:TOGETHER]}{text[:TOGETHER]}".split())
