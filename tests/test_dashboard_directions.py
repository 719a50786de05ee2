"""Texts of others that turn the writing direction round: each stands in an element of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from markupsafe import Markup

from agents_fixtures import AgentGate
from filled_store import FilledStore
from live_pages import Element, open_page
from turned_texts import OVERRIDE, fill, name, turned
from xgw.web.directions import contained

BLOCKS = frozenset(
    {"article", "aside", "dd", "div", "dt", "figcaption", "h1", "h2", "h3", "header", "li", "nav"}
    | {"ol", "p", "pre", "section", "summary", "table", "tbody", "td", "th", "tr"}
)
ISOLATING = BLOCKS | {"a", "b", "bdi", "button", "code", "label", "span", "strong", "time"}
"""Elements at whose edge a direction ends: blocks by themselves, the others by the style sheet."""

ALONE = re.compile(r"(from |finish reason )?⟦[^⟦⟧]*(⟧|…)")
"""What of ours stands before a text of theirs is not turned by it."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AgentGate, FilledStore]]:
    with turned(tmp_path_factory.mktemp("directions")) as opened:
        yield opened


NAMED_TOGETHER = (f"{name('provider')}/{name('model')}", f"1 {name('role')}", f"2 {name('role')}")
"""In a field's one value, and in the names of a drawing's parts, which are no elements."""


def mixed(element: Element) -> Iterator[str]:
    """Texts that have the words of others and ours in one element.

    What is JSON or a command as a whole is not parted.
    """
    for inner in element.walk():
        told = [child for child in inner.children if isinstance(child, str)]
        if not any(OVERRIDE in text for text in told):
            continue
        if inner.tag in ISOLATING and ALONE.fullmatch(inner.text):
            continue
        if inner.text.startswith(("{", "curl ")) or inner.text in NAMED_TOGETHER:
            continue
        yield f"<{inner.tag} {inner.attributes.get('class', '')}>{inner.text}"


def test_each_stands_alone(served: tuple[AgentGate, FilledStore]) -> None:
    gate, filled = served
    found = []
    for kind in ("titled", "untitled"):
        for page, path in fill(filled, kind).items():
            tree = open_page(gate.gate, path)
            assert OVERRIDE in tree.text, path
            title = tree.one("head").one("title").text
            assert OVERRIDE not in title or re.fullmatch("([^⟦]*\u2068⟦[^⟦]*\u2069)+[^⟦]*", title)
            found += [f"{page}: {text}" for text in mixed(tree.one("main"))]
    assert not found, "\n".join(dict.fromkeys(found))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain \x85\u2029\x1c", "plain \x85\u2029\x1c"),
        (f"{OVERRIDE}a", f"{OVERRIDE}a"),
        (f"\u2069{OVERRIDE}a\u2069", f"{OVERRIDE}a"),
        (f"\u2067a\u2069b\u2069{OVERRIDE}", f"\u2067a\u2069b{OVERRIDE}"),
        (f"\u2067a\n\u2069{OVERRIDE}", f"\u2067a\n{OVERRIDE}"),
        (f"a\u2029{OVERRIDE}\x85b\x1c", f"a\u2028{OVERRIDE}\u2028b\u2028"),
        (7, 7),
        (Markup("\u2069"), Markup("\u2069")),
    ],
)
def test_a_text_cannot_leave_its_element(text: object, expected: object) -> None:
    assert contained(text) == expected
