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
from xgw.queries.payloads import decoded, find_listed
from xgw.queries.snapshot import snapshot
from xgw.queries.spelled import Brought, SelectByIds
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
    """The panel of a turn: two statements, and one more with a configuration."""
    with snapshot(store):
        turn = _find(store, turn_id)
        if turn is None:
            return None
        keys = _keys(turn)
        bodies = find_listed(store, keys) if keys else {}
    return Panel(turn, _config(turn, bodies), turn.pop("newest"))


def find_whole(store: Store, turn_id: str) -> Panel | None:
    """The same with its messages: three statements."""
    with snapshot(store):
        turn = _find(store, turn_id)
        if turn is None:
            return None
        said, bodies = messages.shown_beside(store, turn_id, _keys(turn))
    return Panel(turn, _config(turn, bodies), turn.pop("newest"), said)


def _keys(turn: Row) -> list[str]:
    """The hashes of the bodies that a panel shows."""
    told = runs.told_of(step for run in turn["runs"] for step in run["steps"])
    return [*({turn["config_snapshot"]} - {None}), *told]


def _config(turn: Row, bodies: Brought) -> Any:
    """What the turn's configuration says; its compactions get what they tell."""
    for run in turn["runs"]:
        runs.with_told(run["steps"], bodies)
    key = turn["config_snapshot"]
    return decoded(bodies[key][0]) if key in bodies else None


def _find(store: Store, turn_id: str) -> Row | None:
    rows = _TURN.fetch(store, [turn_id])
    if not rows:
        return None
    take_text(rows, "user_input")
    [turn] = rows
    if turn["user_input"] is not None:
        turn["user_input"] = turn["user_input"][:CHARACTERS]
    turn["runs"] = runs.of_turn_closely(store, turn)
    return turn


def _turn(ids: Sequence[str]) -> peewee.ModelSelect[Turn]:
    newest = Event.select(fn.COALESCE(fn.MAX(Event.seq), 0)).alias("newest")
    columns = [f for f in Turn._meta.sorted_fields if f is not Turn.final_output]
    query = Turn.select(*columns, newest).where(Turn.id.in_(ids))
    return with_text(query, Turn.user_input)


_TURN = SelectByIds(_turn)
