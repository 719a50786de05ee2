"""The rows of the list of requests, as its page and its socket show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xgw.queries import pages, requests
from xgw.queries.filters import Filters
from xgw.queries.pages import Page, Row

if TYPE_CHECKING:
    from xgw.web.app import Services

FILTERS = ("status", "status_code", "provider", "model", "turn_id", "session_id", "since")


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A request log in the list; `is_new`: it came in on top, `is_gone`: it does not fit it."""

    log: Row
    cursor: str
    is_new: bool = False
    is_gone: bool = False

    @property
    def id(self) -> str:
        """The request's."""
        return str(self.log["id"])

    @property
    def key(self) -> str:
        """The attempt's, which events name."""
        return str(self.log["step_id"])


@dataclass(frozen=True, slots=True)
class RequestRows:
    """One page of requests; `more` is the cursor of the next one, None on the last."""

    rows: list[RequestRow]
    more: str | None = None


def list_requests(services: Services, wanted: Filters, page: Page) -> RequestRows:
    """A page of requests, the newest first; it may be short and have more."""
    found = requests.search_requests(services.store, wanted, page)
    return RequestRows(_rows(found.rows), found.next_cursor)


def find_requests(services: Services, step_ids: Iterable[str], wanted: Filters) -> list[RequestRow]:
    """The requests of these attempts, oldest first."""
    return _rows(requests.find_listed(services.store, step_ids, wanted))


def _rows(logs: list[Row]) -> list[RequestRow]:
    return [
        RequestRow(log, pages.cursor_at(requests.BY_START, log), is_gone=not log.get("fits", True))
        for log in logs
    ]
