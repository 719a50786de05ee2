"""The runs of a turn as pages show them: which of them counts, what is seen of it, what is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xgw.agents import lineage
from xgw.queries import wording

Row = Mapping[str, Any]

OPEN = frozenset({"queued", "running", "waiting_tool", "paused"})
KINDS = {"first": "first", "resume": "resumed", "rerun": "run again"}


def counting(runs: Sequence[Row]) -> Row | None:
    """The run whose answer a turn shows: one under way, else as `lineage.shown_run` has it."""
    if not runs:
        return None
    newest = max(runs, key=lambda run: int(run["run_index"]))
    return newest if newest["status"] in OPEN else lineage.shown_run(runs)


def seen_of(
    run: Row, runs: Sequence[Row], messages: Sequence[Row], steps: Sequence[Row]
) -> tuple[list[Row], list[Row]]:
    """What a turn's run shows of the turn's messages and steps: its own, and what it took over.

    A resumed run goes on with everything of the one before it; one that repeats another has that
    one's up to where it begins.
    """
    if len(runs) < 2:
        return list(messages), list(steps)
    ancestry = lineage.ancestry_of(run, runs)
    own = lineage.resumed_in(ancestry)
    ids = {one["id"] for one in own}
    said = [message for message in messages if message["run_id"] in ids]
    done = [step for step in steps if step["run_id"] in ids]
    before = ancestry[: -len(own)]
    if not before:
        return said, done
    upto = (own[0]["metadata"] or {}).get("kept_upto", -1)
    earlier_said, earlier_done = seen_of(before[-1], runs, messages, steps)
    asks = any(message["role"] == "user" for message in said)
    kept = [
        message
        for message in earlier_said
        if message["message_index"] <= upto and not (asks and message["role"] == "user")
    ]
    brought = {message["step_id"] for message in kept}
    ends = max((n for n, step in enumerate(earlier_done, 1) if step["id"] in brought), default=0)
    return [*kept, *said], [*earlier_done[:ends], *done]


def seen_in(
    runs: Mapping[str, Sequence[Row]], messages: Sequence[Row], steps: Sequence[Row]
) -> tuple[list[Row], list[Row]]:
    """What several turns show, of the run that counts of each; `runs` by the turn's id."""
    several = {turn_id: found for turn_id, found in runs.items() if len(found) > 1}
    said = [message for message in messages if message["turn_id"] not in several]
    done = [step for step in steps if step["turn_id"] not in several]
    for turn_id, found in several.items():
        run = counting(found)
        assert run is not None
        more_said, more_done = seen_of(
            run,
            found,
            [message for message in messages if message["turn_id"] == turn_id],
            [step for step in steps if step["turn_id"] == turn_id],
        )
        said += more_said
        done += more_done
    return said, done


def steps_in_order(runs: Iterable[Row]) -> list[Row]:
    """The steps of all runs, those of an earlier run first."""
    return [step for run in runs for step in run["steps"]]


def changed_words(run: Row, runs: Sequence[Row]) -> str:
    """What a run of an agent has that the others have not: what it goes on from, its overrides."""
    by_id = {one["id"]: one for one in runs}
    before = by_id.get(run.get("from_run_id") or "")
    told = []
    if before is not None:
        word = "Goes on from" if run["kind"] == "resume" else "Repeats"
        told.append(f"{word} run {before['run_index'] + 1}")
    if run.get("from_step_id"):
        step = next((s for s in steps_in_order(runs) if s["id"] == run["from_step_id"]), None)
        told.append(f"from step {step['step_index'] + 1}" if step else "from one of its steps")
    return wording.joined(*told, *_overrides(run.get("overrides") or {}, run["kind"]))


def _overrides(given: Mapping[str, Any], kind: str) -> list[str]:
    told = []
    if given.get("model"):
        told.append(f"model {given['model']}")
    if given.get("parameters"):
        told.append(f"parameters {wording.json_words(given['parameters'])}")
    if given.get("instructions") is not None:
        told.append("other instructions")
    if kind == "rerun":
        again = given.get("reuse") == "none"
        told.append("tools run anew" if again else "results of tools reused")
    return told
