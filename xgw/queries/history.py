"""What the page of a session shows: some turns that follow on one another, and what was said."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import peewee
from peewee import fn

from xgw.queries import lines, pages, runs
from xgw.queries.agents import open_in
from xgw.queries.cuts import cut_columns
from xgw.queries.pages import Page, Row, Slice
from xgw.queries.payloads import decoded
from xgw.queries.snapshot import snapshot
from xgw.queries.spelled import Brought, SelectByIds
from xgw.queries.texts import OF_MESSAGES, bring_back, take_text, with_text
from xgw.queries.turns import BY_INDEX
from xgw.store.database import Store
from xgw.store.models import Message, Turn

MOST_MESSAGES = 500


@dataclass(frozen=True, slots=True)
class Window:
    """Turns as `lines`, the newest first, their messages in order, their steps by their start.

    `older` and `newer` are the cursors of the pages (`desc`, `asc`) on either side, None at the
    ends. `left_out`: these turns have more messages than MOST_MESSAGES or more steps than
    `runs.MOST_STEPS`, and the earliest ones are not here.
    Of messages `content`, `parts` and `tool_calls` are cut, see `cuts`; a step under way has
    `partial_output`. `runs` are the light runs of these turns, those of one in order.

    `waiting` are an agent's turns in this session that are open, as lines in order. `chosen` is the
    turn that is looked at closely, with its `runs` and their `steps` in order, None before the
    first; `config` is what its `config_snapshot` says, None where there is none (any more).
    """

    turns: list[Row] = field(default_factory=list)
    messages: list[Row] = field(default_factory=list)
    steps: list[Row] = field(default_factory=list)
    runs: Mapping[str, list[Row]] = field(default_factory=dict)
    older: str | None = None
    newer: str | None = None
    left_out: bool = False
    waiting: list[Row] = field(default_factory=list)
    chosen: Row | None = None
    config: Any = None


def list_lines(store: Store, session_id: str, page: Page) -> Slice:
    """The turns of a session by their index, as lines: one statement."""
    return lines.fetch(store, [Turn.session_id == session_id], BY_INDEX, page)


def find_lines(store: Store, turn_ids: Collection[str]) -> list[Row]:
    """These turns as lines, in the order of their index: one statement."""
    these = Page(len(turn_ids), None, "asc")
    return lines.fetch(store, [Turn.id.in_(list(turn_ids))], BY_INDEX, these).rows


def read(store: Store, session_id: str, page: Page, turn_id: str = "") -> Window:
    """A page of turns and what was said in them: three statements.

    `turn_id` is the one to look at closely; without it, it is the one that began last. One more
    statement where it has more steps than are shown. Raises ApiError 400 `invalid_cursor`.
    """
    with snapshot(store):
        found, waiting = lines.fetch_beside(
            store, [Turn.session_id == session_id], open_in(session_id), BY_INDEX, page
        )
        if page.order == "asc":
            found.rows.reverse()
        else:
            waiting.reverse()
        has_older = page.order == "asc" or found.has_more
        return _window(store, found.rows, waiting, turn_id, has_older=has_older)


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
        found, waiting = lines.fetch_beside(
            store, inside, open_in(session_id), BY_INDEX, Page(limit)
        )
        return _window(store, found.rows, waiting[::-1], turn_id, has_older=found.has_more)


# -- what was said and done ------------------------------------------------------------------------


def said_before_turns(store: Store, session_id: str) -> tuple[list[Row], bool]:
    """The first MOST_MESSAGES that belong to no turn, in order, cut, and whether there are more.

    They are from an older store; a backfill gives them their turns. One statement, one more where
    parts are long.
    """
    query = Message.select().where(Message.session_id == session_id, Message.turn_id.is_null())
    first = query.order_by(Message.message_index).limit(MOST_MESSAGES + 1)
    with snapshot(store):
        found = store.fetch(with_text(first, Message.content))
        rows = found[:MOST_MESSAGES]
        take_text(rows, "content")
        bring_back(store, rows, ("parts",))
    for row in rows:
        cut_columns(row, ("content", "parts", "tool_calls"))
    return rows, len(found) > MOST_MESSAGES


def said_in(store: Store, turn_ids: list[str]) -> tuple[list[Row], bool]:
    """The newest MOST_MESSAGES of these turns in order, cut, and whether there are more of them.

    One statement.
    """
    rows, more, _ = said_beside(store, turn_ids, ())
    return rows, more


def said_beside(
    store: Store, turn_ids: list[str], keys: Collection[str]
) -> tuple[list[Row], bool, Brought]:
    """The same, and the bodies with these hashes, in no more statements."""
    found, bodies = _MESSAGES.fetch_whole(store, turn_ids, texts=OF_MESSAGES, keys=keys)
    found.sort(key=lambda row: int(row["message_index"]))
    rows = found[-MOST_MESSAGES:]
    for row in rows:
        cut_columns(row, ("content", "parts", "tool_calls"))
    return rows, len(found) > MOST_MESSAGES, bodies


def _messages(turn_ids: Sequence[str]) -> peewee.ModelSelect[Message]:
    query = Message.select().where(Message.turn_id.in_(turn_ids))
    return query.order_by(Message.message_index.desc()).limit(MOST_MESSAGES + 1)


_MESSAGES = SelectByIds(_messages)


def _window(
    store: Store, turns: list[Row], waiting: list[Row], turn_id: str, *, has_older: bool
) -> Window:
    if not turns:
        return Window(waiting=waiting)
    ids = [row["id"] for row in turns]
    chosen = next((row for row in turns if row["id"] == turn_id), None) or _newest(turns)
    config: str | None = chosen["config_snapshot"]
    begun, steps, more_done = runs.newest_steps(store, ids, chosen)
    done = runs.of_turn_closely(store, chosen) if more_done else _own(chosen, begun, steps)
    keys = runs.told_of(steps) | ({config} if config else set())
    messages, more_said, bodies = said_beside(store, ids, keys)
    runs.with_told(steps, bodies)
    has_newer = turns[0]["turn_index"] < turns[0]["last_index"]
    return Window(
        turns,
        messages,
        steps,
        _by_turn(begun),
        pages.cursor_at(BY_INDEX, turns[-1]) if has_older else None,
        pages.cursor_at(BY_INDEX, turns[0]) if has_newer else None,
        more_said or more_done,
        waiting,
        _closely(chosen, done),
        decoded(bodies[config][0]) if config and config in bodies else None,
    )


def _newest(turns: Sequence[Row]) -> Row:
    """The turn that began last; before any has, the first that waits."""
    return next((turn for turn in turns if turn["state"] != "queued"), turns[-1])


def _own(turn: Row, begun: Mapping[str, Row], steps: Iterable[Row]) -> list[Row]:
    own = {id: run for id, run in begun.items() if run["turn_id"] == turn["id"]}
    return runs.together(own, [step for step in steps if step["turn_id"] == turn["id"]])


def _by_turn(begun: Mapping[str, Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for run in sorted(begun.values(), key=lambda row: int(row["run_index"])):
        found.setdefault(run["turn_id"], []).append(run)
    return found


def _closely(line: Row, done: list[Row]) -> Row:
    return {**line, "error_message": line["whole_error"], "runs": done}
