"""The commands `sessions` and `requests`: lists, newest first, with the filters of the API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xgw.cli import reading
from xgw.cli.configuration import load, with_configuration, with_json
from xgw.cli.imported_lists import Listing, list_imported
from xgw.cli.list_tables import requests_table, sessions_table
from xgw.cli.server import find_server
from xgw.cli.terminal import note, stdout, write, write_json

if TYPE_CHECKING:
    from xgw.config import Loaded
    from xgw.queries.filters import Filters
    from xgw.queries.pages import Page, Row, Slice
    from xgw.store.database import Store
    from xgw.web.serialize import Json

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
        listing = Listing(
            lambda store, page: _find_sessions(store, wanted, page),
            lambda loaded, _, __: _session_json(loaded),
            sessions_table,
        )
        list_imported(load(config_path, db), listing, page, as_json)
        return
    with reading.opened(config_path, db) as (loaded, store):
        with reading.refused_as_usage():
            found = _find_sessions(store, wanted, page)
        if as_json:
            write_json(_page(found, _session_json(loaded)))
            return
        write(sessions_table(stdout(), store, found.rows, reading.demos(loaded.config)))
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
        listing = Listing(
            lambda store, page: list_requests(
                store, reading.filters_of("requests", _resolved(store, given)), page
            ),
            lambda _, store, found: _request_json(store, found),
            lambda screen, _, rows, demos: requests_table(screen, rows, demos),
        )
        list_imported(load(config_path, db), listing, page, as_json)
        return
    with reading.opened(config_path, db) as (loaded, store):
        wanted = reading.filters_of("requests", _resolved(store, given))
        with reading.refused_as_usage():
            found = list_requests(store, wanted, page)
        if as_json:
            write_json(_page(found, _request_json(store, found)))
            return
        write(requests_table(stdout(), found.rows, reading.demos(loaded.config)))
        _explain(loaded, found, wanted, limit, "request")


def _resolved(store: Store, given: dict[str, Any]) -> dict[str, Any]:
    """Sessions and turns by whatever names them: keys, ids, parts of ids, `last`."""
    from xgw.cli import refs
    from xgw.queries.filters import NONE

    sessions = [r if r == NONE else refs.get_session(store, r)["id"] for r in given["session_id"]]
    turns = [refs.get_turn(store, ref)["id"] for ref in given["turn_id"]]
    return {**given, "session_id": sessions, "turn_id": turns}


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
