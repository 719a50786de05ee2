"""A report in Markdown: what was said stands in fences that it cannot close."""

from __future__ import annotations

import re
from typing import BinaryIO

from xgw.portable.formats.blocks import Block, Facts, Heading, Left, Overview, Said
from xgw.portable.formats.harmless import harmless, one_line
from xgw.portable.formats.shelf import shelved
from xgw.portable.formats.story import story
from xgw.portable.source import Source

_SPECIAL = re.compile(r"([\\`*\[\]<>|~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_TICKS = re.compile("`+")
_STATES = {"done": "✓", "error": "✗", "cancelled": "–", "running": "…", "paused": "‖"}


def write_markdown(source: Source, out: BinaryIO) -> None:
    """The report of a source."""
    with shelved(source) as shelf:
        for block in story(shelf):
            out.write(rendered(block).encode("utf-8", "replace"))


def rendered(block: Block) -> str:
    """A block as Markdown, with an empty line behind it."""
    match block:
        case Heading():
            return _heading(block)
        case Facts():
            pairs = (f"- {name}: {escaped(value)}" for name, value in block.pairs)
            return "\n".join(pairs) + "\n\n" if block.pairs else ""
        case Overview():
            return _table(block)
        case Said():
            aside = f" ({escaped(block.aside)})" if block.aside else ""
            return f"**{escaped(block.who)}**{aside}\n\n{fenced(block.text)}\n\n"
        case Left():
            return f"**{escaped(block.who)}**: *{escaped(block.why)}*\n\n"


def escaped(text: str) -> str:
    """A text on one line that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", one_line(text, 1000))


def fenced(text: str) -> str:
    """A text in a fence that is longer than any in it."""
    longest = max((len(found[0]) for found in _TICKS.finditer(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{harmless(text)}\n{fence}"


def _heading(block: Heading) -> str:
    state = f" — {_STATES.get(block.state, '')} {block.state}" if block.state else ""
    aside = f" · {escaped(block.aside)}" if block.aside else ""
    return f"{'#' * block.level} {escaped(block.text)}{state}{aside}\n\n"


def _table(block: Overview) -> str:
    lines = [block.columns, tuple("---" for _ in block.columns)]
    told = ["| " + " | ".join(line) + " |" for line in lines]
    told += ["| " + " | ".join(map(escaped, cells)) + " |" for _, cells in block.rows]
    return "\n".join(told) + "\n\n"
