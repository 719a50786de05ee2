"""Every live page by its name: what makes its screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from xgw import errors
from xgw.web.live import board
from xgw.web.live.agents import AgentScreen, AgentsScreen
from xgw.web.live.requests import RequestScreen, RequestsScreen
from xgw.web.live.screen import Screen
from xgw.web.live.session import SessionScreen
from xgw.web.live.step import StepScreen
from xgw.web.live.turns import TurnScreen

if TYPE_CHECKING:
    from xgw.web.app import Services

Open = Callable[["Services", Mapping[str, str]], Screen]

SCREENS: dict[str, Open] = {
    "agent": AgentScreen,
    "agents": AgentsScreen,
    "request": RequestScreen,
    "requests": RequestsScreen,
    "session": SessionScreen,
    "sessions": board.open_sessions,
    "step": StepScreen,
    "turn": TurnScreen,
    "turns": board.open_turns,
}
"""By the `page` that the socket's query names: what makes the screen of such a page."""


def open_screen(services: Services, query: Mapping[str, str]) -> Screen:
    """The screen that a socket's query asks for; ApiError 404 or 422 if there is none.

    `csrf` in the query is the browser's own token: the socket puts it there from the cookie.
    """
    opened = SCREENS.get(query.get("page", ""))
    if opened is None:
        raise errors.unprocessable("page must be one that is kept up to date", param="page")
    return opened(services, query)
