"""Calls that wait for a person, as pages show them, and what a form says about one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from xgw.errors import unprocessable
from xgw.queries.cuts import cut_text
from xgw.recording.pending import UNDECIDED
from xgw.web import words
from xgw.web.api import fields
from xgw.web.unseen import spelled_json

Row = Mapping[str, Any]

MOST_EDITED = 100_000
"""Characters of arguments that can be edited on a page; the API takes longer ones."""

_FIELDS = {"approve": "arguments", "deny": "reason", "result": "result"}


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call of an agent's answer that has no result yet.

    `step_id` is that answer's step, `agent_name` of whom a task was handed over to, None of the
    turn's own. `state` is as checkpoints have it; `decided` says what was decided and by whom, ""
    before that.
    """

    id: str
    step_id: str
    agent_name: str | None
    name: str
    arguments: str
    state: str
    decided: str
    is_editable: bool

    @property
    def key(self) -> str:
        """What tells it from all others that wait: the calls of two agents may have one id."""
        return f"{self.step_id}/{self.id}"

    @property
    def waits(self) -> bool:
        """Whether a person is to decide about it."""
        return self.state in UNDECIDED


@dataclass(frozen=True, slots=True)
class Refused:
    """A form that was not taken: what it was about, the field at fault, why, what was written."""

    about: str
    param: str | None
    words: str
    given: Mapping[str, str]


def asked_calls(run: Row | None) -> tuple[AskedCall, ...]:
    """The calls of a run that waits for a person, in their order; () of any other run."""
    if run is None or run["status"] != "waiting_tool":
        return ()
    return tuple(_calls(run.get("checkpoint") or {}, None))


def _calls(node: Row, agent_name: str | None) -> Iterator[AskedCall]:
    """Those of a task that was handed over come in the place of the call that did it."""
    for one in node.get("pending_tool_calls") or ():
        task = one.get("task") or {}
        if task.get("pending_tool_calls"):
            yield from _calls(task, task["agent_name"])
        else:
            yield _call(one, node.get("step_id") or "", agent_name)


def _call(one: Row, step_id: str, agent_name: str | None) -> AskedCall:
    arguments = words.set_out(one["arguments"] or "{}")
    is_editable = len(arguments) <= MOST_EDITED
    return AskedCall(
        one["tool_call_id"] or "",
        step_id,
        agent_name,
        one["name"] or "",
        arguments if is_editable else cut_text(arguments)[0],
        one["state"],
        words.decided_words(one.get("decision")),
        is_editable,
    )


def too_late(call_id: str, run: Row | None, steps: Iterable[Row]) -> str:
    """Why a decision about this call comes too late: what was decided, as far as that is kept."""
    known = [(call.name, call.decided) for call in asked_calls(run) if call.id == call_id]
    known += [
        (step["name"], words.decided_words((step.get("metadata") or {}).get("decision")))
        for step in steps
        if step["tool_call_id"] == call_id
    ]
    told = (f"{name or call_id} was {decided}" for name, decided in known if decided)
    return next((f"it was decided already: {words}" for words in told), "")


def read_decision(form: Mapping[str, str], call: AskedCall | None) -> dict[str, Any]:
    """The fields of `fields.DECIDING` that a form has; ApiError 422 names the one at fault.

    `call` is the one that it is about: its arguments are those of the model unless they were
    changed.
    """
    verdict = form.get("decision", "")
    given: dict[str, Any] = {
        "tool_call_id": form.get("tool_call_id", ""),
        "decision": fields.DECIDING["decision"]("decision", verdict),
        "step_id": form.get("step_id") or None,
    }
    name = _FIELDS[verdict]
    text = _lines(form.get(name, ""))
    if verdict == "approve" and text and (call is None or text != _editable(call.arguments)):
        given["arguments"] = _object(text)
    if verdict == "deny" and text.strip():
        given["reason"] = text.strip()
    if verdict == "result":
        given["result"] = text
    return given


def _editable(arguments: str) -> str:
    """They as a form gives them back that nobody has touched."""
    return _lines(spelled_json(arguments))


def _lines(text: str) -> str:
    """A text as a field of a form has it, whose lines end in one way only."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _object(text: str) -> Any:
    try:
        return fields.arguments("arguments", orjson.loads(text))
    except orjson.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        told = f"the arguments are no JSON: {error.msg} ({place})"
        raise unprocessable(told, param="arguments") from None
