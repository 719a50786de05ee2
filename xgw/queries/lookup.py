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
    fitting = list_fitting(store, ref, SHOWN)
    if len(fitting) > 1:
        names = ", ".join(found.row["id"] for found in fitting)
        raise WorkError(f"{ref} fits more than one {fitting[0].kind}: {names}")
    return fitting[0] if fitting else None


def list_fitting(store: Store, ref: str, limit: int) -> list[Found]:
    """Everything that `ref` may name in the same way, all of one kind; `limit` of it at most."""
    return (
        _by_id(store, ref, limit)
        or _by_session_key(store, ref, limit)
        or _by_trace(store, ref, limit)
    )


def _by_id(store: Store, ref: str, limit: int) -> list[Found]:
    if _ID_START.fullmatch(ref) is None or len(ref) < MIN_PREFIX:
        return []
    kind, model = _KINDS[ref.partition("_")[0]]
    id = model.id  # type: ignore[attr-defined]
    if exact := store.fetch_one(model.select().where(id == ref)):
        return [Found(kind, exact)]
    starting = model.select().where(id > ref, id < ref + "g").order_by(id)
    return [Found(kind, row) for row in store.fetch(starting.limit(limit))]


def _by_session_key(store: Store, ref: str, limit: int) -> list[Found]:
    named = Session.select().where(Session.session_key == ref).order_by(Session.id)
    return [Found("session", row) for row in store.fetch(named.limit(limit))]


def _by_trace(store: Store, ref: str, limit: int) -> list[Found]:
    if _TRACE_ID.fullmatch(ref) is None:
        return []
    traced = Turn.select().where(Turn.trace_id == ref).order_by(Turn.id)
    return [Found("turn", row) for row in store.fetch(traced.limit(limit))]
