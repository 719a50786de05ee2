"""Names that turn the writing direction round, in a real browser: they turn nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agents_fixtures import AgentGate
from filled_store import FilledStore
from turned_texts import OVERRIDE, fill, turned
from visits import NARROW, WIDE, Visits

TURNED = """override => {
  // Texts whose characters do not follow one another to the right: those of others, and ours.
  const found = {theirs: 0, ours: []};
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    let last = null;
    for (let at = 0; at < node.length; at++) {
      if (!/[a-z0-9]/i.test(node.data[at])) continue;
      range.setStart(node, at);
      range.setEnd(node, at + 1);
      const place = range.getBoundingClientRect();
      if (!place.width) continue;
      if (last && place.top === last.top && place.left < last.left) {
        if (node.data.includes(override)) found.theirs++;
        else found.ours.push(node.parentElement.outerHTML);
        break;
      }
      last = place;
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AgentGate, FilledStore]]:
    with turned(tmp_path_factory.mktemp("directions")) as opened:
        yield opened


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_neither_a_name_nor_what_stands_beside_it_is_turned(
    served: tuple[AgentGate, FilledStore], visit: Visits, width: int
) -> None:
    gate, filled = served
    page = visit(f"{gate.gate.url}/ui/", width=width)
    for path in fill(filled, "untitled").values():
        page.goto(gate.gate.url + path)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        found = page.evaluate(TURNED, OVERRIDE)
        assert page.locator(".unseen:visible").count(), f"nothing is shown on {path}"
        assert found == {"theirs": 0, "ours": []}, path


def test_a_name_cannot_leave_its_element(
    served: tuple[AgentGate, FilledStore], visit: Visits
) -> None:
    gate, filled = served
    begins = ("", "\u2069", "\u2029", "\x85", "\x1c", "\u202c\u2069")
    for before in begins:
        filled.session(model=f"{before}{OVERRIDE}leaves")
    page = visit(f"{gate.gate.url}/ui/?q=model:*leaves")
    found = page.evaluate(TURNED, OVERRIDE)
    assert found == {"theirs": 0, "ours": []}
    assert page.locator("tr:has(.unseen:visible)").count() == len(begins)
