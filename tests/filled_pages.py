"""The dashboard's pages over a store that a test fills row by row, and its screens alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flask import Flask

from filled_store import FilledStore, selects
from gateway_fixtures import Client, Reply
from live_pages import Element, parse
from servers import in_process
from xgw.config import Config, Loaded, Provider
from xgw.config.leaves import list_leaves
from xgw.events import Envelope
from xgw.web.app import Services, create_app
from xgw.web.live.screen import Screen, Swap
from xgw.web.live.screens import open_screen


def rows_of(tree: Element) -> list[Element]:
    """The rows that can be opened."""
    return [element for element in tree.walk() if "data-row" in element.attributes]


@dataclass
class Page:
    """An answer, and the tree of its HTML."""

    reply: Reply
    tree: Element

    @property
    def rows(self) -> list[list[str]]:
        """The texts of the cells of each row that can be opened."""
        return [[cell.text for cell in row.all("td")] for row in rows_of(self.tree)]

    @property
    def ids(self) -> list[str]:
        """The ids of those rows."""
        return [row.attributes["id"] for row in rows_of(self.tree)]


class FilledPages:
    """`store` is filled by the test; nothing writes into it meanwhile."""

    def __init__(self, filled: FilledStore, app: Flask, url: str) -> None:
        self.filled = filled
        self.app = app
        self.services: Services = app.extensions["xgw"]
        self.client = Client(url)

    def open(self, path: str, **headers: str) -> Page:
        """What is at `path`."""
        reply = self.client.get(path, **headers)
        return Page(reply, parse(reply.body.decode()))

    def statements(self, path: str) -> list[tuple[str, list[Any]]]:
        """The SELECT statements that a page takes once the keys are known."""
        self.open(path)
        with selects() as statements:
            assert self.open(path).reply.status == 200
        return [one for one in statements if "api_keys" not in one[0]]

    def screen(self, page: str, **query: str) -> OpenScreen:
        """The screen of an open page, without its socket."""
        return OpenScreen(open_screen(self.services, {"page": page, **query}))


class OpenScreen:
    """Tells a screen of events, and what it draws then."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    def drawn(self, *envelopes: Envelope) -> list[Swap]:
        """The changes after these events, as far as the screen wants them."""
        for envelope in envelopes:
            if self.screen.wanted(envelope):
                self.screen.note(envelope)
        return self.screen.draw()


def by_target(swaps: list[Swap]) -> Mapping[str, Swap]:
    """The changes by what they change; each at most once."""
    found = {swap.target: swap for swap in swaps}
    assert len(found) == len(swaps), [swap.target for swap in swaps]
    return found


@contextlib.contextmanager
def filled_pages(folder: Path, **tables: Any) -> Iterator[FilledPages]:
    """Pages for a `with` block; `tables` are those of the configuration."""
    filled = FilledStore(folder)
    given = {"providers": (Provider(name="openai", api_key="sk-provider-secret"),)} | tables
    config = Config(**given)
    sources = {leaf.key: "default" for leaf in list_leaves(config)}
    app = create_app(Loaded(config, sources, None), filled.store)
    try:
        with in_process(app) as url:
            yield FilledPages(filled, app, url)
    finally:
        filled.close()
