"""Messages whose text is too long for a page."""

from __future__ import annotations

from flask import Blueprint, Response

from xgw import errors
from xgw.queries.messages import find_message
from xgw.web import words
from xgw.web.pages import frame

routes = Blueprint("messages", __name__)


@routes.get("/ui/messages/<message_id>")
def show_message(message_id: str) -> Response:
    """GET /ui/messages/ID: the whole of what it says, as plain text"""
    row = find_message(frame.services().store, message_id)
    if row is None:
        raise errors.not_found(
            f"there is no message {message_id[:256]!r}", code="message_not_found"
        )
    parts = [row["content"], *(words.json_text(row[n]) for n in ("parts", "tool_calls") if row[n])]
    return frame.plain_text("\n\n".join(part for part in parts if part))
