"""What a person names on the command line: ids, whole or in part, keys, `last`, an event's seq."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from xgw.errors import WorkError
from xgw.queries import events, lookup, texts
from xgw.queries.conditions import start_of
from xgw.queries.pages import Row
from xgw.store.database import Store
from xgw.store.models import Message, RequestLog, Run, Session, Step, Table, Turn

LAST = "last"
SHORT_DIGITS = 8
SHOWN = 5
MAX_SEQ_DIGITS = 18

_KINDS: dict[str, tuple[str, type[Table]]] = {
    "turn": ("turn", Turn),
    "step": ("step", Step),
    "sess": ("session", Session),
    "run": ("run", Run),
    "req": ("request", RequestLog),
    "msg": ("message", Message),
}
_SHORT = re.compile(r"(?:(sess|turn|run|step|msg|req)_)?(?:…|\.\.\.)?([0-9a-f]{6,32})")

_START = re.compile(r"(?:sess|turn|run|step|msg|req)_")


class NothingThere(WorkError):
    """A store has nothing that is called so."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was named, and its kind: session, turn, run, step, message, request or event."""

    kind: str
    row: Any


def short(id: str) -> str:
    """An id as lists on a terminal show it: its kind and its last digits, the random ones."""
    kind, _, digits = id.partition("_")
    return f"{kind}_…{digits[-SHORT_DIGITS:]}" if len(digits) > SHORT_DIGITS else id


def get(store: Store, ref: str) -> Found:
    """What `ref` names; WorkError if there is nothing, or more than one thing.

    That is: `last` (the newest turn), an id, a session key, a trace id, the start or the end of
    an id, the seq of an event; what comes first here counts.
    """
    found = _last(store) if ref == LAST else _known(store, ref) or _ending(store, ref)
    found = found or _event(store, ref)
    if found is None:
        raise nothing_there(ref, str(store.path))
    columns = {"message": texts.OF_MESSAGES, "turn": texts.OF_TURNS}.get(found.kind)
    if columns is not None:
        texts.bring_back(store, [found.row], columns)
    return found


def nothing_there(ref: str, where: str) -> NothingThere:
    """The refusal of a name that leads to nothing; of a start that is too short it says so."""
    hint = ""
    if len(ref) < lookup.MIN_PREFIX and _START.match(ref):
        hint = f": the start of an id needs {lookup.MIN_PREFIX} characters"
    return NothingThere(f"there is nothing that {ref!r} names in {where}{hint}")


def get_session(store: Store, ref: str) -> Row:
    """The session that `ref` names; WorkError as above, or if it is something else."""
    return _get_kind(store, ref, "session")


def get_turn(store: Store, ref: str) -> Row:
    """The turn that `ref` names; WorkError likewise."""
    return _get_kind(store, ref, "turn")


def _get_kind(store: Store, ref: str, kind: str) -> Row:
    found = get(store, ref)
    if found.kind != kind:
        raise WorkError(f"{ref!r} names a {found.kind}, not a {kind}")
    row: Row = found.row
    return row


def _known(store: Store, ref: str) -> Found | None:
    found = lookup.find(store, ref)
    return None if found is None else Found(found.kind, found.row)


def _last(store: Store) -> Found | None:
    newest = Turn.select().order_by(start_of(Turn).desc(), Turn.id.desc())
    row = store.fetch_one(newest)
    if row is None:
        raise NothingThere(f"there is no turn in {store.path} yet")
    return Found("turn", row)


def _ending(store: Store, ref: str) -> Found | None:
    match = _SHORT.fullmatch(ref)
    if match is None:
        return None
    kinds = [match[1]] if match[1] else list(_KINDS)
    fitting = [found for kind in kinds for found in _that_end(store, kind, match[2])]
    if len(fitting) > 1:
        names = ", ".join(found.row["id"] for found in fitting[:SHOWN])
        raise WorkError(f"{ref} fits more than one thing: {names}")
    return fitting[0] if fitting else None


def _that_end(store: Store, prefix: str, digits: str) -> Iterator[Found]:
    kind, model = _KINDS[prefix]
    id = model.id  # type: ignore[attr-defined]
    for row in store.fetch(model.select().where(id.endswith(digits)).order_by(id).limit(SHOWN)):
        yield Found(kind, row)


def _event(store: Store, ref: str) -> Found | None:
    if not (ref.isascii() and ref.isdigit()) or not 0 < len(ref) <= MAX_SEQ_DIGITS:
        return None
    found = events.list_events(store, int(ref) - 1, limit=1)
    return Found("event", found[0]) if found and found[0].seq == int(ref) else None
