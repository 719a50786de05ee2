"""One turn as its panel shows it: how it stands, its runs and steps, the configuration it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import peewee
from peewee import fn

from xgw.queries import messages, runs
from xgw.queries.lines import CHARACTERS
from xgw.queries.pages import Row
from xgw.queries.payloads import decoded, find_bodies
from xgw.queries.snapshot import snapshot
from xgw.queries.spelled import SelectByIds
from xgw.queries.texts import take_text, with_text
from xgw.store.database import Store
from xgw.store.models import Event, Turn


@dataclass(frozen=True, slots=True)
class Panel:
    """A turn without what it answered, `user_input` cut short, with `runs` as light ones, of an
    agent with all that these keep.

    `config` is what its `config_snapshot` says, None where there is none (any more); `messages` are
    as `messages.shown_of_turn` has them, where they were asked for. `newest` is the `seq` of the
    newest event at that moment.
    """

    turn: Row
    config: Any
    newest: int
    messages: list[Row] = field(default_factory=list)


def find(store: Store, turn_id: str) -> Panel | None:
    """The panel of a turn: two statements, of an agent three, one more with a configuration."""
    with snapshot(store):
        turn = _find(store, turn_id)
        if turn is None:
            return None
        key = turn["config_snapshot"]
        bodies = find_bodies(store, [key]) if key else {}
    return Panel(turn, decoded(bodies[key]) if key in bodies else None, turn.pop("newest"))


def find_whole(store: Store, turn_id: str) -> Panel | None:
    """The same with its messages: three statements, of an agent four, one more where a
    configuration or long parts are read."""
    with snapshot(store):
        turn = _find(store, turn_id)
        if turn is None:
            return None
        key = turn["config_snapshot"]
        said, bodies = messages.shown_beside(store, turn_id, [key] if key else [])
    config = decoded(bodies[key]) if key in bodies else None
    return Panel(turn, config, turn.pop("newest"), said)


def _find(store: Store, turn_id: str) -> Row | None:
    rows = _TURN.fetch(store, [turn_id])
    if not rows:
        return None
    take_text(rows, "user_input")
    [turn] = rows
    if turn["user_input"] is not None:
        turn["user_input"] = turn["user_input"][:CHARACTERS]
    turn["runs"] = runs.with_kept(store, turn, runs.light_of_turn(store, turn_id))
    return turn


def _turn(ids: Sequence[str]) -> peewee.ModelSelect[Turn]:
    newest = Event.select(fn.COALESCE(fn.MAX(Event.seq), 0)).alias("newest")
    columns = [f for f in Turn._meta.sorted_fields if f is not Turn.final_output]
    query = Turn.select(*columns, newest).where(Turn.id.in_(ids))
    return with_text(query, Turn.user_input)


_TURN = SelectByIds(_turn)
