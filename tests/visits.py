"""What a test opens in the browser, and everything that goes wrong on those pages meanwhile."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from servers import DEADLINE, eventually

if TYPE_CHECKING:
    from playwright.sync_api import (
        Browser,
        BrowserContext,
        ConsoleMessage,
        Page,
        Request,
        WebError,
        WebSocket,
    )

WIDE, NARROW = 1280, 380
"""Pixels; the widths that the pages are made for."""

_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
"""What goes over the network, and whose server it asks; not what the browser has itself."""

_ABORTED = "net::ERR_ABORTED"

_LEFT = "WebSocket is closed before the connection is established"
"""What Chromium says of the socket of a page that is left while it still connects."""


class Visits:
    """Opens pages; `check` fails for every word on a console, error, and request gone wrong.

    A page may ask only the servers whose pages the test opened itself.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._servers: set[tuple[str, str]] = set()
        self._allowed: list[str] = []
        self._complaints: list[str] = []

    def __call__(
        self,
        url: str,
        *,
        width: int = WIDE,
        height: int = 800,
        dark: bool = False,
        scripts: bool = True,
        **context: Any,
    ) -> Page:
        """The page at `url` in a context of its own, loaded; `context` as Playwright takes it."""
        # Drawing what moves takes a whole core where there is no graphics card.
        still: dict[str, Any] = {"reduced_motion": "reduce"}
        made = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            **(still | context),
        )
        self.watch(made)
        return self.open(made, url)

    def open(self, context: BrowserContext, url: str) -> Page:
        """The page at `url` in another tab of a context, loaded."""
        self._servers.add(_server(url))
        page = context.new_page()
        page.goto(url)
        return page

    def watch(self, context: BrowserContext) -> None:
        """Hear what goes wrong in a context; its pages are closed at the end of the test."""
        context.set_default_timeout(DEADLINE * 1000)
        context.on("console", self._hear)
        context.on("weberror", self._see_error)
        context.on("request", self._see_request)
        context.on("requestfailed", self._see_failure)
        context.on("page", self._see_page)
        self._contexts.append(context)

    def allow(self, *patterns: str) -> None:
        """Complaints that this test is about; one that is never made fails the test, too."""
        self._allowed.extend(patterns)

    def complaints(self) -> list[str]:
        """Everything so far; only while Playwright is asked something does it hear of more."""
        for context in self._contexts:
            for page in context.pages:
                page.evaluate("1")
        return self._complaints

    def check(self) -> None:
        """Whatever was complained of and not allowed, as an AssertionError."""
        said = self.complaints()
        left = [text for text in said if not any(re.search(p, text) for p in self._allowed)]
        assert left == [], "\n".join(left)
        for pattern in self._allowed:
            heard = any(re.search(pattern, text) for text in said)
            assert heard, f"nothing like {pattern!r} was complained of"

    def close(self) -> None:
        for context in self._contexts:
            context.close()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning", "assert"} and _LEFT not in message.text:
            self._complaints.append(
                f"console {message.type}: {message.text} ({message.location['url']})"
            )

    def _see_error(self, error: WebError) -> None:
        self._complaints.append(f"uncaught: {error.error}")

    def _see_request(self, request: Request) -> None:
        self._see_address(request.url)

    def _see_page(self, page: Page) -> None:
        page.on("websocket", self._see_websocket)
        page.on("crash", lambda _: self._complaints.append("the page crashed"))

    def _see_websocket(self, websocket: WebSocket) -> None:
        self._see_address(websocket.url)

    def _see_address(self, url: str) -> None:
        if urlsplit(url).scheme in _SCHEMES and _server(url) not in self._servers:
            self._complaints.append(f"another server was asked: {url}")

    def _see_failure(self, request: Request) -> None:
        # A page that is left takes back what it still waits for.
        if request.failure != _ABORTED:
            self._complaints.append(f"failed: {request.method} {request.url}: {request.failure}")


def _server(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return _SCHEMES[parts.scheme], parts.netloc


@contextlib.contextmanager
def offline(page: Page) -> Iterator[None]:
    """No network for the page's context; what open sockets are sent comes afterwards."""
    page.context.set_offline(True)
    try:
        yield
    finally:
        page.context.set_offline(False)


@contextlib.contextmanager
def behind_another_tab(page: Page) -> Iterator[None]:
    """The page is hidden; only a Chromium `by_hand` hides any."""
    front = page.context.new_page()
    front.bring_to_front()
    eventually(lambda: page.evaluate("document.hidden"))
    try:
        yield
    finally:
        page.bring_to_front()
        front.close()
        eventually(lambda: not page.evaluate("document.hidden"))
