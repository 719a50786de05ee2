"""One turn looked at closely: its runs and steps, what was said, its exchanges with providers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import peewee

from xgw.queries.cuts import cut_columns
from xgw.queries.history import said_in
from xgw.queries.lines import limit_of
from xgw.queries.overview import state_of_turn
from xgw.queries.pages import Row
from xgw.queries.payloads import decoded, find_bodies
from xgw.queries.runs import newest_steps
from xgw.queries.snapshot import snapshot
from xgw.queries.spelled import SelectByIds
from xgw.queries.texts import OF_TURNS
from xgw.store.database import Store
from xgw.store.models import RequestLog, Run, Turn
from xgw.store.rows import key_named

MOST_REQUESTS = 2000

_HEAVY_OF_REQUEST = frozenset(
    {"request_headers", "response_headers", "frames", "error_body", "client", "metadata"}
)
REQUEST_COLUMNS = [f for f in RequestLog._meta.sorted_fields if f.name not in _HEAVY_OF_REQUEST]
"""Of an exchange what a line needs: nothing whose size has no bound."""


@dataclass(frozen=True, slots=True)
class TurnCloseup:
    """A turn with what is in it.

    `turn` has all columns, `runs` in order, each with its `steps` in order (light, see `history`),
    `state` and `limit` as lines have them, and `config`: how it was asked for, None where the store
    has that no more. `requests` are light rows by their start. Texts are cut, see `cuts`;
    `left_out`: of very many messages, steps or requests the earliest are not here.
    """

    turn: Row
    messages: list[Row] = field(default_factory=list)
    requests: list[Row] = field(default_factory=list)
    left_out: bool = False


def find(store: Store, turn_id: str, project: str | None = None) -> TurnCloseup | None:
    """One turn: five statements, one or two more for its texts and configuration."""
    ids = [turn_id]
    with snapshot(store):
        found = [row for row in _TURN.fetch(store, ids) if project in (None, row["project_id"])]
        if not found:
            return None
        [turn] = found
        runs = _RUNS.fetch(store, ids)
        _, steps, more_done = newest_steps(store, ids)
        messages, more_said = said_in(store, ids)
        requests = _REQUESTS.fetch(store, ids)
        _bring_back(store, turn)
    cut_columns(turn, (*OF_TURNS, "config", "metadata"))
    for run in runs:
        of_run = (step for step in steps if step["run_id"] == run["id"])
        run["steps"] = sorted(of_run, key=lambda step: step["step_index"])
    turn["runs"] = runs
    turn["state"] = state_of_turn(turn["status"], runs[-1]["status"] if runs else None)
    turn["limit"] = limit_of(turn)
    more_asked = len(requests) > MOST_REQUESTS
    left_out = more_done or more_said or more_asked
    return TurnCloseup(turn, messages, requests[MOST_REQUESTS - 1 :: -1], left_out)


def _turn(ids: Sequence[str]) -> peewee.ModelSelect[Turn]:
    return Turn.select().where(Turn.id.in_(ids))


def _runs(ids: Sequence[str]) -> peewee.ModelSelect[Run]:
    return Run.select().where(Run.turn_id.in_(ids)).order_by(Run.run_index)


def _requests(ids: Sequence[str]) -> peewee.ModelSelect[RequestLog]:
    query = RequestLog.select(*REQUEST_COLUMNS).where(RequestLog.turn_id.in_(ids))
    newest = query.order_by(RequestLog.started_at.desc(), RequestLog.id.desc())
    return newest.limit(MOST_REQUESTS + 1)


_TURN, _RUNS, _REQUESTS = SelectByIds(_turn), SelectByIds(_runs), SelectByIds(_requests)


def _bring_back(store: Store, turn: Row) -> None:
    """Its texts and its configuration, which are payloads, together."""
    texts = {name: key for name in OF_TURNS if (key := key_named(turn[name])) is not None}
    snapshot_key: str | None = turn["config_snapshot"]
    keys = [*texts.values(), *([snapshot_key] if snapshot_key else [])]
    bodies: dict[str, Any] = find_bodies(store, keys) if keys else {}
    for name, key in texts.items():
        turn[name] = orjson.loads(bodies.get(key, b"null"))
    kept = bodies.get(snapshot_key) if snapshot_key else None
    turn["config"] = None if kept is None else decoded(kept)
