"""Reading runs with their steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import peewee
from peewee import JOIN, fn

from xgw.queries.cuts import MOST
from xgw.queries.pages import Row
from xgw.queries.payloads import decoded
from xgw.queries.snapshot import snapshot
from xgw.queries.spelled import Brought, SelectByIds
from xgw.store.database import Store
from xgw.store.models import Run, Step, Turn

MOST_STEPS = 2000
COMPACTION = "compaction"
"""The name of the steps that compact a context."""

_HEAVY_OF_STEP = frozenset(
    {"input_payload", "output_payload", "partial_output", "tool_calls", "usage_raw", "metadata"}
)
STEP_COLUMNS = [f for f in Step._meta.sorted_fields if f.name not in _HEAVY_OF_STEP]
"""Of a step what a line needs: nothing whose size has no bound."""

_OF_RUN, _KEPT, _IS_KEPT = "of_run_", "kept_", "is_kept"
_RUN_COLUMNS = (
    Run.id,
    Run.turn_id,
    Run.run_index,
    Run.status,
    Run.kind,
    Run.from_run_id,
    Run.metadata,
)
_LIGHT_OF_RUN = frozenset(column.name for column in _RUN_COLUMNS)
_MORE_OF_RUN = [f for f in Run._meta.sorted_fields if f.name not in _LIGHT_OF_RUN]


def of_turn(store: Store, turn_id: str) -> list[Row]:
    """The runs of a turn in order, each with its `steps` in order: two statements."""
    runs = store.fetch(Run.select().where(Run.turn_id == turn_id).order_by(Run.run_index))
    # Only the index on turns and times reads all runs' steps at once; few, so sorting is cheap.
    steps = store.fetch(Step.select().where(Step.turn_id == turn_id).order_by(Step.step_index))
    for run in runs:
        run["steps"] = [step for step in steps if step["run_id"] == run["id"]]
    return runs


def newest_of_turn(store: Store, turn_id: str) -> Row | None:
    """The newest run of a turn, without its steps."""
    return store.fetch_one(
        Run.select().where(Run.turn_id == turn_id).order_by(Run.run_index.desc())
    )


def find_run(store: Store, run_id: str, project: str | None = None) -> Row | None:
    """One run with its `steps`."""
    query = Run.select().where(Run.id == run_id)
    if project is not None:
        query = query.join(Turn, on=(Turn.id == Run.turn_id)).where(Turn.project_id == project)
    with snapshot(store):
        run = store.fetch_one(query)
        if run is not None:
            steps = Step.select().where(Step.run_id == run_id).order_by(Step.step_index)
            run["steps"] = store.fetch(steps)
    return run


def find_open(store: Store, run_id: str, project: str | None = None) -> Row | None:
    """One run without its steps."""
    query = Run.select().where(Run.id == run_id)
    if project is not None:
        query = query.join(Turn, on=(Turn.id == Run.turn_id)).where(Turn.project_id == project)
    return store.fetch_one(query)


def of_turns_with_several(store: Store, session_id: str) -> list[Row]:
    """The runs of those turns of a session that have more than one."""
    later = (
        Run.select(Run.turn_id)
        .join(Turn, on=(Turn.id == Run.turn_id))
        .where(Turn.session_id == session_id, Run.run_index > 0)
    )
    return store.fetch(Run.select().where(Run.turn_id.in_(later)).order_by(Run.run_index))


# -- light ones, with their steps in one statement ----------------------------------------------


def newest_steps(
    store: Store, turn_ids: Sequence[str], closely: Row | None = None
) -> tuple[dict[str, Row], list[Row], bool]:
    """Runs of these turns by id, their newest MOST_STEPS steps by the start, and if there are more.

    One statement. Runs are light and have no steps, but those of the turn `closely`, if it is an
    agent's, have all of their columns, unless there are more steps; a step is light, one under way
    has `partial_output`, a compaction the hash of what it tells (`told`).
    """
    runs, steps = _parted(_NEWEST.fetch(store, [_kept_of(closely), *turn_ids]))
    return runs, steps[MOST_STEPS - 1 :: -1], len(steps) > MOST_STEPS


def of_turn_closely(store: Store, turn: Row) -> list[Row]:
    """The runs of a turn in order, of an agent's with all columns, else light, each with all of
    its `steps`: one statement.

    A step has `metadata` beside its light columns, one under way `partial_output`, a compaction
    the hash of what it tells (`told`).
    """
    return together(*_parted(_ALL.fetch(store, [_kept_of(turn), turn["id"]])))


def _kept_of(turn: Row | None) -> str:
    """The turn if what its runs keep is to be read; an agent's do: checkpoints and plans."""
    if turn is None or turn["endpoint"] is not None or turn["agent_name"] is None:
        return ""
    return str(turn["id"])


