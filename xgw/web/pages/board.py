"""Pages: the list of sessions, and that of turns without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import Blueprint, Response, request

from xgw.config.first_call import FirstCall, first_call
from xgw.errors import ApiError
from xgw.queries import events, filters
from xgw.queries.filters import NONE, Filters
from xgw.queries.pages import Page
from xgw.queries.snapshot import snapshot
from xgw.web import board
from xgw.web.board import Rows
from xgw.web.pages import frame
from xgw.web.words import sentence

if TYPE_CHECKING:
    from xgw.web.app import Services

ReadRows = Callable[["Services", Filters, Page], Rows]

routes = Blueprint("board", __name__)

SESSION_FILTERS = ("q", "since")
TURN_FILTERS = ("status", "model", "since")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a list is narrowed to: the filters in force as names and texts, and as parsed.

    `mistake` says in a sentence what is wrong with them; then nothing is listed.
    """

    given: dict[str, str]
    wanted: Filters
    cursor: str | None
    mistake: str | None = None


@routes.get("/ui/")
def list_sessions() -> Response:
    """GET /ui/: `q` in the filter language, `since`, `cursor`"""
    asked = read_asked("sessions", SESSION_FILTERS)
    return _answer("sessions/list.html", asked, board.list_sessions, asked.wanted)


@routes.get("/ui/turns")
def list_turns() -> Response:
    """GET /ui/turns: turns without a session; `status`, `model`, `since`, `cursor`"""
    asked = read_asked("turns", TURN_FILTERS)
    return _answer("turns/list.html", asked, board.list_turns, without_session(asked.wanted))


@routes.get("/ui/strip")
def show_strip() -> Response:
    """GET /ui/strip: the counts alone; some change without anything happening"""
    counts = board.read_strip(frame.services())
    return frame.partial("sessions/_strip.html", strip=counts)


def _answer(template: str, asked: Asked, read: ReadRows, wanted: Filters) -> Response:
    """The page as it is at one moment, whose cursor is that of the events."""
    services = frame.services()
    with snapshot(services.store):
        cursor = events.newest(services.store)
        strip = board.read_strip(services)
        page = Page(board.LIMIT, asked.cursor)
        found = Rows([]) if asked.mistake else read(services, wanted, page)
    status = 422 if asked.mistake else 200
    return frame.page(
        template,
        status=status,
        cursor=cursor,
        strip=strip,
        found=found,
        asked=asked,
        most_rows=board.MOST_ROWS,
        first=_first_call(services),
    )


def _first_call(services: Services) -> FirstCall:
    url = frame.base_url().removesuffix("/v1")
    config, keyring = services.config.config, services.keyring
    return first_call(config, url, keyring.wants_key, "first-try")


def read_asked(noun: str, names: tuple[str, ...]) -> Asked:
    """The filters that the query parameters ask for; a parameter without a text is none."""
    given = {name: text for name in names if (text := request.args.get(name, "").strip())}
    cursor = request.args.get("cursor") or None
    try:
        return Asked(given, filters.parse(noun, given.items()), cursor)
    except ApiError as error:
        # The query stands right above the sentence.
        return Asked(given, Filters(), None, sentence(error.message.removeprefix("q: ")))


def without_session(wanted: Filters) -> Filters:
    """Only what belongs to no session."""
    return wanted.and_also("session_id", NONE)
