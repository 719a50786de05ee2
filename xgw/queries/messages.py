"""Reading messages, the history as people see it."""

from __future__ import annotations

from collections.abc import Collection

import peewee
from peewee import fn

from xgw.queries import pages
from xgw.queries.cuts import cut_columns
from xgw.queries.pages import Page, Row, Slice, Sort
from xgw.queries.snapshot import snapshot
from xgw.queries.spelled import Brought, SelectByIds, fetch_whole
from xgw.queries.texts import OF_MESSAGES, bring_back
from xgw.store.database import Store
from xgw.store.models import Message, Turn

MOST_SHOWN = 500
NO_INDEX = 1 << 62

BY_INDEX = Sort(
    "message_index", Message.message_index, Message.id, lambda row: int(row["message_index"])
)


def list_messages(store: Store, session_id: str, page: Page) -> Slice:
    """The messages of a session by their index in it."""
    inside = Message.session_id == session_id
    with snapshot(store):
        found = pages.fetch(store, Message.select(), [inside], BY_INDEX, page)
        bring_back(store, found.rows, OF_MESSAGES)
    return found


def of_turn(store: Store, turn_id: str) -> list[Row]:
    """All messages of one turn in order."""
    query = Message.select().where(Message.turn_id == turn_id)
    with snapshot(store):
        rows = store.fetch(query.order_by(Message.message_index))
        bring_back(store, rows, OF_MESSAGES)
    return rows


def of_agent_turns(store: Store, session_id: str, without: str) -> list[Row]:
    """What was said in the agent's turns of a session before the turn `without`, turn by turn.

    Not what another agent said that a task was handed over to: its answer is a tool's result.
    """
    own = Turn.alias()
    # A turn that has just begun may not be there yet: then all others are before it.
    its_index = own.select(own.turn_index).where(own.id == without)
    query = (
        Message.select()
        .join(Turn, on=(Turn.id == Message.turn_id))
        .where(
            Message.session_id == session_id,
            Turn.endpoint.is_null(),
            Turn.id != without,
            Turn.turn_index < fn.COALESCE(its_index, NO_INDEX),
        )
        .order_by(Turn.turn_index, Message.message_index)
    )
    with snapshot(store):
        rows = store.fetch(query)
        rows = [row for row in rows if "handoff" not in (row["metadata"] or {})]
        bring_back(store, rows, OF_MESSAGES)
    return rows


def shown_of_turn(
    store: Store,
    turn_id: str,
    *,
    ids: Collection[str] | None = None,
    step_ids: Collection[str] = (),
) -> list[Row]:
    """Messages of one turn in order, cut to what a page shows (`cut`, see `cuts.cut_columns`).

    Only these `ids`, and those of these steps; None is all of them. The newest MOST_SHOWN.
    """
    query = _newest(turn_id)
    if ids is not None:
        query = query.where(Message.id.in_(ids) | Message.step_id.in_(step_ids))
    return _shown(*fetch_whole(store, query, texts=OF_MESSAGES))[0]


def shown_beside(store: Store, turn_id: str, keys: Collection[str]) -> tuple[list[Row], Brought]:
    """All of them, and the bodies with these hashes: one statement."""
    return _shown(*_OF_TURN.fetch_whole(store, [turn_id], texts=OF_MESSAGES, keys=keys))


def _newest(turn_id: str) -> peewee.ModelSelect[Message]:
    query = Message.select().where(Message.turn_id == turn_id)
    return query.order_by(Message.message_index.desc()).limit(MOST_SHOWN)


_OF_TURN = SelectByIds(lambda ids: _newest(ids[0]))


def _shown(rows: list[Row], bodies: Brought) -> tuple[list[Row], Brought]:
    rows.sort(key=lambda row: int(row["message_index"]))
    for row in rows:
        cut_columns(row, ("content", "parts", "tool_calls"))
    return rows, bodies


def find_message(store: Store, message_id: str) -> Row | None:
    """One message, whole."""
    with snapshot(store):
        rows = store.fetch(Message.select().where(Message.id == message_id))
        bring_back(store, rows, OF_MESSAGES)
    return rows[0] if rows else None
