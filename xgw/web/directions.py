"""Texts that turn the writing direction round, kept from turning what stands beside them.

An element isolates what is in it (`<bdi>`, and the style sheet). What a browser puts there for that
ends early at the end of an isolate that the text itself never began, and at a paragraph's end.
"""

from __future__ import annotations

import re
from typing import Any

from markupsafe import Markup

_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")
_BEGIN, _END = "\u2066\u2067\u2068", "\u2069"
_PARAGRAPHS = re.compile("[\x1c-\x1e\x85\u2029]")
_LINE = "\u2028"


def contained(value: Any) -> Any:
    """A text without what would end its element's isolation; anything else as it is."""
    if not isinstance(value, str) or isinstance(value, Markup) or not _TURNS.search(value):
        return value
    text = _PARAGRAPHS.sub(_LINE, value)
    return _without_loose_ends(text) if _END in text else text


def isolated(text: str) -> str:
    """A text for where no element can stand, as in a page's title."""
    return f"\u2068{contained(text)}\u2069" if _TURNS.search(text) else text


def _without_loose_ends(text: str) -> str:
    kept, depth = [], 0
    for character in text:
        if character in _BEGIN:
            depth += 1
        elif character == _END:
            if depth == 0:
                continue
            depth -= 1
        elif character == "\n":
            depth = 0
        kept.append(character)
    return "".join(kept)
