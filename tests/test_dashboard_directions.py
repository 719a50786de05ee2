"""Texts of others that turn the writing direction round: each stands in an element of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from agents_fixtures import AgentGate
from filled_store import FilledStore
from live_pages import Element, open_page
from turned_texts import OVERRIDE, fill, name, turned

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


ROLE = name("role").replace(OVERRIDE, "\\u202e")
NAMED_TOGETHER = (f"{name('provider')}/{name('model')}", f"1 {ROLE}", f"2 {ROLE}")
"""In a field's one value, and in the names of a drawing's parts, which are no elements."""


def mixed(element: Element) -> Iterator[str]:
    """Texts that have the words of others and ours in one element.

    What is JSON or a command as a whole is not parted.
    """
    for inner in element.walk():
        told = [child for child in inner.children if isinstance(child, str)]
        if not any("⟦" in text for text in told):
            continue
        if inner.tag in ISOLATING and ALONE.fullmatch(inner.text):
            continue
        if inner.text.startswith(("{", "curl ")) or inner.text in NAMED_TOGETHER:
            continue
        yield f"<{inner.tag} {inner.attributes.get('class', '')}>{inner.text}"


def acting(tree: Element) -> Iterator[str]:
    """Where the character stands outside of what draws it, and attributes that are read with it."""
    for inner in tree.walk():
        for told in {"title", "aria-label", "placeholder"} & inner.attributes.keys():
            assert "<i " not in inner.attributes[told]
            if OVERRIDE in inner.attributes[told]:
                yield f"{told} of <{inner.tag}>"
        is_sign = inner.tag == "i" and inner.attributes == {
            "class": "unseen",
            "data-code": "\\u202e",
        }
        if not is_sign and any(OVERRIDE in c for c in inner.children if isinstance(c, str)):
            yield f"<{inner.tag} {inner.attributes.get('class', '')}>{inner.text}"


def test_each_stands_alone(served: tuple[AgentGate, FilledStore]) -> None:
    gate, filled = served
    found = []
    for kind in ("titled", "untitled"):
        for page, path in fill(filled, kind).items():
            tree = open_page(gate.gate, path)
            assert OVERRIDE in tree.text, path
            assert OVERRIDE not in tree.one("head").one("title").text
            found += [f"{page}: acts in {text}" for text in acting(tree)]
            found += [f"{page}: {text}" for text in mixed(tree.one("main"))]
    assert not found, "\n".join(dict.fromkeys(found))
