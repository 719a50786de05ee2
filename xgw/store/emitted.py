"""Events that a transaction emits: what is told of them, and the rows that tell it later."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import attrgetter
from typing import Any

from xgw import clock
from xgw.events import TEXTS, Envelope, cut_texts, is_surely_short
from xgw.store.digits import packed_id
from xgw.store.layouts import NUMBERS, laid_out
from xgw.store.templates import LONG
from xgw.store.told import Keep, packed, packed_at_once

COLUMNS = ("type", "at", "project_id", "session_id", "turn_id", "run_id", "step_id", "payload")

MOST_IN_EVENTS = 65536
"""Length up to which an event's text is kept whole: reading a page of events takes no more."""

Texts = dict[str, str]
NO_TEXTS: Texts = {}
Row = tuple[Any, ...]


# A tuple is made in a fifth of the time that one with names takes, nine times a request.
Told = tuple[
    str,
    datetime.datetime,
    str,
    str | None,
    str | None,
    str | None,
    str | None,
    dict[str, Any],
]
"""An event's `COLUMNS` as they are told."""

_told: Callable[[Envelope], Told] = attrgetter(*COLUMNS)


def shortened(payload: dict[str, Any]) -> tuple[dict[str, Any], Texts]:
    """The payload, its texts cut at 4 KiB, and its texts that are worth a row of their own."""
    texts, is_cut = NO_TEXTS, False
    for name, value in payload.items():
        kind = type(value)
        if kind is str:
            if len(value) >= LONG:
                is_cut = is_cut or not is_surely_short(value)
                if name in TEXTS and len(value) <= MOST_IN_EVENTS:
                    texts = {**texts, name: value}
        elif (kind is dict or kind is list) and value:
            is_cut = True
    return (cut_texts(payload) if is_cut else payload), texts


def numbered(events: Iterable[Told], first: int) -> list[Envelope]:
    """The events as they are told, under `seq`s that begin with `first`."""
    return [Envelope(seq, *told) for seq, told in enumerate(events, first)]


def written(event: Told, keep: Keep) -> tuple[Row, Told]:
    """The row of an event that was emitted, and the event as it is told."""
    type, at, project, session, turn, run, step, payload = event
    number = NUMBERS.get(tuple(payload))
    if number is not None:
        ids = _packed_ids(session, turn, run, step)
        # An id that was not minted stays as it is, and may be of any length.
        if not isinstance(ids[0], str) and not isinstance(ids[1], str):
            laid = packed_at_once(number, payload, turn, session, keep)
            if laid is not None:
                return (type, clock.to_microseconds(at), project, *ids, laid), event
    cut, texts = shortened(payload)
    told = (type, at, project, session, turn, run, step, cut)
    return _stored(told, texts, keep), told


def _stored(told: Told, texts: Texts, keep: Keep) -> Row:
    """An event's row: these texts whole, by the hashes under which `keep` keeps them."""
    type, at, project, session, turn, run, step, payload = told
    if texts:
        payload = payload | {name: {"payload": keep(text)} for name, text in texts.items()}
    laid = packed(laid_out(payload, turn, session))
    ids = _packed_ids(session, turn, run, step)
    return (type, clock.to_microseconds(at), project, *ids, laid)


def stored_again(envelope: Envelope) -> Row:
    """The row of an event that was told elsewhere, its `seq` first; its texts stay in it."""
    return (envelope.seq, *_stored(_told(envelope), NO_TEXTS, str))


# A turn's events have three or four such sets.
@lru_cache(maxsize=256)
def _packed_ids(
    session: str | None, turn: str | None, run: str | None, step: str | None
) -> tuple[str | bytearray | None, ...]:
    ids = (
        session and packed_id(session, "sess"),
        turn and packed_id(turn, "turn"),
        run and packed_id(run, "run"),
        step and packed_id(step, "step"),
    )
    # sqlite3 binds these as they are; for bytes it looks for an adapter each time.
    return tuple(bytearray(id) if isinstance(id, bytes) else id for id in ids)
