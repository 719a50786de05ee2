"""What a run goes on from: the messages that it has before it, its checkpoint, what it has used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xgw.agents import lineage
from xgw.agents.handed import Handed, Usage, usage_of
from xgw.agents.lineage import Row
from xgw.agents.planner import replay
from xgw.agents.settled import Recorded, Results
from xgw.config import PLANNER
from xgw.queries import messages, payloads, runs
from xgw.queries.nesting import depths_of
from xgw.queries.texts import bring_back
from xgw.recording import checkpoints
from xgw.recording.pending import Checkpoint
from xgw.store.database import Store


@dataclass(frozen=True, slots=True)
class SoFar:
    """Where a run stands as the store has it; `usage` is what it used, with the runs that it
    resumes.

    `said` are the rows of the turn's messages that it has, `handed` has those of other agents.
    `is_apart`: the turn was compacted since it ran, and now runs once more. `plan` is what the run
    keeps of one.
    """

    said: list[Row] = field(default_factory=list)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    text: str | None = None
    usage: Usage = field(default_factory=Usage)
    handed: Handed = field(default_factory=Handed)
    earlier: Results = field(default_factory=Results)
    is_apart: bool = False
    plan: Any = None


def take_up(store: Store, turn_id: str, run_id: str) -> SoFar:
    """How far a run of a turn has come; LookupError if it is gone."""
    known = runs.of_turn(store, turn_id)
    run = next((one for one in known if one["id"] == run_id), None)
    if run is None:
        raise LookupError(run_id)
    ancestry = lineage.ancestry_of(run, known)
    of_turn = messages.of_turn(store, turn_id)
    said = lineage.said_in(of_turn, ancestry)
    checkpoint = read_checkpoint(store, run)
    own = lineage.resumed_in(ancestry)
    steps = [step for one in own for step in one["steps"]]
    return SoFar(
        said=said,
        checkpoint=checkpoint,
        text=next((m["content"] for m in said[::-1] if m["role"] == "assistant"), None),
        usage=usage_of(steps),
        handed=Handed(store, of_turn, steps),
        earlier=_earlier_results(store, own[0], ancestry),
        is_apart=own[0]["kind"] == "rerun" and any(m["compacted_by_step_id"] for m in of_turn),
        plan=run["planner_state"] or plan_in(said),
    )


def read_checkpoint(store: Store, run: Row) -> Checkpoint:
    """The checkpoint of a run's row."""
    kept = run["checkpoint"] or {}
    results = [{"result": one.get("result")} for one in checkpoints.entries_of(kept)]
    bring_back(store, results, ("result",))
    return checkpoints.parse(kept, [one["result"] for one in results])


def plan_in(said: Iterable[Row]) -> Any:
    """The plan that was made in these messages; None without one."""
    calls = [call for row in said for call in row["tool_calls"] or ()]
    functions = (call.get("function") or {} for call in calls)
    return replay(f.get("arguments") or "" for f in functions if f.get("name") == PLANNER)


def _earlier_results(store: Store, begun: Row, ancestry: Sequence[Row]) -> Results:
    """What the runs before a re-run got from tools, if it is to take that."""
    if (begun["overrides"] or {}).get("reuse") != "results":
        return Results()
    before = ancestry[: ancestry.index(begun)]
    own = [step for run in before for step in _own(run["steps"])]
    return Results(_recorded(store, own))


def _own(steps: Sequence[Row]) -> Iterable[Row]:
    """The steps of a run without those of other agents that tasks were handed over to."""
    depths = depths_of(steps)
    return (step for step in steps if depths[step["id"]] <= 1)


def _recorded(store: Store, steps: Sequence[Row]) -> Iterable[Recorded]:
    calls = [
        step
        for step in steps
        if step["step_type"] not in ("llm_call", "memory_write", "planner")
        and step["tool_call_id"] is not None
        and step["status"] == "success"
        and step["output_payload"] is not None
    ]
    texts = payloads.find_bodies(store, {step["output_payload"] for step in calls})
    for step in calls:
        text = texts.get(step["output_payload"])
        if text is not None:
            arguments = (step["metadata"] or {}).get("arguments") or ""
            yield Recorded(step["id"], step["name"] or "", arguments, text.decode())
