"""The tables of `xgw sessions` and `xgw requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xgw import clock, spelling
from xgw.cli import texts
from xgw.cli.tables import Cell, Column, render
from xgw.cli.terminal import Role, Screen, role_of
from xgw.queries.wording import error_words, served_words, state_of_request, status_words

if TYPE_CHECKING:
    from xgw.queries.pages import Row
    from xgw.store.database import Store

LONGEST_KEY = 37
NARROW_KEY = 20
WIDE = 130
"""Columns of a terminal on which ids are shown whole."""

_SESSION_COLUMNS = (
    Column("state"),
    Column("session"),
    Column("model", spare=3),
    Column("turns", right=True, spare=4),
    Column("tokens", right=True, spare=1),
    Column("cost", right=True, spare=2),
    Column("activity", right=True),
)
_REQUEST_COLUMNS = (
    Column("started", right=True),
    Column("status"),
    Column("took", right=True, spare=1),
    Column("in", right=True, spare=3),
    Column("out", right=True, spare=4),
    Column("provider/model", spare=2),
    Column("request"),
)


def sessions_table(
    screen: Screen, store: Store, rows: list[Row], demos: frozenset[str]
) -> list[str]:
    """Sessions as `xgw sessions` shows them."""
    from xgw.queries import overview

    if not rows:
        return []
    seen, now = overview.of_sessions(store, rows), clock.now()
    cells = [
        (
            Cell(seen[row["id"]].state, role_of(seen[row["id"]].state)),
            Cell(_session_ref(screen, row), "name"),
            Cell(_model(row, demos)),
            Cell(spelling.count(row["turn_count"])),
            Cell(spelling.count(row["total_tokens"], row["usage_source"])),
            Cell(spelling.usd(row["cost_usd"])),
            Cell(spelling.ago(row["last_turn_at"] or row["created_at"], now), "faint"),
            Cell(seen[row["id"]].title),
        )
        for row in rows
        if row["id"] in seen  # it may have been deleted since
    ]
    return render(screen, _SESSION_COLUMNS, cells, tail="title")


def requests_table(screen: Screen, rows: list[Row], demos: frozenset[str]) -> list[str]:
    """Requests as `xgw requests` shows them."""
    if not rows:
        return []
    now = clock.now()
    cells = [
        (
            Cell(spelling.ago(row["started_at"], now), "faint"),
            Cell(*_outcome(row)),
            Cell(spelling.duration(row["latency_ms"])),
            Cell(spelling.count(row["input_tokens"])),
            Cell(spelling.count(row["output_tokens"])),
            Cell(served_words(row["provider_name"], _model(row, demos))),
            Cell(id_ref(screen, row["id"]), "name"),
            Cell(error_words(row), "bad"),
        )
        for row in rows
    ]
    return render(screen, _REQUEST_COLUMNS, cells, tail="error")


def _session_ref(screen: Screen, row: Row) -> str:
    """What to call a session by in other commands: its key if that is short and plain, else its id.

    So is one whose key is a word that they take for something else.
    """
    from xgw.cli.refs import LAST
    from xgw.queries.filters import NONE

    key = row["session_key"]
    longest = NARROW_KEY if screen.width is not None and screen.width < WIDE else LONGEST_KEY
    if key not in (row["id"], LAST, NONE) and len(key) <= longest and texts.one_line(key) == key:
        return str(key)
    return id_ref(screen, row["id"])


def id_ref(screen: Screen, id: str) -> str:
    """An id, on a terminal of usual width its end, which `xgw show` takes too."""
    from xgw.cli import refs

    return id if screen.width is None or screen.width >= WIDE else refs.short(id)


def _model(row: Row, demos: frozenset[str]) -> str:
    """The model, and that there is none where it is the demo."""
    named = row["model"] or spelling.UNKNOWN
    return f"{named} (scripted)" if row["provider_name"] in demos else named


def _outcome(row: Row) -> tuple[str, Role]:
    """How a request ended."""
    return status_words(row), role_of(state_of_request(row))
