"""What became of units of work: whoever is concerned is told, and the log what went wrong."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from functools import lru_cache

from xgw.errors import ILLEGAL_MOVE, ApiError
from xgw.store.backlog import Ticket

TURNS_NAMED = 5
TURNS_TOLD = 256

log = logging.getLogger("xgw.store")


def log_failure(unit: Ticket, error: Exception) -> None:
    """A refusal is told to whoever asked; that rows have moved on, or are gone, is no fault."""
    if isinstance(error, ApiError) and error.code != ILLEGAL_MOVE:
        return
    if unit.part.turn_id is not None and _is_orphan(error):
        _log_orphan(unit.part.turn_id)
        return
    fault = None if isinstance(error, ApiError | sqlite3.IntegrityError) else error
    level = logging.WARNING if fault is None else logging.ERROR
    log.log(level, "a unit of work could not be recorded: %s", error, exc_info=fault)


def _is_orphan(error: Exception) -> bool:
    """Whether the unit builds on a row that was deleted meanwhile."""
    code = getattr(error, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY or getattr(error, "row_is_gone", False)


@lru_cache(maxsize=TURNS_TOLD)
def _log_orphan(turn_id: str) -> None:
    """Once a turn: several units of it may come too late."""
    log.warning("turn %s is not recorded any further: it or its session was deleted", turn_id)


def log_loss(units: Sequence[Ticket], why: str) -> None:
    """What the end came too soon for, in one line: how much, of which turns, and why."""
    turns = list(dict.fromkeys(unit.part.turn_id for unit in units if unit.part.turn_id))
    named = ", ".join(turns[:TURNS_NAMED])
    if len(turns) > TURNS_NAMED:
        named += f" and {len(turns) - TURNS_NAMED} more"
    of = f" (turns: {named})" if turns else ""
    words = "the store could not be written before the end (%s): %d units of work are lost%s"
    log.error(words, why, len(units), of)


def give_up(ticket: Ticket, error: Exception) -> None:
    """It is never committed."""
    ticket.finish(error)
    if ticket.part.lost is not None:
        tell(ticket.part.lost)


def tell(reader: Callable[[], None]) -> None:
    """Whoever is told of a commit, or of a loss, may fail: that changes nothing for the others."""
    try:
        reader()
    except Exception:  # around a subscriber
        log.exception("whoever was told of what became of a unit of work failed")
