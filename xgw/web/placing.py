"""Texts in templates: each is shown as what the place where it stands can show.

When a template is compiled, what it puts between elements goes through the filter `literal`; where
there can be text alone, as in a drawing or in what is read out of an attribute, through `spelled`.
Other attributes and fields hold values, which stay as they are. A template that says more of a
text, as that it is prose, has done it itself: what is HTML goes through both as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

_TOLD = {"title", "aria-label", "placeholder", "alt"}
_TEXT_ALONE = {"title", "svg", "option", "script", "style"}
_FIELD = "textarea"

_PART = re.compile(
    r"""(?P<comment><!--.*?-->)|<(?P<end>/?)(?P<tag>[a-zA-Z][\w-]*)|(?P<attribute>[\w:-]+)="|(?P<quote>")|(?P<close>>)""",
    re.S,
)


class Place:
    """Where in a page's source one is, told what comes."""

    def __init__(self) -> None:
        self._tag = ""
        self._attribute = ""
        self._inside = ""

    def go(self, source: str) -> None:
        """On over this piece."""
        for part in _PART.finditer(source):
            if self._attribute:
                self._attribute = "" if part[0].endswith('"') else self._attribute
            elif self._tag:
                self._attribute = part["attribute"] or ""
                if part["close"]:
                    self._leave_tag()
            elif part["tag"]:
                self._tag = part["end"] + part["tag"].lower()

    def filter(self) -> str | None:
        """What a text goes through that is put in here."""
        if self._tag:
            return "spelled" if self._attribute in _TOLD else None
        if self._inside == _FIELD:
            return None
        return "spelled" if self._inside else "literal"

    def _leave_tag(self) -> None:
        if self._tag == f"/{self._inside}":
            self._inside = ""
        elif not self._inside and self._tag in {*_TEXT_ALONE, _FIELD}:
            self._inside = self._tag
        self._tag = ""


class Placing(Extension):
    """For an environment with the filters `literal` and `spelled`."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """The tokens, with a filter around each expression that is put out."""
        place, name = Place(), None
        for token in stream:
            if token.type == "data":
                place.go(token.value)
            if token.type == "variable_end" and name:
                yield Token(token.lineno, "rparen", ")")
                yield Token(token.lineno, "pipe", "|")
                yield Token(token.lineno, "name", name)
            yield token
            if token.type == "variable_begin" and (name := place.filter()):
                yield Token(token.lineno, "lparen", "(")
