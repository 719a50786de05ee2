"""A report as one HTML page that loads nothing, runs nothing, and shows texts as what they are."""

from __future__ import annotations

import base64
from functools import lru_cache
from hashlib import sha256
from typing import BinaryIO

from markupsafe import Markup

from xgw.portable.formats.blocks import Block, Facts, Heading, Left, Overview, Said
from xgw.portable.formats.harmless import harmless
from xgw.portable.formats.shelf import shelved
from xgw.portable.formats.story import story
from xgw.portable.source import Source
from xgw.resources import resource_folder

_PAGE = Markup("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="robots" content="noindex">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
""")
_END = b"</main>\n</body>\n</html>\n"
_LABELS = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "call": "call",
    "error": "error",
}


def write_html(source: Source, out: BinaryIO) -> None:
    """The report of a source."""
    with shelved(source) as shelf:
        page = _Sections()
        for number, block in enumerate(story(shelf)):
            if number == 0 and isinstance(block, Heading):
                out.write(_encoded(_begin(block.text)))
            out.write(_encoded(page.closing(block) + rendered(block)))
        out.write(_encoded(page.end()) + _END)


class _Sections:
    """Which parts are open: a step's is inside its turn's, a turn's inside its session's."""

    def __init__(self) -> None:
        self._open: list[int] = []

    def closing(self, block: Block) -> Markup:
        """What ends before this block, and begins with it."""
        if not isinstance(block, Heading):
            return Markup("")
        ended = Markup("")
        while self._open and self._open[-1] >= block.level:
            self._open.pop()
            ended += Markup("</section>\n")
        self._open.append(block.level)
        section = Markup('<section class="level-{} {}">\n').format(block.level, _state(block.state))
        return ended + section

    def end(self) -> Markup:
        """What ends with the page."""
        return Markup("</section>\n" * len(self._open))


def rendered(block: Block) -> Markup:
    """A block as HTML."""
    match block:
        case Heading():
            return _heading(block)
        case Facts():
            pair = Markup("<div><dt>{}</dt><dd>{}</dd></div>")
            pairs = (pair.format(name, harmless(value)) for name, value in block.pairs)
            return (
                Markup("<dl>{}</dl>\n").format(Markup("").join(pairs)) if block.pairs else Markup()
            )
        case Overview():
            return _table(block)
        case Said():
            return Markup(
                '<div class="said {}"><p class="who">{}{}</p><pre dir="auto" tabindex="0">{}</pre>'
                "</div>\n"
            ).format(_LABELS.get(block.kind, "other"), block.who, _aside(block.aside), _text(block))
        case Left():
            return Markup(
                '<div class="said other"><p class="who">{}</p><p class="left">{}</p></div>\n'
            ).format(block.who, block.why)


def _text(block: Said) -> str:
    return harmless(block.text)


def _begin(title: str) -> Markup:
    style = _style()
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return _PAGE.format(policy=policy, title=title, style=Markup(style))


@lru_cache(maxsize=1)
def _style() -> str:
    """The style sheet that every report has in it."""
    return (resource_folder("static") / "report" / "report.css").read_text(encoding="utf-8")


def _heading(block: Heading) -> Markup:
    anchor = Markup(' id="{}"').format(block.anchor) if block.anchor else ""
    state = Markup('<span class="state">{}</span>').format(block.state) if block.state else ""
    return Markup("<header><h{0}{1}>{2}</h{0}>{3}{4}</header>\n").format(
        block.level, anchor, block.text, state, _aside(block.aside)
    )


def _state(state: str) -> str:
    return f"is-{state}" if state.isalpha() else ""


def _aside(aside: str) -> Markup:
    return Markup(' <span class="aside">{}</span>').format(harmless(aside)) if aside else Markup()


def _table(block: Overview) -> Markup:
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(name) for name in block.columns)
    rows = Markup("").join(_row(anchor, cells) for anchor, cells in block.rows)
    return Markup(
        '<div class="wide" tabindex="0"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>'
        "</div>\n"
    ).format(head, rows)


def _row(anchor: str, cells: tuple[str, ...]) -> Markup:
    first = Markup('<a href="#{}">{}</a>').format(anchor, cells[0]) if anchor else cells[0]
    told = Markup("").join(Markup("<td>{}</td>").format(harmless(cell)) for cell in cells[1:])
    return Markup('<tr><th scope="row">{}</th>{}</tr>').format(first, told)


def _encoded(text: Markup) -> bytes:
    return text.encode("utf-8", "replace")
