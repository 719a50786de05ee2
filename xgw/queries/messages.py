"""Reading messages, the history as people see it."""

from __future__ import annotations

from xgw.queries import pages
from xgw.queries.pages import Page, Row, Slice, Sort
from xgw.store.database import Store
from xgw.store.models import Message

BY_INDEX = Sort(
    "message_index", Message.message_index, Message.id, lambda row: int(row["message_index"])
)


def list_messages(store: Store, session_id: str, page: Page) -> Slice:
    """The messages of a session by their index in it."""
    inside = Message.session_id == session_id
    return pages.fetch(store, Message.select(), [inside], BY_INDEX, page)


def of_turn(store: Store, turn_id: str) -> list[Row]:
    """All messages of one turn in order."""
    query = Message.select().where(Message.turn_id == turn_id)
    return store.fetch(query.order_by(Message.message_index))
