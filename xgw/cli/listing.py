"""The commands `sessions` and `requests`: lists, newest first, with the filters of the API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xgw import clock, spelling
from xgw.cli import reading, texts
from xgw.cli.configuration import load, with_configuration, with_json
from xgw.cli.server import find_server
from xgw.cli.tables import Cell, Column, render
from xgw.cli.terminal import Role, Screen, note, role_of, stdout, write, write_json
from xgw.errors import UsageError
from xgw.queries.wording import error_words, served_words, state_of_request, status_words

if TYPE_CHECKING:
    from xgw.config import Loaded
    from xgw.queries.filters import Filters
    from xgw.queries.pages import Page, Row, Slice
    from xgw.store.database import Store
    from xgw.web.serialize import Json

LONGEST_KEY = 37
NARROW_KEY = 20
WIDE = 130
"""Columns of a terminal on which ids are shown whole."""

TIME_HELP = "RFC 3339, a date, or how long ago: 90s, 15m, 2h, 7d."


SESSION_FILTERS = {
    "session_key": "The key by which a client names its session.",
    "status": "active, archived or closed; archived ones show only if asked for.",
    "kind": "chat or agent.",
    "agent": "The agent's name.",
    "model": "The model of the last call.",
    "task_id": "The task that a client named.",
    "end_user_id": "The end user that a client named.",
    "has_error": "With a turn that ended in error, or without any.",
    "running": "With a turn under way, or without any.",
    "since": f"With activity since then. {TIME_HELP}",
    "until": f"Begun until then. {TIME_HELP}",
}


def _with_imported(command: Callable[..., Any]) -> Callable[..., Any]:
    text = "Of what was imported, instead of the store's own."
    return click.option("--imported", "of_imports", is_flag=True, help=text)(command)


@click.command()
@click.argument("query", nargs=-1)
@reading.with_filters(**SESSION_FILTERS)
@reading.with_page
@_with_imported
@with_configuration
@with_json
def sessions(
    config_path: Path | None,
    db: str | None,
    as_json: bool,
    limit: int,
    cursor: str | None,
    order: str,
    of_imports: bool,
    query: tuple[str, ...],
    **given: Any,
) -> None:
    """List sessions, those with the latest activity first; with QUERY those that fit it.

    QUERY has words such as state:error agent:support model:gpt-* tool:order_* error:timeout
    cost>0.1 tokens>50000 attempts>1, and texts that stand in key, title or first input. Each option
    may be given several times: any of its values then fits.

    \b
    Examples:
      xgw sessions --running
      xgw sessions 'state:error cost>0.1 refund'
      xgw sessions --model gpt-4o --has-error --since 2h
      xgw sessions --json | jq -r '.data[].id'
    """
    wanted = reading.filters_of("sessions", given | ({"q": " ".join(query)} if query else {}))
    page = reading.page_of(limit, cursor, order)
    if of_imports:
        listing = _Listing(
            lambda store, page: _find_sessions(store, wanted, page),
            lambda loaded, _, __: _session_json(loaded),
            _sessions_table,
        )
        _list_imported(load(config_path, db), listing, page, as_json)
        return
    with reading.opened(config_path, db) as (loaded, store):
        with reading.refused_as_usage():
            found = _find_sessions(store, wanted, page)
        if as_json:
            write_json(_page(found, _session_json(loaded)))
            return
        write(_sessions_table(stdout(), store, found.rows, reading.demos(loaded.config)))
        _explain(loaded, found, wanted, limit, "session")


def _find_sessions(store: Store, wanted: Filters, page: Page) -> Slice:
    """One page; where a query leaves it short, looking goes on until it is full or all was seen."""
    from xgw.queries.sessions import list_sessions

    found = list_sessions(store, wanted, page)
    rows = found.rows
    while found.has_more and len(rows) < page.limit:
        page = replace(page, limit=page.limit - len(found.rows), cursor=found.next_cursor)
        found = list_sessions(store, wanted, page)
        rows = [*rows, *found.rows]
    return replace(found, rows=rows)


@click.command()
@reading.with_filters(
    status="running, success or error.",
    status_code="An HTTP status such as 429, or a class such as 5xx.",
    provider="The provider's name.",
    model="The model.",
    session_id="The session: its id or key; `none` for those without one.",
    turn_id="The turn: its id, or `last`.",
    kind="chat or agent.",
    agent="The agent's name.",
    task_id="The task that a client named.",
    end_user_id="The end user that a client named.",
    has_error="Failed ones, or the others.",
    running="Those under way, or the others.",
    since=f"Under way since then. {TIME_HELP}",
    until=f"Begun until then. {TIME_HELP}",
)
@reading.with_page
@_with_imported
@with_configuration
@with_json
def requests(
    config_path: Path | None,
    db: str | None,
    as_json: bool,
    limit: int,
    cursor: str | None,
    order: str,
    of_imports: bool,
    **given: Any,
) -> None:
    """List the HTTP requests that went to providers, newest first.

    Every attempt is one. Each option may be given several times: any of its values then fits.

    \b
    Examples:
      xgw requests --status error --since 1h
      xgw requests --status-code 429 --status-code 5xx --provider openai
      xgw requests --session checkout-42
    """
    from xgw.queries.requests import list_requests

    page = reading.page_of(limit, cursor, order)
    if of_imports:
        listing = _Listing(
            lambda store, page: list_requests(
                store, reading.filters_of("requests", _resolved(store, given)), page
            ),
            lambda _, store, found: _request_json(store, found),
            lambda screen, _, rows, demos: _requests_table(screen, rows, demos),
        )
        _list_imported(load(config_path, db), listing, page, as_json)
        return
    with reading.opened(config_path, db) as (loaded, store):
        wanted = reading.filters_of("requests", _resolved(store, given))
        with reading.refused_as_usage():
            found = list_requests(store, wanted, page)
        if as_json:
            write_json(_page(found, _request_json(store, found)))
            return
        write(_requests_table(stdout(), found.rows, reading.demos(loaded.config)))
        _explain(loaded, found, wanted, limit, "request")


def _resolved(store: Store, given: dict[str, Any]) -> dict[str, Any]:
    """Sessions and turns by whatever names them: keys, ids, parts of ids, `last`."""
    from xgw.cli import refs
    from xgw.queries.filters import NONE

    sessions = [r if r == NONE else refs.get_session(store, r)["id"] for r in given["session_id"]]
    turns = [refs.get_turn(store, ref)["id"] for ref in given["turn_id"]]
    return {**given, "session_id": sessions, "turn_id": turns}


# -- of what was imported --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Listing:
    """How the rows of one noun are found in a store, and shown."""

    find: Callable[[Store, Page], Slice]
    show: Callable[[Loaded, Store, Slice], Callable[[Row], Json]]
    table: Callable[[Screen, Store, list[Row], frozenset[str]], list[str]]


def _list_imported(loaded: Loaded, listing: _Listing, page: Page, as_json: bool) -> None:
    """Import after import, the newest first, until there are as many rows as a page has."""
    from xgw.cli.places import words_of
    from xgw.cli.refs import NothingThere
    from xgw.portable import imports

    if page.cursor is not None:
        raise UsageError("--cursor goes on in the store's own list alone: leave --imported out")
    left, shown, has_more = page.limit, [], False
    for one in imports.Imports(loaded.config.storage.path).list():
        if not left:
            has_more = True
            break
        with imports.opened(one.path) as store:
            try:
                with reading.refused_as_usage():
                    found = listing.find(store, replace(page, limit=left))
            except NothingThere:
                continue
            left, has_more = left - len(found.rows), has_more or found.has_more
            if as_json:
                show = listing.show(loaded, store, found)
                shown += [{**show(row), "import_id": one.id} for row in found.rows]
            elif found.rows:
                write([f"{words_of(one)} · {one.id}"])
                write(listing.table(stdout(), store, found.rows, reading.demos(loaded.config)))
    if as_json:
        write_json({"object": "list", "data": shown, "has_more": has_more, "next_cursor": None})
    elif left == page.limit:
        note("Nothing that was imported fits. `xgw import --list` lists the imports.")
    elif has_more:
        note(f"There are more than these {page.limit}: --limit 500")


# -- tables ----------------------------------------------------------------------------------------

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


def _sessions_table(
    screen: Screen, store: Store, rows: list[Row], demos: frozenset[str]
) -> list[str]:
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


def _requests_table(screen: Screen, rows: list[Row], demos: frozenset[str]) -> list[str]:
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


# -- JSON, and what is said beside the list --------------------------------------------------------


def _page(found: Slice, show: Callable[[Row], Json]) -> Json:
    return {
        "object": "list",
        "data": [show(row) for row in found.rows],
        "has_more": found.has_more,
        "next_cursor": found.next_cursor,
    }


def _session_json(loaded: Loaded) -> Callable[[Row], Json]:
    from xgw.web import serialize

    window_of = reading.windows(loaded.config)
    return lambda row: serialize.session(row, window_of(row))


def _request_json(store: Store, found: Slice) -> Callable[[Row], Json]:
    from xgw.web import serialize

    shown = reading.payloads_of(store, found.rows, bodies=False)
    return lambda row: serialize.request(row, shown)


def _explain(loaded: Loaded, found: Slice, wanted: Filters, limit: int, noun: str) -> None:
    """Tell what to do about an empty list, and about one that goes on."""
    if found.has_more:
        note(f"There are more than these {limit}: --limit 500, or --cursor {found.next_cursor}")
    if found.rows:
        return
    if wanted.conditions or wanted.sought:
        note(f"No {noun} fits these filters.")
        return
    path = loaded.config.storage.path
    note(f"The store {path} has no {noun} yet.")
    server = find_server(path)
    if server is None:
        note("Start `xgw serve`, and point a client at the base URL that it prints.")
    else:
        note(f"Point a client at the base URL {server.url}/v1 and send something.")
