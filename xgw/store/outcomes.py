"""What became of units of work: whoever is concerned is told, and the log what went wrong."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable

from xgw.errors import ILLEGAL_MOVE, ApiError
from xgw.store.backlog import Ticket

log = logging.getLogger("xgw.store")


def log_failure(error: Exception) -> None:
    """A refusal is told to whoever asked; that rows have moved on, or are gone, is no fault."""
    if isinstance(error, ApiError) and error.code != ILLEGAL_MOVE:
        return
    fault = None if isinstance(error, ApiError | sqlite3.IntegrityError) else error
    level = logging.WARNING if fault is None else logging.ERROR
    log.log(level, "a unit of work could not be recorded: %s", error, exc_info=fault)


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
