"""Markdown to HTML that can stand in a page, whoever wrote it.

Three filters, one after the other: markdown-it makes HTML of its own only (HTML in the text is
text), Pygments colours code with classes, and nh3 keeps nothing but the elements and attributes
listed here. A text that would take long is shown as it is: rendering holds up everything else that
the process does.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import table
from markdown_it.token import Token
from markdown_it.utils import EnvType
from markupsafe import Markup, escape

from xgw.web.colouring import CLASSES, Colours
from xgw.web.unseen import is_full, literal, prose
from xgw.web.words import SHOWN_BYTES

Tokens = Sequence[Token]

MOST_MARKS = 10_000
MOST_CELLS = 10_000
MOST_DEPTH = 24
"""Characters that begin something, cells of tables, elements inside each other."""

SHORT, KEPT = 4096, 512
"""Texts of so many characters at most are rendered once, and the last so many remembered."""

_MARKS = "*_~[]!<&|`\\\n"
_SCHEMES = ("http://", "https://", "mailto:")
_ELEMENTS = {
    *("p", "br", "hr", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "pre", "code", "span"),
    *("em", "strong", "s", "a", "i", "div", "table", "thead", "tbody", "tr", "th", "td"),
}
_ALIGNED = {"align"}
_ATTRIBUTES = {
    "*": set[str](),
    "a": {"href"},
    "i": {"data-code"},
    "ol": {"start"},
    "th": _ALIGNED,
    "td": _ALIGNED,
}
_FOCUSABLE = {"pre": {"tabindex": "0"}, "div": {"tabindex": "0"}}


def markdown(text: str) -> Markup:
    """The text as HTML, to stand in an element of class `prose`; links lead outside, in a new tab.

    Nothing is loaded: images become links. A text over 256 KiB, with very many marks, characters
    that are drawn or very deep nesting is one element of class `plain` with the text as it is.
    """
    return _remembered(text) if len(text) <= SHORT else _rendered(text)


def plain(text: str) -> Markup:
    """The text as it is."""
    return Markup('<div class="plain">{}</div>').format(prose(text))


def _rendered(text: str) -> Markup:
    content = text.encode("utf-8", "replace")
    text = content.decode()
    if len(content) > SHOWN_BYTES or sum(map(text.count, _MARKS)) > MOST_MARKS or is_full(text):
        return plain(text)
    parser, env = _parser(), {"text": text, "cells": 0, "colours": Colours()}
    tokens = parser.parse(text, env)
    if _depth(tokens) > MOST_DEPTH:
        return plain(text)
    return Markup(_cleaned(parser.renderer.render(tokens, parser.options, env)))


_remembered = functools.lru_cache(KEPT)(_rendered)


def _cleaned(html: str) -> str:
    return nh3.clean(
        html,
        tags=_ELEMENTS,
        attributes=_ATTRIBUTES,
        attribute_filter=_kept,
        allowed_classes={"span": CLASSES, "div": {"scrolls"}, "i": {"unseen"}},
        set_tag_attribute_values={"a": {"target": "_blank"}, **_FOCUSABLE},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        generic_attribute_prefixes=set(),
    )


def _kept(_element: str, name: str, value: str) -> str | None:
    """A link without a scheme would lead to a page of ours, and it is not ours."""
    leads_nowhere = name == "href" and not value.lower().startswith(_SCHEMES)
    return None if leads_nowhere else value


# -- the elements ----------------------------------------------------------------------------------


class _Renderer(RendererHTML):
    """Code with colours, tables that scroll by themselves, images as links."""

    def fence(self, tokens: Tokens, at: int, _options: Any, env: EnvType) -> str:
        code = env["colours"].of(tokens[at].content, tokens[at].info)
        return f"<pre><code>{code}</code></pre>\n"

    def code_block(self, tokens: Tokens, at: int, _options: Any, env: EnvType) -> str:
        return f"<pre><code>{escape(literal(tokens[at].content))}</code></pre>\n"

    def code_inline(self, tokens: Tokens, at: int, _options: Any, env: EnvType) -> str:
        return f"<code>{escape(literal(tokens[at].content))}</code>"

    def text(self, tokens: Tokens, at: int, _options: Any, env: EnvType) -> str:
        return escape(prose(tokens[at].content, env["text"]))

    def image(self, tokens: Tokens, at: int, _options: Any, env: EnvType) -> str:
        named = " ".join(tokens[at].content.split()) or "without a name"
        source = tokens[at].attrs.get("src", "")
        return Markup('<a href="{}">image: {}</a>').format(source, prose(named, env["text"]))

    def table_open(self, tokens: Tokens, at: int, _options: Any, env: EnvType) -> str:
        return '<div class="scrolls"><table>\n'

    def table_close(self, tokens: Tokens, at: int, _options: Any, env: EnvType) -> str:
        return "</table></div>\n"


# -- the parser ------------------------------------------------------------------------------------


@functools.cache
def _parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough; what ends a line in the text ends it on the page.

    Without definitions of links: they would vanish from what is shown.
    """
    options = {"html": False, "linkify": False, "breaks": True, "maxNesting": 2 * MOST_DEPTH}
    parser = MarkdownIt("commonmark", options, renderer_cls=_Renderer)
    parser.enable(["table", "strikethrough"]).disable(["reference", "html_block", "html_inline"])
    parser.block.ruler.at("table", _bounded_table, {"alt": ["paragraph", "reference"]})
    parser.core.ruler.push("shape", _shape)
    return parser


def _bounded_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A table, as long as those of the text do not have too many cells: missing ones are added."""
    if not table(state, start, end, True):
        return False
    last = next((line for line in range(start, end) if state.isEmpty(line)), end)
    columns = state.src.count("|", state.bMarks[start], state.eMarks[start]) + 1
    state.env["cells"] += columns * (last - start)
    return state.env["cells"] <= MOST_CELLS and table(state, start, end, silent)


def _shape(state: Any) -> None:
    """Headings stand below those of the page; columns are aligned without a style."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 3)}"
        elif token.type in ("th_open", "td_open") and "style" in token.attrs:
            token.attrs["align"] = str(token.attrs.pop("style")).partition(":")[2]


def _depth(tokens: Iterable[Token]) -> int:
    """How many elements stand inside each other at most."""
    deepest = depth = 0
    for token in tokens:
        depth += token.nesting
        deepest = max(deepest, depth, token.level + 1)
        if token.children:
            deepest = max(deepest, depth + _depth(token.children))
    return deepest
