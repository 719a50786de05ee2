"""Pages without a browser: what stands on them, and what their socket sends."""

from __future__ import annotations

import html.parser
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import simple_websocket

from api_socket import connect
from gateway_fixtures import Client, Reply
from servers import DEADLINE

_VOID = frozenset(
    {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
)
_BLOCKS = frozenset(
    {"article", "dd", "div", "dt", "h1", "h2", "h3", "h4", "li", "p", "section", "td", "th"}
)
_PARTIAL = re.compile(
    r'<hx-partial hx-target="\[id=&quot;([^"]*)&quot;\]" hx-swap="(\w+)">(.*?)</hx-partial>', re.S
)


@dataclass
class Element:
    """An element with what is inside of it."""

    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it, white space as one blank."""
        return " ".join(self._raw().split())

    def _raw(self) -> str:
        inside = "".join(c if isinstance(c, str) else c._raw() for c in self.children)
        return f" {inside} " if self.tag in _BLOCKS else inside

    def walk(self) -> Iterator[Element]:
        """It and everything in it."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def all(self, tag: str | None = None, **attributes: str) -> list[Element]:
        """Elements inside with these attributes; `class_` names one class, `_` stands for `-`."""
        wanted = {name.strip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [e for e in self.walk() if tag in (None, e.tag) and e._has(wanted)]

    def one(self, tag: str | None = None, **attributes: str) -> Element:
        found = self.all(tag, **attributes)
        assert len(found) == 1, f"{len(found)} × {tag} {attributes}"
        return found[0]

    def _has(self, wanted: dict[str, str]) -> bool:
        classes = self.attributes.get("class", "").split()
        return all(
            value in classes if name == "class" else self.attributes.get(name) == value
            for name, value in wanted.items()
        )


class _Parser(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Element(tag, {n: v or "" for n, v in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def parse(markup: str) -> Element:
    """The elements of a page or a partial; AssertionError where they are not nested properly."""
    parser = _Parser()
    parser.feed(markup)
    parser.close()
    assert len(parser._open) == 1, f"<{parser._open[-1].tag}> is not closed"
    return parser.root


def page_of(reply: Reply, status: int = 200) -> Element:
    """The page that was answered."""
    assert (reply.status, reply.headers["content-type"]) == (status, "text/html; charset=utf-8")
    return parse(reply.body.decode())


def open_page(client: Client, path: str, **headers: str) -> Element:
    """A page as it is now."""
    return page_of(client.get(path, **headers))


class PageSocket:
    """A page's socket, and what a browser would make of its messages: texts, swaps, the cursor."""

    def __init__(self, client: Client, path: str) -> None:
        self._ws = connect(client, path)
        self.cursor = int(parse_qs(urlsplit(path).query)["after"][0])
        self.path = path
        self.texts: dict[str, str] = {}
        self.swaps: list[tuple[str, str, Element]] = []
        self.messages: list[dict[str, Any]] = []

    def read(self) -> dict[str, Any]:
        """The next message; simple_websocket.ConnectionClosed at the end."""
        frame = self._ws.receive(timeout=DEADLINE)
        assert frame is not None, "nothing came"
        message: dict[str, Any] = orjson.loads(frame)
        self.messages.append(message)
        for target, style, markup in _PARTIAL.findall(message.get("content", "")):
            self.swaps.append((target, style, parse(markup)))
        for piece in message.get("texts", ()):
            self._grow(piece["id"], piece["at"], piece["text"])
        self.cursor = message.get("seq", self.cursor)
        return message

    def _grow(self, id: str, at: int, text: str) -> None:
        known = "" if at == 0 else self.texts.get(id, "")
        assert at <= len(known), f"a gap in {id}: {at} after {len(known)}"
        self.texts[id] = known[:at] + text + known[at + len(text) :]

    def until(self, reached: Callable[[], object]) -> None:
        """Read on until something is so."""
        while not reached():
            self.read()

    def until_swap(self, words: str, *targets: str) -> Element:
        """Read on until an element with this text has been sent to one of these places."""
        self.until(lambda: self._found(words, targets))
        return self._found(words, targets)[0]

    def _found(self, words: str, targets: tuple[str, ...]) -> list[Element]:
        return [e for place, _, e in self.swaps if place in targets and words in e.text]

    def placed(self, target: str, style: str) -> list[Element]:
        """What was sent to a place in this way."""
        return [e for place, how, e in self.swaps if (place, how) == (target, style)]

    def end(self) -> int:
        """Read to the end; the code that the server closed with."""
        while True:
            try:
                self.read()
            except simple_websocket.ConnectionClosed as closed:
                return int(closed.reason)

    def pause(self) -> None:
        """Take nothing off the wire until `resume`: a browser that stands still."""
        self._ws.sock.reads.clear()

    def resume(self) -> None:
        self._ws.sock.reads.set()

    def close(self) -> None:
        """Leave the page."""
        self.resume()
        if self._ws.connected:
            self._ws.close()
        self._ws.thread.join(DEADLINE)
        self._ws.sock.close()


def socket_path(page: Element, after: int | None = None) -> str:
    """Where the page's socket is, from the page's cursor on unless `after` says otherwise."""
    found = [e.attributes["hx-ws:connect"] for e in page.walk() if "hx-ws:connect" in e.attributes]
    assert len(found) == 1
    return found[0] if after is None else re.sub(r"after=\d+", f"after={after}", found[0])


@contextmanager
def watching(client: Client, page: Element, after: int | None = None) -> Iterator[PageSocket]:
    """The socket of a page for a `with` block."""
    opened = PageSocket(client, socket_path(page, after))
    try:
        yield opened
    finally:
        opened.close()
