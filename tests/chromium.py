"""The Chromium that tests drive: found on this machine, started once for a run or like one's own.

Pages of `driven` are as Playwright makes them: a context each, never hidden, no back/forward cache.
`by_hand` has no such props: a tab behind another is hidden, as for a person.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from servers import DEADLINE, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Playwright

# Read when the tests are collected: later these names are taken out of the environment.
NAMED = os.environ.get("XGW_CHROMIUM")
REQUIRED = os.environ.get("XGW_BROWSER_TESTS") == "required"

USUAL = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
UNUSED = (
    # The list below the address bar is two pages more in each window, which take as long to load
    # as ours, and nobody sees them.
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    # What Playwright turns off; of two such lists Chromium takes the second.
    "AimEnabled",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "TcpPortRandomizationWin",
    "ThirdPartyStoragePartitioning",
)
"""Features of Chromium."""

QUIET = (
    # Whoever runs as root has no sandbox; these pages are our own.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={','.join(UNUSED)}",
    # Whatever a page or the browser itself asks for elsewhere does not leave the machine.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


def find() -> str | None:
    """The path of this machine's Chromium: the one that is named, or one of the usual names."""
    for name in (NAMED,) if NAMED else USUAL:
        if path := shutil.which(name):
            return path
    return None


def found() -> str:
    """The same; without one the test is skipped, or fails where browser tests are required."""
    return find() or _missing()


def _missing() -> NoReturn:
    wanted = f"there is no {NAMED!r} (XGW_CHROMIUM)" if NAMED else "there is no Chromium here"
    reason = f"{wanted}: install it (Debian: apt-get install chromium) or name one in XGW_CHROMIUM"
    if REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)


class Driver:
    """Playwright for a whole run.

    Its event loop counts as running in this thread for as long as it is there, and `asyncio.run`
    would refuse to work in every other test: so it does only where a test is `driving`.
    """

    def __init__(self, playwright: Playwright) -> None:
        self.playwright = playwright
        self._loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self._loop)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)


@contextlib.contextmanager
def driver() -> Iterator[Driver]:
    """Playwright for a `with` block."""
    # Half a second, which only those who need it wait for.
    from playwright.sync_api import sync_playwright

    starting = sync_playwright()
    running = Driver(starting.start())
    try:
        yield running
    finally:
        with running.driving():
            running.playwright.stop()


@contextlib.contextmanager
def driven(running: Driver) -> Iterator[Browser]:
    """A Chromium that makes a fresh context, as of another person, whenever it is asked."""
    with running.driving():
        browser = running.playwright.chromium.launch(
            executable_path=found(), args=QUIET, timeout=DEADLINE * 1000
        )
    try:
        yield browser
    finally:
        with running.driving():
            browser.close()


@contextlib.contextmanager
def by_hand(playwright: Playwright, folder: Path) -> Iterator[BrowserContext]:
    """The one context of a Chromium that nobody told how to behave; `folder` is its profile."""
    address = folder / "DevToolsActivePort"
    command = [found(), "--headless", "--remote-debugging-port=0", f"--user-data-dir={folder}"]
    process = subprocess.Popen([*command, *QUIET], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: address.exists() and "\n" in address.read_text())
        port, path = address.read_text().split()
        browser = playwright.chromium.connect_over_cdp(
            f"ws://127.0.0.1:{port}{path}", no_defaults=True
        )
        try:
            yield browser.contexts[0]
        finally:
            browser.close()
    finally:
        process.terminate()
        process.wait(DEADLINE)
