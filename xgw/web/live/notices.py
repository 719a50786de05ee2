"""What is wrong with the server itself, told to pages that are open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xgw.web.condition import writing_troubles
from xgw.web.live.screen import Swap
from xgw.web.templating import render

if TYPE_CHECKING:
    from xgw.web.app import Services


class Notices:
    """The notices on top of one page. Its own come with it: at first every trouble counts as new,
    so that one that began, or ended, while it was opened is told as well."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._told: list[str] | None = None

    def changed(self) -> list[Swap]:
        """What to draw where something has begun or ended since the last time."""
        troubles = writing_troubles(self._services)
        if troubles == self._told:
            return []
        self._told = troubles
        return [Swap("notices", render("frame/_notices.html", notices=troubles))]
