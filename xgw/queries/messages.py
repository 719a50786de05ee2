"""Reading messages, the history as people see it."""

from __future__ import annotations

from xgw.queries import pages
from xgw.queries.pages import Page, Row, Slice, Sort
from xgw.queries.snapshot import snapshot
from xgw.queries.texts import OF_MESSAGES, bring_back
from xgw.store.database import Store
from xgw.store.models import Message

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
