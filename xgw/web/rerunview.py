"""The form that runs an agent's turn once more: what stands in it, and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw import spelling
from xgw.queries import wording
from xgw.queries.lines import CHARACTERS
from xgw.web.api import fields
from xgw.web.decisions import Refused
from xgw.web.runview import counting, steps_in_order

Row = Mapping[str, Any]

RERUN = "rerun"
"""What a refused form of this kind is about."""

MOST_EDITED = 100_000
"""Characters of instructions that can be edited on a page; the API takes longer ones."""

MOST_STEPS = 200
"""Steps to begin at that are offered, the first ones; any other has a link on its own page."""


@dataclass(frozen=True, slots=True)
class RerunForm:
    """What stands in the form; a field that is left as it is changes nothing.

    `steps` are the ids and names of those to begin at. `hint` is the beginning of a message that is
    too long to stand there. `words` say why it was not taken, `param` names the field at fault.
    """

    model: str
    instructions: str
    message: str
    hint: str
    steps: tuple[tuple[str, str], ...]
    from_step: str
    reuse: str
    is_open: bool
    words: str
    param: str | None

    def faulty(self, name: str) -> bool:
        """Whether this field is at fault."""
        return self.param == name


def rerun_of(
    turn: Row, runs: Sequence[Row], config: Row, refused: Refused | None, from_step: str
) -> RerunForm | None:
    """The form of a turn, None of one that cannot be run again (now)."""
    if turn["endpoint"] is not None or turn["agent_name"] is None or turn["ended_at"] is None:
        return None
    mine = refused if refused is not None and refused.about == RERUN else None
    given: Mapping[str, str] = mine.given if mine else {}
    known = _as_it_was(turn, runs, config)
    return RerunForm(
        given.get("model", ""),
        given.get("instructions", known["instructions"]),
        given.get("message", known["message"]),
        known["hint"],
        tuple(_steps(runs)),
        given.get("from_step_id", from_step),
        given.get("reuse", "results"),
        mine is not None or bool(from_step),
        mine.words if mine else "",
        mine.param if mine else None,
    )


def read_rerun(
    form: Mapping[str, str], turn: Row, runs: Sequence[Row], config: Row
) -> dict[str, Any]:
    """The fields of `fields.REPEATING` that a form changes; ApiError 422 names the one at fault."""
    given: dict[str, Any] = {}
    known = _as_it_was(turn, runs, config)
    for name in ("instructions", "message"):
        text = form.get(name, "").replace("\r\n", "\n")
        is_given = text.strip() if name == "message" else name in form
        if is_given and text != known[name].replace("\r\n", "\n"):
            given[name] = text
    for name in ("model", "from_step_id", "reuse"):
        if text := form.get(name, "").strip():
            given[name] = text
    return {name: fields.REPEATING[name](name, value) for name, value in given.items()}


def _as_it_was(turn: Row, runs: Sequence[Row], config: Row) -> dict[str, str]:
    """The instructions and the message that it ran with, where they can stand in a field."""
    run = counting(runs) or {}
    overridden = (run.get("overrides") or {}).get("instructions")
    instructions = str(config.get("instructions") or "") if overridden is None else overridden
    message = turn["user_input"] or ""
    is_whole = len(message) < CHARACTERS
    return {
        "instructions": instructions if len(instructions) <= MOST_EDITED else "",
        "message": message if is_whole else "",
        "hint": "" if is_whole else message,
    }


def _steps(runs: Sequence[Row]) -> list[tuple[str, str]]:
    steps = steps_in_order(runs)
    calls = {s["id"] for s in steps if s["step_type"] == "llm_call" and not s["parent_step_id"]}
    found = []
    for run in runs:
        for step in run["steps"]:
            if can_begin(step, calls):
                where = f"run {run['run_index'] + 1}, " if len(runs) > 1 else ""
                found.append((step["id"], f"{where}{step_words(step)}"))
    return found[:MOST_STEPS]


def can_begin(step: Row, calls: set[str]) -> bool:
    """Whether a run can begin at a step; `calls` are the model calls of the turn itself."""
    if step["step_type"] == "llm_call":
        return step["id"] in calls and (step["attempt"] or 1) == 1
    return step["tool_call_id"] is not None and step["parent_step_id"] in calls


def step_words(step: Row) -> str:
    """A step as a list names it."""
    name = step["name"] or step["model"] or spelling.UNKNOWN
    return wording.joined(f"step {step['step_index'] + 1}", f"{step['step_type']} {name}")
