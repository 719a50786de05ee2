"""The command `show`: all about one thing, whatever its kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from xgw.cli import reading
from xgw.cli.configuration import with_configuration, with_json
from xgw.cli.terminal import stdout, write, write_json

if TYPE_CHECKING:
    from xgw.cli.pages import Page
    from xgw.cli.refs import Found
    from xgw.config import Loaded
    from xgw.queries.pages import Row
    from xgw.store.database import Store
    from xgw.web.serialize import Json


@click.command()
@click.argument("ref", metavar="ID")
@click.option("--full", is_flag=True, help="Show every text whole; with --json: payloads too.")
@with_configuration
@with_json
def show(config_path: Path | None, db: str | None, as_json: bool, ref: str, full: bool) -> None:
    """Tell all about a session, turn, run, step, message, request or event.

    ID is `last` (the newest turn), an id of any kind, a session's key, a trace id, the start or
    the end of an id, or the seq of an event. What the store does not have is looked for in what was
    imported.

    \b
    Examples:
      xgw show last
      xgw show checkout-42
      xgw show turn_0192f0c1a2b3
      xgw show --json --full last | jq '.runs[].steps[].output_payload'
    """
    from xgw.cli import places
    from xgw.cli.pages import Page

    with places.holding(config_path, db, ref) as (loaded, place):
        if as_json:
            write_json(_json(loaded, place.store, place.found, full))
            return
        page = Page(stdout(), full, reading.demos(loaded.config))
        if place.imported is not None:
            page.exported_at = place.imported.exported_at
        _render(page, loaded, place.store, place.found)
    write(page.lines)


def _render(page: Page, loaded: Loaded, store: Store, found: Found) -> None:
    from xgw.cli import request_page, run_page, session_page, step_page, turn_page

    match found.kind:
        case "session":
            session_page.render_session(page, store, found.row, reading.windows(loaded.config))
        case "turn":
            turn_page.render_turn(page, store, _with_runs(store, found.row))
        case "run":
            run_page.render_run(page, store, _with_steps(store, found.row))
        case "step":
            step_page.render_step(page, store, found.row)
        case "message":
            session_page.render_message(page, found.row)
        case "request":
            request_page.render_request(page, store, found.row)
        case _:
            session_page.render_event(page, found.row)


def _json(loaded: Loaded, store: Store, found: Found, full: bool) -> Json:
    """The API's resource."""
    from xgw.queries import sessions
    from xgw.web import serialize

    row = found.row
    match found.kind:
        case "session":
            window = reading.windows(loaded.config)(row)
            tools = serialize.tools(sessions.find_tools(store, row["id"]))
            return {**serialize.session(row, window), "tools": tools}
        case "turn":
            turn = _with_runs(store, row)
            return serialize.turn(turn, reading.payloads_of(store, [turn], bodies=full))
        case "run":
            run = _with_steps(store, row)
            return serialize.run(run, reading.payloads_of(store, [run], bodies=full))
        case "step":
            return _step_json(store, row)
        case "message":
            return serialize.message(row)
        case "request":
            return serialize.request(row, reading.payloads_of(store, [row], bodies=full))
        case _:
            event: Json = row.to_json()
            return event


def _step_json(store: Store, row: Row) -> Json:
    from xgw.queries import steps
    from xgw.web import serialize

    shown = serialize.step(row, reading.payloads_of(store, [row], bodies=True))
    changes = steps.find_changes(store, row)
    return {**shown, "changes": None if changes is None else serialize.changes(changes)}


def _with_runs(store: Store, turn: Row) -> Row:
    from xgw.queries import turns

    return turns.find_turn_with_runs(store, turn["id"]) or {**turn, "runs": []}


def _with_steps(store: Store, run: Row) -> Row:
    from xgw.queries import runs

    return runs.find_run(store, run["id"]) or {**run, "steps": []}
