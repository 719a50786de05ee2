"""Finding anything by what a person has in hand: an id of any kind, the start of one, a key."""

from __future__ import annotations

import re
from dataclasses import dataclass

from xgw.errors import WorkError
from xgw.queries.pages import Row
from xgw.store.database import Store
from xgw.store.models import Message, RequestLog, Run, Session, Step, Table, Turn

MIN_PREFIX = 12
SHOWN = 5

_KINDS: dict[str, tuple[str, type[Table]]] = {
    "sess": ("session", Session),
    "turn": ("turn", Turn),
    "run": ("run", Run),
    "step": ("step", Step),
    "msg": ("message", Message),
    "req": ("request", RequestLog),
}
_ID_START = re.compile(r"(sess|turn|run|step|msg|req)_[0-9a-f]{1,32}")
_TRACE_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Found:
    """A row and its kind: session, turn, run, step, message or request."""

    kind: str
    row: Row


def find(store: Store, ref: str) -> Found | None:
    """What `ref` names: an id, a session key in any project, a trace id, or the start of an id.

    The start must have 12 characters or more. Raises WorkError naming the candidates where more
    than one thing fits.
    """
    return _by_id(store, ref) or _by_session_key(store, ref) or _by_trace(store, ref)


def _by_id(store: Store, ref: str) -> Found | None:
    if _ID_START.fullmatch(ref) is None or len(ref) < MIN_PREFIX:
        return None
    kind, model = _KINDS[ref.partition("_")[0]]
    id = model.id  # type: ignore[attr-defined]
    if exact := store.fetch_one(model.select().where(id == ref)):
        return Found(kind, exact)
    starting = model.select().where(id > ref, id < ref + "g").order_by(id)
    return _only(kind, ref, store.fetch(starting.limit(SHOWN)))


def _by_session_key(store: Store, ref: str) -> Found | None:
    named = Session.select().where(Session.session_key == ref)
    return _only("session", ref, store.fetch(named.limit(SHOWN)))


def _by_trace(store: Store, ref: str) -> Found | None:
    if _TRACE_ID.fullmatch(ref) is None:
        return None
    traced = Turn.select().where(Turn.trace_id == ref)
    return _only("turn", ref, store.fetch(traced.limit(SHOWN)))


def _only(kind: str, ref: str, rows: list[Row]) -> Found | None:
    if len(rows) > 1:
        names = ", ".join(row["id"] for row in rows)
        raise WorkError(f"{ref} fits more than one {kind}: {names}")
    return Found(kind, rows[0]) if rows else None
