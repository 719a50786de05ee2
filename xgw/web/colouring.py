"""Colours for code, as classes that the style sheet has a colour for in light and dark."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES

from xgw import clock
from xgw.web.unseen import literal

CLASSES = frozenset(f"t-{name}" for name in STANDARD_TYPES.values() if name)
_FAMILIAR = """
    bash c c++ c# console cpp cs csharp css diff docker dockerfile go golang graphql html ini java
    javascript js json jsx kotlin lua php powershell ps1 py pycon python python3 rb rs ruby rust
    scala sh shell sql swift toml ts tsx typescript xml yaml yml zsh
"""
LANGUAGES = frozenset(_FAMILIAR.split())
"""Of the hundreds that Pygments knows: those that answers are full of."""

MOST_CHARACTERS = 16 << 10
SECONDS = 0.1


class Colours:
    """Colours the blocks of one text, as long as that does not take more than `seconds` of work.

    Some lexers take quadratic time for what looks nothing like their language.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._until = clock.worked() + seconds

    def of(self, code: str, language: str) -> Markup:
        """Code with its words in `span` elements of the classes `CLASSES`, all else escaped.

        `language` is what stands behind the fence; unknown ones, and what takes long, stay plain.
        """
        name = language.split()[0].lower() if language.strip() else ""
        if name not in LANGUAGES or len(code) > MOST_CHARACTERS:
            return escape(literal(code))
        spans = []
        for span in _spans(code, _lexer(name)):
            if clock.worked() > self._until:
                return escape(literal(code))
            spans.append(span)
        return Markup("").join(spans)


def _spans(code: str, lexer: Lexer) -> Iterator[Markup]:
    for kind, text in lexer.get_tokens(code):
        shown = escape(literal(text))
        name = _short_name(kind)
        yield Markup('<span class="t-{}">{}</span>').format(name, shown) if name else shown


def _short_name(kind: Any) -> str:
    """That of the nearest kind which has one."""
    while kind is not None and kind not in STANDARD_TYPES:
        kind = kind.parent
    return str(STANDARD_TYPES.get(kind, ""))


@functools.cache
def _lexer(name: str) -> Lexer:
    return get_lexer_by_name(name, stripnl=False, ensurenl=False)
