"""Reading runs with their steps."""

from __future__ import annotations

from xgw.queries.pages import Row
from xgw.queries.snapshot import snapshot
from xgw.store.database import Store
from xgw.store.models import Run, Step, Turn


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
