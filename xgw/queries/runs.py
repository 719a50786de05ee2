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
from xgw.queries.spelled import SelectByIds
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

_OF_RUN = "of_run_"
_RUN_COLUMNS = (
    Run.id,
    Run.turn_id,
    Run.run_index,
    Run.status,
    Run.kind,
    Run.from_run_id,
    Run.metadata,
)


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


def newest_steps(store: Store, turn_ids: Sequence[str]) -> tuple[dict[str, Row], list[Row], bool]:
    """Runs of these turns by id, their newest MOST_STEPS steps by the start, and if there are more.

    One statement. Runs are light and have no steps; a step is light, one under way has
    `partial_output`, a compaction the hash of what it tells (`told`).
    """
    runs, steps = _parted(_NEWEST.fetch(store, turn_ids))
    return runs, steps[MOST_STEPS - 1 :: -1], len(steps) > MOST_STEPS


def light_of_turn(store: Store, turn_id: str) -> list[Row]:
    """The runs of a turn, light and in order, each with all of its `steps`: one statement.

    A step has `metadata` beside its light columns, one under way `partial_output`, a compaction
    the hash of what it tells (`told`).
    """
    return together(*_parted(_ALL.fetch(store, [turn_id])))


def with_kept(store: Store, turn: Row, runs: Iterable[Row]) -> list[Row]:
    """Light runs of a turn; of an agent's with all of their columns: one statement, else none."""
    if turn["endpoint"] is not None or turn["agent_name"] is None:
        return list(runs)
    kept = {row["id"]: row for row in store.fetch(Run.select().where(Run.turn_id == turn["id"]))}
    return [{**kept.get(run["id"], {}), **run} for run in runs]


def told_of(steps: Iterable[Row]) -> set[str]:
    """The hashes of what the compactions among light steps tell."""
    return {step["told"] for step in steps if step["told"]}


def with_told(steps: Iterable[Row], bodies: Mapping[str, bytes]) -> None:
    """Give each compaction among light steps what it tells, `told`; None where that is unknown."""
    for step in steps:
        if step["name"] == COMPACTION:
            found = decoded(bodies.get(step["told"] or "", b"null"))
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
        runs.setdefault(run["id"], run)
        if row["id"] is not None:
            steps.append(row)
    return runs, steps


def _select(turn_ids: Sequence[str], *more: Any) -> peewee.ModelSelect[Run]:
    """A row for each step, and one for each run without any."""
    so_far: Any = peewee.Case(
        None, ((Step.status == "running", fn.SUBSTR(Step.partial_output, 1, MOST)),)
    )
    columns = (column.alias(_OF_RUN + column.name) for column in _RUN_COLUMNS)
    told: Any = peewee.Case(None, ((Step.name == COMPACTION, Step.output_payload),))
    shown = (*STEP_COLUMNS, so_far.alias("partial_output"), told.alias("told"))
    query = Run.select(*columns, *shown, *more)
    query = query.join(Step, JOIN.LEFT_OUTER, on=(Step.run_id == Run.id))
    return query.where(Run.turn_id.in_(turn_ids))


def _newest(turn_ids: Sequence[str]) -> peewee.ModelSelect[Run]:
    newest = _select(turn_ids).order_by(
        Step.id.is_null().desc(), Step.started_at.desc(), Step.step_index.desc()
    )
    return newest.limit(MOST_STEPS + 1)


def _all(turn_ids: Sequence[str]) -> peewee.ModelSelect[Run]:
    return _select(turn_ids, Step.metadata)


_NEWEST, _ALL = SelectByIds(_newest), SelectByIds(_all)
