"""Addresses in templates: each that begins with `/` is led under the root of what is shown.

Templates are written as if the server's own store was all there is. When one is compiled,
`href="/…` and its like get `root()` in front, and so does each text in an expression that begins
with `/ui/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

_ADDRESS = re.compile(r'(?<= href=")(?=/)|(?<= src=")(?=/)|(?<= action=")(?=/)|(?<= hx-get=")(?=/)')
_PAGES = "/ui/"


class Rooting(Extension):
    """For an environment whose global `root` is a function."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """The tokens, with calls of `root` between them."""
        for token in stream:
            if token.type == "data":
                yield from _in_text(token)
            elif token.type == "string" and token.value.startswith(_PAGES):
                yield from _in_expression(token)
            else:
                yield token


def _in_text(token: Token) -> Iterator[Token]:
    for number, text in enumerate(_ADDRESS.split(token.value)):
        if number:
            yield Token(token.lineno, "variable_begin", "{{")
            yield from _call(token.lineno)
            yield Token(token.lineno, "variable_end", "}}")
        yield Token(token.lineno, "data", text)


def _in_expression(token: Token) -> Iterator[Token]:
    yield Token(token.lineno, "lparen", "(")
    yield from _call(token.lineno)
    yield Token(token.lineno, "tilde", "~")
    yield token
    yield Token(token.lineno, "rparen", ")")


def _call(line: int) -> Iterator[Token]:
    yield Token(line, "name", "root")
    yield Token(line, "lparen", "(")
    yield Token(line, "rparen", ")")
