"""Older conversations and task sessions as sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xgw import ids
from xgw.upkeep.legacy.source import GATEWAY, TASKS, OldRow
from xgw.upkeep.legacy.values import Origin, loose, merged, parsed
from xgw.upkeep.minting import mint
from xgw.upkeep.times import milliseconds, read_time

PROJECT = "default"
ORPHANS = "orphans"

ORPHANS_ID = mint("sess", 0, [ORPHANS])
"""The same whatever the source: all orphans of a store are in one session."""

STATUSES = {
    "RUNNING": "active",
    "ACTIVE": "active",
    "COMPLETED": "closed",
    "CANCELLED": "closed",
    "FAILED": "closed",
    "CLOSED": "closed",
    "ARCHIVED": "archived",
}
"""The status that a session has for that of a task session; `active` for all others."""

Session = list[Any]
"""In the order of `adopt.COLUMNS`; `key` may still be changed, and the count of messages."""

KEY, METADATA, MESSAGE_COUNT, CREATED = 1, 12, 13, 14


def from_conversation(origin: Origin, row: OldRow, fallback: str) -> Session:
    """A conversation of the gateway; `fallback` is its time where its own is not known."""
    _, _, title, user, model, created, updated, *_ = row
    at, changed, notes = _times(created, updated, fallback)
    session_id, key = _named(origin, row, notes, at)
    return [
        session_id,
        key,
        PROJECT,
        loose(user),
        None,
        "chat",
        None,
        None,
        loose(model),
        loose(title),
        "active",
        "import",
        origin.metadata(row, len(GATEWAY.sessions.known), notes),
        0,
        at,
        changed,
    ]


def from_task_session(origin: Origin, row: OldRow, fallback: str) -> Session:
    """A task session; its status is mapped, the old one stays in metadata."""
    _, _, task, agent, status, metadata, created, updated, *_ = row
    at, changed, notes = _times(created, updated, fallback)
    if status is not None:
        notes["status"] = loose(status)
    session_id, key = _named(origin, row, notes, at)
    own, unparsed = parsed(metadata)
    return [
        session_id,
        key,
        PROJECT,
        None,
        loose(task),
        "agent",
        loose(agent),
        "task",
        None,
        None,
        STATUSES.get(str(loose(status)).upper(), "active"),
        "import",
        origin.metadata(row, len(TASKS.sessions.known), notes, own, unparsed),
        0,
        at,
        changed,
    ]


def of_orphans(origin: Origin, at: str) -> Session:
    """The session of all messages whose own is not there."""
    legacy = {"source": origin.takeover, "orphans": True}
    title = "Messages whose session was not in the older store"
    return [
        ORPHANS_ID,
        ORPHANS,
        PROJECT,
        *(None, None, "chat", None, None, None, title, "active", "import"),
        merged(legacy, None, None),
        0,
        at,
        at,
    ]


MAKERS: dict[str, Callable[[Origin, OldRow, str], Session]] = {
    GATEWAY.name: from_conversation,
    TASKS.name: from_task_session,
}


def _times(created: Any, updated: Any, fallback: str) -> tuple[str, str, dict[str, Any]]:
    """When it began and when it last changed, and what stood there if that cannot be made out."""
    began, changed = read_time(created), read_time(updated)
    notes: dict[str, Any] = {}
    if began is None:
        notes["created_at"] = loose(created)
    if changed is None and updated is not None:
        notes["updated_at"] = loose(updated)
    at = began or changed or fallback
    return at, changed or at, notes


def _named(origin: Origin, row: OldRow, notes: dict[str, Any], at: str) -> tuple[str, str]:
    """A session's id and its key; an old id that cannot be a key stays in metadata alone."""
    old_id = loose(row[1])
    identity = [origin.table, old_id]
    if old_id is None or origin.repeated:
        identity += row if old_id is None else row[1:]
    session_id = mint("sess", 0 if "created_at" in notes else milliseconds(at), identity)
    try:
        return session_id, ids.client_identifier(old_id or "")
    except ValueError:
        return session_id, session_id
