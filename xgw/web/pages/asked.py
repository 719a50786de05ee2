"""What a list is narrowed to, from the query of its page."""

from __future__ import annotations

from dataclasses import dataclass

from flask import request

from xgw.errors import ApiError
from xgw.queries import filters
from xgw.queries.filters import Filters
from xgw.queries.pages import Page
from xgw.web.board import LIMIT
from xgw.web.words import sentence


@dataclass(frozen=True, slots=True)
class Asked:
    """The filters in force as names and texts, and as parsed; `cursor` is that of a further page.

    `mistake` says in a sentence what is wrong with them; then nothing is to be listed.
    """

    given: dict[str, str]
    wanted: Filters
    cursor: str | None
    mistake: str | None = None

    @property
    def page(self) -> Page:
        """The page that is asked for."""
        return Page(LIMIT, self.cursor)

    @property
    def status(self) -> int:
        """The status of the answer."""
        return 422 if self.mistake else 200


def read_asked(noun: str, names: tuple[str, ...]) -> Asked:
    """The filters that the query parameters ask for; a parameter without a text is none."""
    given = {name: text for name in names if (text := request.args.get(name, "").strip())}
    cursor = request.args.get("cursor") or None
    try:
        return Asked(given, filters.parse(noun, given.items()), cursor)
    except ApiError as error:
        # The query stands right above the sentence.
        return Asked(given, Filters(), None, sentence(error.message.removeprefix("q: ")))
