"""What the page of a session shows: some turns that follow on one another, and what was said."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import peewee
from peewee import fn

from xgw.queries import lines, pages
from xgw.queries.cuts import MOST, cut_columns
from xgw.queries.pages import Page, Row, Slice
from xgw.queries.snapshot import snapshot
from xgw.queries.spelled import SelectByIds
from xgw.queries.texts import bring_back, take_text, with_text
from xgw.queries.turns import BY_INDEX
from xgw.store.database import Store
from xgw.store.models import Message, Step, Turn

MOST_MESSAGES = 500
MOST_STEPS = 2000

_HEAVY_OF_STEP = frozenset(
    {"input_payload", "output_payload", "partial_output", "tool_calls", "usage_raw", "metadata"}
)
STEP_COLUMNS = [f for f in Step._meta.sorted_fields if f.name not in _HEAVY_OF_STEP]
"""Of a step what a line needs: nothing whose size has no bound."""


@dataclass(frozen=True, slots=True)
class Window:
    """Turns as `lines`, the newest first, their messages in order, their steps by their start.

    `older` and `newer` are the cursors of the pages (`desc`, `asc`) on either side, None at the
    ends. `left_out`: these turns have more messages than MOST_MESSAGES or more steps than
    MOST_STEPS, and the earliest ones are not here.
    Of messages `content`, `parts` and `tool_calls` are cut, see `cuts`; a step under way has
    `partial_output`.
    """

    turns: list[Row] = field(default_factory=list)
    messages: list[Row] = field(default_factory=list)
    steps: list[Row] = field(default_factory=list)
    older: str | None = None
    newer: str | None = None
    left_out: bool = False


def list_lines(store: Store, session_id: str, page: Page) -> Slice:
    """The turns of a session by their index, as lines: one statement."""
    return lines.fetch(store, [Turn.session_id == session_id], BY_INDEX, page)


def find_lines(store: Store, turn_ids: Collection[str]) -> list[Row]:
    """These turns as lines, in the order of their index: one statement."""
    these = Page(len(turn_ids), None, "asc")
    return lines.fetch(store, [Turn.id.in_(list(turn_ids))], BY_INDEX, these).rows


def read(store: Store, session_id: str, page: Page) -> Window:
    """A page of turns and what was said in them: three statements.

    Two more where the parts of messages are long. Raises ApiError 400 `invalid_cursor`.
    """
    with snapshot(store):
        found = list_lines(store, session_id, page)
        turns = found.rows if page.order == "desc" else found.rows[::-1]
        return _window(store, turns, has_older=page.order == "asc" or found.has_more)


def read_around(store: Store, session_id: str, turn_id: str, limit: int) -> Window:
    """The same: `limit` turns with this one in the middle, the newest ones if it is not there."""
    chosen, newest = Turn.alias(), Turn.alias()
    index = chosen.select(chosen.turn_index).where(
        chosen.id == turn_id, chosen.session_id == session_id
    )
    last = newest.select(fn.MAX(newest.turn_index)).where(newest.session_id == session_id)
    upto = fn.COALESCE(index, last) + limit // 2
    with snapshot(store):
        inside = [Turn.session_id == session_id, Turn.turn_index <= upto]
        found = lines.fetch(store, inside, BY_INDEX, Page(limit))
        return _window(store, found.rows, has_older=found.has_more)


# -- what was said and done ------------------------------------------------------------------------


def said_in(store: Store, turn_ids: list[str]) -> tuple[list[Row], bool]:
    """The newest MOST_MESSAGES of these turns in order, cut, and whether there are more of them.

    One statement; two more where parts are long.
    """
    with snapshot(store):
        found = _MESSAGES.fetch(store, turn_ids)
        rows = found[MOST_MESSAGES - 1 :: -1]
        take_text(rows, "content")
        bring_back(store, rows, ("parts",))
    for row in rows:
        cut_columns(row, ("content", "parts", "tool_calls"))
    return rows, len(found) > MOST_MESSAGES


def done_in(store: Store, turn_ids: list[str]) -> tuple[list[Row], bool]:
    """The newest MOST_STEPS of these turns by their start, light, and whether there are more.

    One statement. A step under way has `partial_output`.
    """
    found = _STEPS.fetch(store, turn_ids)
    return found[MOST_STEPS - 1 :: -1], len(found) > MOST_STEPS


def _messages(turn_ids: Sequence[str]) -> peewee.ModelSelect[Message]:
    query = Message.select().where(Message.turn_id.in_(turn_ids))
    newest = query.order_by(Message.message_index.desc()).limit(MOST_MESSAGES + 1)
    return with_text(newest, Message.content)


def _steps(turn_ids: Sequence[str]) -> peewee.ModelSelect[Step]:
    so_far: Any = peewee.Case(
        None, ((Step.status == "running", fn.SUBSTR(Step.partial_output, 1, MOST)),)
    )
    query = Step.select(*STEP_COLUMNS, so_far.alias("partial_output"))
    query = query.where(Step.turn_id.in_(turn_ids))
    newest = query.order_by(Step.started_at.desc(), Step.step_index.desc())
    return newest.limit(MOST_STEPS + 1)


_MESSAGES, _STEPS = SelectByIds(_messages), SelectByIds(_steps)


def _window(store: Store, turns: list[Row], *, has_older: bool) -> Window:
    if not turns:
        return Window()
    ids = [row["id"] for row in turns]
    messages, more_said = said_in(store, ids)
    steps, more_done = done_in(store, ids)
    has_newer = turns[0]["turn_index"] < turns[0]["last_index"]
    return Window(
        turns,
        messages,
        steps,
        pages.cursor_at(BY_INDEX, turns[-1]) if has_older else None,
        pages.cursor_at(BY_INDEX, turns[0]) if has_newer else None,
        more_said or more_done,
    )