def told_of(steps: Iterable[Row]) -> set[str]:
    """The hashes of what the compactions among light steps tell."""
    return {step["told"] for step in steps if step["told"]}


def with_told(steps: Iterable[Row], bodies: Brought) -> None:
    """Give each compaction among light steps what it tells, `told`; None where that is unknown."""
    for step in steps:
        if step["name"] == COMPACTION:
            body, _ = bodies.get(step["told"] or "", (b"null", []))
            found = decoded(body)
            step["told"] = found if isinstance(found, dict) else None


def together(runs: Mapping[str, Row], steps: Iterable[Row]) -> list[Row]:
    """Runs in order, each with its steps in order."""
    for run in runs.values():
        run["steps"] = []
    for step in sorted(steps, key=lambda row: int(row["step_index"])):
        runs[step["run_id"]]["steps"].append(step)
    return sorted(runs.values(), key=lambda run: int(run["run_index"]))


def _parted(rows: Iterable[Row]) -> tuple[dict[str, Row], list[Row]]:
    runs: dict[str, Row] = {}
    steps: list[Row] = []
    for row in rows:
        run = {column.name: row.pop(_OF_RUN + column.name) for column in _RUN_COLUMNS}
        kept = {column.name: row.pop(_KEPT + column.name) for column in _MORE_OF_RUN}
        run = runs.setdefault(run["id"], run)
        if row.pop(_IS_KEPT):
            run.update(kept)
        if row["id"] is not None:
            steps.append(row)
    return runs, steps


def _select(ids: Sequence[str], *more: Any) -> peewee.ModelSelect[Run]:
    """A row for each step, and one for each run without any, of all turns but the first.

    What the runs of the first keep comes with the first row of each.
    """
    closely, *turn_ids = ids
    so_far: Any = peewee.Case(
        None, ((Step.status == "running", fn.SUBSTR(Step.partial_output, 1, MOST)),)
    )
    columns = (column.alias(_OF_RUN + column.name) for column in _RUN_COLUMNS)
    told: Any = peewee.Case(None, ((Step.name == COMPACTION, Step.output_payload),))
    shown = (*STEP_COLUMNS, so_far.alias("partial_output"), told.alias("told"))
    kept, earlier = Run.alias(), Step.alias()
    keeping = (getattr(kept, column.name).alias(_KEPT + column.name) for column in _MORE_OF_RUN)
    is_kept = kept.id.is_null(False).alias(_IS_KEPT)
    first = earlier.select(fn.MIN(earlier.step_index)).where(earlier.run_id == Run.id)
    is_first = Step.id.is_null() | (Step.step_index == first)
    query = Run.select(*columns, *shown, *more, is_kept, *keeping)
    query = query.join(Step, JOIN.LEFT_OUTER, on=(Step.run_id == Run.id))
    on = (kept.id == Run.id) & (kept.turn_id == closely) & is_first
    query = query.join(kept, JOIN.LEFT_OUTER, on=on, src=Run)
    return query.where(Run.turn_id.in_(turn_ids))


def _newest(ids: Sequence[str]) -> peewee.ModelSelect[Run]:
    newest = _select(ids).order_by(
        Step.id.is_null().desc(), Step.started_at.desc(), Step.step_index.desc()
    )
    return newest.limit(MOST_STEPS + 1)


def _all(ids: Sequence[str]) -> peewee.ModelSelect[Run]:
    return _select(ids, Step.metadata)


_NEWEST, _ALL = SelectByIds(_newest), SelectByIds(_all)
