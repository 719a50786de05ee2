"""Calls that end without their tool being run: a person decided so, or an earlier run has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from xgw.agents.tools import Outcome
from xgw.frozen import changed
from xgw.recording.pending import Decision, PendingCall
from xgw.values import ToolCall


@dataclass(frozen=True, slots=True)
class Recorded:
    """A successful call of an earlier run; `arguments` are as its model sent them."""

    step_id: str
    name: str
    arguments: str
    text: str


class Results:
    """The results of an earlier run, each to be taken once, in their order."""

    def __init__(self, recorded: Iterable[Recorded] = ()) -> None:
        self._left: dict[tuple[str, str], list[Recorded]] = {}
        for one in recorded:
            self._left.setdefault(_key(one.name, one.arguments), []).append(one)

    def take(self, call: ToolCall, arguments: str) -> Recorded | None:
        """The result of the same call, if there is one left; `arguments` as they are recorded."""
        left = self._left.get(_key(call.name or "", arguments))
        return left.pop(0) if left and not call.incomplete else None


def as_decided(one: PendingCall) -> ToolCall:
    """The call as it is to be run: a person may have changed its arguments."""
    arguments = one.decision.arguments if one.decision is not None else None
    if arguments is None:
        return one.call
    return changed(one.call, arguments=arguments, arguments_json_valid=True, incomplete=False)


def outcome_of(position: int, decision: Decision | None) -> Outcome | None:
    """How a person has the call end; None if it is to be run."""
    if decision is None or decision.verdict == "approve":
        return None
    if decision.verdict == "result":
        return Outcome(position, decision.result or "", None, 0)
    what = "was interrupted, and its outcome is not known" if decision.was_unknown else "was denied"
    error = f"the call {what}{f': {decision.reason}' if decision.reason else ''}"
    return Outcome(position, f"Error: {error}", error, 0)


def notes_of(decision: Decision | None, reused: Recorded | None) -> dict[str, Any] | None:
    """What the step's metadata tells of that."""
    if reused is not None:
        return {"reused_step_id": reused.step_id}
    if decision is None:
        return None
    kept = {name: value for name, value in decision.to_json().items() if name != "result"}
    return {"decision": kept}


def _key(name: str, arguments: str) -> tuple[str, str]:
    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return name, arguments
    return name, orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
