"""The command `tail`: events as they happen."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xgw.cli import INTERRUPTED, reading
from xgw.cli.configuration import with_configuration, with_json
from xgw.cli.terminal import note, stdout, when_stdout_closes, write, write_json_lines
from xgw.errors import UsageError
from xgw.events import TYPES

if TYPE_CHECKING:
    from xgw.cli.event_lines import EventLines
    from xgw.config import Config
    from xgw.store.database import Store

DELTA = "step.delta"
TOLD_BY_SERVER = "stream.lagged"


@click.command()
@click.option("-s", "--session", metavar="ID", help="Those of one session: its id or key.")
@click.option(
    "--types", metavar="LIST", help="Only these, separated by commas; * stands for any letters."
)
@click.option("--deltas", is_flag=True, help="The text too, piece by piece (needs a server).")
@click.option(
    "--after", metavar="SEQ", type=click.IntRange(0), help="Begin after this event; 0: the first."
)
@with_configuration
@with_json
def tail(
    config_path: Path | None,
    db: str | None,
    as_json: bool,
    session: str | None,
    types: str | None,
    deltas: bool,
    after: int | None,
) -> None:
    """Follow the events, live: one line each, until Ctrl-C.

    A line begins with the time and the last digits of the turn's id, which `xgw show` takes. With
    a server on the store the steps under way report their progress; without one, and while it
    restarts, the events come from the store. None is lost and none comes twice.

    \b
    Examples:
      xgw tail
      xgw tail -s checkout-42 --deltas
      xgw tail --types 'turn.*,llm.error' --json | jq .payload
      xgw tail --after 0
    """
    wanted = _types(types, deltas)
    try:
        with reading.opened(config_path, db) as (loaded, store):
            _follow(loaded.config, store, wanted, session, after, as_json)
    except KeyboardInterrupt:  # the usual end, with nothing to be said about it
        raise SystemExit(INTERRUPTED) from None


def _follow(
    config: Config,
    store: Store,
    types: frozenset[str],
    session: str | None,
    after: int | None,
    as_json: bool,
) -> None:
    from xgw.cli import refs
    from xgw.cli.following import Follower, Wanted

    session_id = None if session is None else refs.get_session(store, session)["id"]
    wanted = Wanted(types, _cursor(store, after), session_id)
    follower = Follower(store, wanted, config.server.token, config.server.heartbeat_seconds, note)
    lines = _event_lines(config, store)
    when_stdout_closes(follower.stop)
    for batch in follower.batches():
        if as_json:
            write_json_lines(event for event in batch if event["type"] != TOLD_BY_SERVER)
        else:
            write(lines.spell(event) for event in batch)


def _types(text: str | None, deltas: bool) -> frozenset[str]:
    """The types that are named; text piece by piece only where it is asked for by name."""
    if text is None:
        return frozenset(TYPES) - (frozenset() if deltas else {DELTA})
    patterns = [pattern.strip() for pattern in text.split(",")]
    wanted: set[str] = set()
    for pattern in patterns:
        named = {type for type in TYPES if fnmatchcase(type, pattern)}
        if not named:
            raise UsageError(f"--types: {pattern!r} is no type of event ({', '.join(TYPES)})")
        wanted |= named
    if not deltas and DELTA not in patterns:
        wanted.discard(DELTA)
    return frozenset(wanted | ({DELTA} if deltas else set()))


def _cursor(store: Store, after: int | None) -> int:
    from xgw.queries import events

    newest = events.newest(store)
    if after is None:
        return newest
    if after > newest:
        raise UsageError(f"--after {after} is ahead of the newest event, {newest}")
    return after


def _event_lines(config: Config, store: Store) -> EventLines:
    from xgw.cli.event_lines import EventLines
    from xgw.queries.sessions import find_session

    def session_key(id: str) -> Any:
        found = find_session(store, id)
        return found and found["session_key"]

    return EventLines(stdout(), reading.demos(config), session_key)
