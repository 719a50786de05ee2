"""One step looked at closely: where it stands, its attempts, what it sent and received."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import peewee
from peewee import fn

from xgw.queries import attempts
from xgw.queries.cuts import MOST, cut_columns, cut_json, cut_text
from xgw.queries.lines import CHARACTERS
from xgw.queries.pages import Row
from xgw.queries.payloads import decoded
from xgw.queries.runs import STEP_COLUMNS
from xgw.queries.snapshot import snapshot
from xgw.queries.spelled import Brought, SelectByIds
from xgw.store.database import Store
from xgw.store.models import Event, Run, Step, Turn
from xgw.store.rows import PRUNED

MOST_ATTEMPTS = 50
"""As many steps before and after this one are looked at for attempts of its call."""

_OF_STEP = ("partial_output", "tool_calls", "usage_raw", "metadata")

Choose = Callable[[int], range]
"""Which of so many messages are asked for, by their indexes in order."""

CountTokens = Callable[[Any], int | None]
"""Tokens of one message as it was sent; None where they cannot be told (yet)."""


@dataclass(frozen=True, slots=True)
class StepCloseup:
    """A step with what is around it.

    `step` has all columns, and of its turn `user_input` (cut short), `turn_index`, `turn_status`,
    `agent_name` and `run_index`; `is_agents` is 1 where an agent runs the turn, `handoff_id` the
    step that handed the task over which it was done for. `attempts` are
    those of its call in order, itself among them, as light rows. The ids are of neighbours in the
    turn. `newest` is the `seq` of the newest event at that moment, `brought` are the bodies that
    were asked for, as far as the store has them.
    """

    step: Row
    attempts: list[Row] = field(default_factory=list)
    previous_id: str | None = None
    next_id: str | None = None
    previous_failed_id: str | None = None
    next_failed_id: str | None = None
    newest: int = 0
    brought: Brought = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Body:
    """A JSON value or a text; `size` is its own in bytes, before it was cut."""

    value: Any
    size: int
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class SentMessage:
    """One message of a request, None where there was no room for it; `size` in bytes, whole."""

    index: int
    value: Any
    size: int
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Measure:
    """Of a message, shown or not: whose it is, and its tokens."""

    role: str | None
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Sent:
    """A request: `messages` as many as were asked for, `measures` of all that were sent.

    `parameters` are all fields but messages and tools. A body that is no JSON object is `other`.
    """

    size: int
    messages: list[SentMessage] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    tools: Body | None = None
    parameters: Body | None = None
    other: Body | None = None


@dataclass(frozen=True, slots=True)
class Bodies:
    """What a step sent and received; None where there is nothing or the store has it no more."""

    sent: Sent | None = None
    received: Body | None = None


def find(
    store: Store, step_id: str, project: str | None = None, *, bodies: Collection[str] = ()
) -> StepCloseup | None:
    """One step: two statements, one where it is no model call.

    `bodies` are the columns whose bodies come with it: `input_payload`, of all but model calls
    `tool_input`, `output_payload`.
    """
    with snapshot(store):
        rows, brought = _STEP.fetch_whole(store, [step_id], texts=("user_input",), hashes=bodies)
        if not rows or project not in (None, rows[0]["project_id"]):
            return None
        [step] = rows
        del step["project_id"], step["tool_input"]
        if step["user_input"] is not None:
            step["user_input"] = step["user_input"][:CHARACTERS]
        neighbours = {name: step.pop(name) for name in _NEIGHBOURS}
        tried = store.fetch(_near(step)) if step["step_type"] == "llm_call" else []
    cut_columns(step, _OF_STEP)
    tries = attempts.of_same_call(step_id, tried)
    newest = step.pop("newest")
    return StepCloseup(step, tries, **neighbours, newest=newest, brought=brought)


def bodies_of(
    step: Row, brought: Brought, count: CountTokens | None = None, part: Choose = range
) -> Bodies:
    """What was sent and received, as far as it was brought, cut at 256 KiB each.

    `count` tells each message's tokens; only the messages that `part` chooses are here.
    """
    sent, received = step["input_payload"], step["output_payload"]
    return Bodies(
        _sent(brought[sent][0], count, part) if sent in brought else None,
        _body(decoded(brought[received][0]), MOST) if received in brought else None,
    )


def sent_by(
    brought: Brought, count: CountTokens | None = None
) -> dict[str, tuple[Sent, list[str]]]:
    """What requests sent, by the hashes of their bodies.

    Each with the hashes of its messages, for `steps.compare`; [] where it has no list of them.
    """
    return {key: (_sent(body, count, range), listed) for key, (body, listed) in brought.items()}


# -- the statements --------------------------------------------------------------------------------

_NEAREST = (
    # In the same run, else in the nearest run of the turn that has such a step. Written out: peewee
    # takes milliseconds to spell it.
    "COALESCE((SELECT s.id FROM steps AS one JOIN steps AS s ON s.run_id = one.run_id"
    " WHERE one.id = ? AND s.step_index {than} one.step_index{failed}"
    " ORDER BY s.step_index {order} LIMIT 1),"
    " (SELECT s.id FROM steps AS one JOIN runs AS mine ON mine.id = one.run_id"
    " JOIN runs AS r ON r.turn_id = one.turn_id JOIN steps AS s ON s.run_id = r.id"
    " WHERE one.id = ? AND r.run_index {than} mine.run_index{failed}"
    " ORDER BY r.run_index {order}, s.step_index {order} LIMIT 1))"
)
# How large a body was that was pruned; null for one that is there.
_PRUNED = (
    "(SELECT size FROM payloads AS gone JOIN steps AS one ON one.id = ?"
    f" WHERE gone.hash = packed_hash(COALESCE(one.{{column}}, '')) AND gone.codec = '{PRUNED}')"
)
_HANDOFF = (
    # What it was done for is above it; of a tool that is the call which asked for it.
    "SELECT above.id FROM steps AS one"
    " LEFT JOIN steps AS asked ON asked.id = one.parent_step_id AND asked.step_type = 'llm_call'"
    " JOIN steps AS above ON above.id = COALESCE(asked.parent_step_id, one.parent_step_id)"
    " WHERE one.id = ? AND above.step_type = 'handoff'"
)
_FAILED = " AND s.status = 'error'"
_BEFORE, _AFTER = {"than": "<", "order": "DESC"}, {"than": ">", "order": "ASC"}
_NEIGHBOURS = {
    "previous_id": _NEAREST.format(failed="", **_BEFORE),
    "next_id": _NEAREST.format(failed="", **_AFTER),
    "previous_failed_id": _NEAREST.format(failed=_FAILED, **_BEFORE),
    "next_failed_id": _NEAREST.format(failed=_FAILED, **_AFTER),
}

_GONE = {
    "pruned_sent": _PRUNED.format(column="input_payload"),
    "pruned_received": _PRUNED.format(column="output_payload"),
}


def _step(ids: Sequence[str]) -> peewee.ModelSelect[Step]:
    [step_id] = ids
    tool_input: Any = peewee.Case(None, ((Step.step_type != "llm_call", Step.input_payload),))
    newest = Event.select(fn.COALESCE(fn.MAX(Event.seq), 0)).alias("newest")
    neighbours = (
        peewee.SQL(text, [step_id, step_id]).alias(name) for name, text in _NEIGHBOURS.items()
    )
    gone = (peewee.SQL(text, [step_id]).alias(name) for name, text in _GONE.items())
    return (
        Step.select(
            Step,
            Turn.project_id,
            Turn.user_input,
            Turn.turn_index,
            Turn.status.alias("turn_status"),
            (Turn.endpoint.is_null() & Turn.agent_name.is_null(False)).alias("is_agents"),
            Turn.agent_name,
            Run.run_index,
            tool_input.alias("tool_input"),
            newest,
            peewee.SQL(f"({_HANDOFF})", [step_id]).alias("handoff_id"),
            *neighbours,
            *gone,
        )
        .join(Turn, on=(Turn.id == Step.turn_id))
        .join_from(Step, Run, on=(Run.id == Step.run_id))
        .where(Step.id == step_id)
    )


_STEP = SelectByIds(_step)


def _near(step: Row) -> peewee.ModelSelect[Step]:
    index = step["step_index"]
    return Step.select(*STEP_COLUMNS).where(
        Step.run_id == step["run_id"],
        Step.step_index.between(index - MOST_ATTEMPTS, index + MOST_ATTEMPTS),
        Step.step_type == "llm_call",
    )


# -- bodies ----------------------------------------------------------------------------------------


def _body(value: Any, most: int) -> Body:
    if isinstance(value, str):
        shown, size = cut_text(value, most)
        return Body(shown, size or len(value.encode(errors="replace")), size is not None)
    shown, size = cut_json(value, most)
    return Body(shown, size or len(orjson.dumps(value)), size is not None)


def _sent(content: bytes, count: CountTokens | None, part: Choose) -> Sent:
    request = decoded(content)
    if not isinstance(request, dict):
        return Sent(len(content), other=_body(request, MOST))
    name = "messages" if "messages" in request else "input"
    said = request.get(name)
    listed = said if isinstance(said, list) else [] if said is None else [said]
    tools = request.get("tools")
    others = {key: value for key, value in request.items() if key not in (name, "tools")}
    return Sent(
        len(content),
        _messages(listed, part(len(listed))),
        [Measure(_role(one), count(one) if count is not None else None) for one in listed],
        None if tools is None else _body(tools, MOST),
        _body(others, MOST),
    )


def _messages(listed: list[Any], indexes: range) -> list[SentMessage]:
    """Of these the first one, and as many from the end as there is room for: those are new."""
    room = MOST
    shown: dict[int, Body] = {}
    for index in (*indexes[:1], *indexes[:0:-1]):
        body = _body(listed[index], max(0, room))
        room -= body.size
        shown[index] = body if room + body.size > 0 else Body(None, body.size, is_cut=True)
    return [SentMessage(i, shown[i].value, shown[i].size, shown[i].is_cut) for i in indexes]


def _role(message: Any) -> str | None:
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else None
