"""The command `cancel`: a turn is ended, by the server that works on it or in the store itself."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xgw import clock
from xgw.cli import reading
from xgw.cli.configuration import with_configuration, with_json
from xgw.cli.server import ServerLock, find_server
from xgw.cli.terminal import write, write_json
from xgw.errors import WorkError

if TYPE_CHECKING:
    from xgw.store.database import Store
    from xgw.store.writer import Writer

WRITE_SECONDS = 10.0
LOOK_SECONDS = 0.1


@click.command()
@click.argument("turn")
@with_configuration
@with_json
def cancel(config_path: Path | None, db: str | None, turn: str, as_json: bool) -> None:
    """Cancel TURN: its calls are ended, or its wait for tools.

    TURN is an id, whole or in part, or `last`. What had arrived is kept. Without a running server
    this ends a turn that one left behind.

    \b
    Examples:
      xgw cancel last
      xgw cancel turn_019a3c5e7d20
    """
    from xgw.cli import refs

    with reading.opened(config_path, db) as (_, store):
        turn_id = refs.get_turn(store, turn)["id"]
        shown = _cancel(store, turn_id)
    if as_json:
        write_json(shown)
    else:
        write([f"{turn_id} is cancelled"])


def _cancel(store: Store, turn_id: str) -> Any:
    from xgw.cli.asking import ask

    server = find_server(store.path)
    if server is not None:
        return ask(server, "POST", f"/turns/{turn_id}/cancel")
    lock = ServerLock.acquire(store.path)
    try:
        with writing(store) as writer:
            _end_abandoned(store, writer, turn_id)
    finally:
        lock.release()
    return _shown(store, turn_id)


def _end_abandoned(store: Store, writer: Writer, turn_id: str) -> None:
    """No server works on the store: the turn is ended as it stands."""
    from xgw.queries.runs import newest_of_turn
    from xgw.queries.turns import find_turn
    from xgw.recording.edits import Edits, is_abandoned
    from xgw.recording.lifecycle import ENDED, AlreadyOver

    turn, run = find_turn(store, turn_id), newest_of_turn(store, turn_id)
    if turn is None or run is None:
        raise WorkError(f"there is no turn {turn_id}")
    if turn["status"] in ENDED:
        raise WorkError(str(AlreadyOver(turn_id, turn["status"], turn["ended_by"])))
    waits = turn["endpoint"] is None and run["status"] == "waiting_tool"
    if not waits and not is_abandoned(run["owner"]):
        raise WorkError(f"another process works on {turn_id}: end it there")
    commit(writer, Edits(writer).end_turn(turn_id, seen=(run["id"], run["status"])))


def _shown(store: Store, turn_id: str) -> Any:
    from xgw.queries.turns import find_turn_with_runs
    from xgw.web import serialize

    turn = find_turn_with_runs(store, turn_id)
    if turn is None:
        raise WorkError(f"there is no turn {turn_id} any more")
    return serialize.turn(turn, reading.payloads_of(store, [turn], bodies=False))


@contextlib.contextmanager
def writing(store: Store) -> Iterator[Writer]:
    """A writer for a command's own changes; what it writes, others find in the store."""
    from xgw.store.writer import Writer

    # What goes wrong is told by the command itself.
    logging.getLogger("xgw.store").addHandler(logging.NullHandler())
    writer = Writer(store, lambda events: None)
    writer.start()
    try:
        yield writer
    except BaseException:
        writer.stop(0)
        raise
    writer.stop()


def commit(writer: Writer, ticket: Any) -> None:
    """Wait for the commit; WorkError if it does not come, at once where waiting is of no use."""
    until = clock.monotonic() + WRITE_SECONDS
    while not ticket.wait(LOOK_SECONDS) and clock.monotonic() < until:
        if writer.down_reason is not None and "locked" not in writer.down_reason:
            break
    if not ticket.done or ticket.error is not None:
        reason = writer.down_reason or ticket.error or "it is busy"
        raise WorkError(f"the store cannot be written: {reason}")
