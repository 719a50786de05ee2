"""What every test starts from: no configuration, key, proxy or store of the person who runs it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import chromium
from visits import Visits

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

LONGEST = (
    "test_soak",
    "test_bench",
    "test_openapi",
    "test_cli_chat",
    "test_browser_screens",
    "test_older_stores",
    "test_faults_kill",
    "test_server",
    "test_cli_deciding",
    "test_browser_live",
    "test_packaging",
    "test_cli_tail",
    "test_faults_store",
    "test_older_killed",
    "test_cli_reading",
    "test_faults_crowds",
    "test_prune",
    "test_agents_crowd",
    "test_websocket",
)
"""The files that take the longest, in this order; those that wait and those that compute mixed."""

FOLDERS = (
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
)


def pytest_configure() -> None:
    """What whoever began the run has set and would slow down or change what the tests start.

    Hundreds of times they start xgw, which takes half as long again where nothing keeps what was
    compiled; and signals that are ignored there would be ignored here, too.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """More than there are cores: tests wait for processes and sockets much of their time."""
    usable = getattr(os, "sched_getaffinity", None)
    return (len(usable(0)) if usable else os.cpu_count() or 1) + 3


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest come first, so that with several workers none waits for them at the end."""
    places = {stem: place for place, stem in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Also what child processes inherit; the user's folders are empty ones of this run."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            upper = name.upper()
            if upper.startswith("XGW_") or upper.endswith(("_API_KEY", "_PROXY")):
                patch.delenv(name)
        home = tmp_path_factory.mktemp("home")
        for name in FOLDERS:
            (home / name.lower()).mkdir(mode=0o700)
            patch.setenv(name, str(home / name.lower()))
        yield


@pytest.fixture(scope="session")
def driver(clean_environment: None) -> Iterator[chromium.Driver]:
    """Playwright; the test is skipped without a browser for it."""
    chromium.found()
    with chromium.driver() as running:
        yield running


@pytest.fixture(scope="module")
def browser(driver: chromium.Driver) -> Iterator[Browser]:
    """One Chromium for a module's tests: also with no page open it takes a third of a core."""
    with chromium.driven(driver) as started:
        yield started


@pytest.fixture
def visit(driver: chromium.Driver, browser: Browser) -> Iterator[Visits]:
    """Opens pages; the test fails if anything went wrong on one of them."""
    with driver.driving():
        visits = Visits(browser)
        try:
            yield visits
            visits.check()
        finally:
            visits.close()


@pytest.fixture
def tabs(visit: Visits, driver: chromium.Driver, tmp_path: Path) -> Iterator[BrowserContext]:
    """The tabs of a Chromium whose pages can be hidden; open them with `visit.open`."""
    with chromium.by_hand(driver.playwright, tmp_path / "profile") as context:
        visit.watch(context)
        yield context
        visit.check()
