"""A turn, its run and its tools' steps, as the messages that make it tell of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from xgw import ids
from xgw.frozen import frozen
from xgw.recording.adopt import Link, Values
from xgw.upkeep.backfill.grouping import Group, Said, unbroken
from xgw.upkeep.bodies import Bodies
from xgw.upkeep.minting import mint
from xgw.upkeep.times import between, milliseconds

NO_ANSWER = "the older store has no answer to it"
CANCELLED = "the task session was cancelled"
FAILED = "the task session failed"
CHAT = "chat.completions"


class Session(NamedTuple):
    """What a turn takes from its session; `old_status` is what that was in the older store."""

    id: str
    project_id: str
    task_id: str | None
    agent_name: str | None
    kind: str
    turn_count: int
    last_turn_at: str | None
    is_orphans: bool
    old_status: str | None


class Outcome(NamedTuple):
    """How a turn ended, as far as is known."""

    status: str
    ended_by: str | None = None
    error_type: str | None = None
    error_message: str | None = None


@frozen
class Made:
    """The rows of one turn in the order of `adopt.COLUMNS`, and the messages that it gets.

    `first` is the index of its first message; the turn's own index is given to it later.
    """

    id: str
    session_id: str
    first: int
    started_at: str
    turn: list[Any]
    run: Values
    steps: Sequence[Values]
    links: Sequence[Link]
    count: int


TURN_INDEX = 6


def make(
    session: Session, said: Group, strategy: str, now: str, bodies: Bodies, *, is_last: bool
) -> Made:
    """The turn of these messages; `is_last` if it is the last one of its session."""
    moments = [one.at for one in said]
    started, ended = min(moments), max(moments)
    is_timed = any(_has_time(one) for one in said)
    latency = between(started, ended) if is_timed else None
    turn_id = mint("turn", milliseconds(started), [session.id, said[0].id])
    run_id = mint("run", milliseconds(started), [turn_id])
    steps, of_results = _steps(session.id, turn_id, run_id, said, ended, bodies)
    outcome = _outcome(session, said, is_last=is_last)
    asked = next((one for one in said if one.role == "user"), None)
    answer = next((one for one in reversed(said) if _is_answer(one)), None)
    told = {"backfilled": strategy} if is_timed else {"backfilled": strategy, "times": "unknown"}
    metadata = orjson.dumps(told).decode()
    turn = [
        turn_id,
        session.project_id,
        session.id,
        session.task_id,
        session.agent_name,
        None if session.kind == "agent" else CHAT,
        0,
        bodies.plain_column(asked.content) if asked else None,
        answer.column if answer else None,
        None,
        *outcome,
        ids.trace_id_of(turn_id),
        started,
        ended,
        latency,
        sum(1 for one in said if one.role == "assistant" and one.kind in ("message", "tool_call")),
        len(steps),
        metadata,
        started,
        now,
    ]
    run = (
        run_id,
        turn_id,
        0,
        outcome.status,
        "first",
        outcome.error_type,
        outcome.error_message,
        started,
        ended,
        latency,
        metadata,
    )
    links = _links(session.id, turn_id, run_id, said, of_results)
    return Made(turn_id, session.id, said[0].place, started, turn, run, steps, links, len(said))


def _has_time(one: Said) -> bool:
    """Whether its time was known: else its metadata says what stood in its place."""
    told = one.metadata or ""
    if '"created_at":' not in told:
        return True
    legacy = orjson.loads(told).get("legacy")
    return not (isinstance(legacy, dict) and "created_at" in legacy)


def _is_answer(one: Said) -> bool:
    """Whether it is what the model or the agent had to say, not a call of a tool."""
    return one.role == "assistant" and one.kind == "message" and one.tool_calls is None


def _outcome(session: Session, said: Group, *, is_last: bool) -> Outcome:
    """By the last message that is no mere status; of the last turn by its session's, too."""
    last = next((one for one in reversed(said) if one.kind != "status"), said[-1])
    if last.kind == "error":
        return Outcome("error", None, "upstream_error", last.content)
    if _is_answer(last):
        return Outcome("success", "finished")
    if is_last and session.old_status == "CANCELLED":
        return Outcome("cancelled", None, "no_result", CANCELLED)
    if is_last and session.old_status == "FAILED":
        return Outcome("error", None, "no_result", FAILED)
    return Outcome("error", None, "no_result", NO_ANSWER)


# -- tools -----------------------------------------------------------------------------------------


class _Call(NamedTuple):
    id: str | None
    name: str | None
    arguments: str | None
    at: str


class _Result(NamedTuple):
    place: int
    content: str | None
    at: str


def _steps(
    session_id: str, turn_id: str, run_id: str, said: Group, ended: str, bodies: Bodies
) -> tuple[list[Values], dict[int, str]]:
    """A step for each call of a tool, and by the index of its result the step that it is of."""
    if all(one.tool_calls is None and one.kind != "tool_call" for one in said):
        return [], {}
    calls, results = _called_and_brought(said)
    steps: list[Values] = []
    of_results = {}
    trace_id = ids.trace_id_of(turn_id)
    for number, call in enumerate(calls):
        result = results.pop(call.id, None) if call.id is not None else None
        step_id = mint("step", milliseconds(call.at), [turn_id, number])
        if result is not None:
            of_results[result.place] = step_id
        steps.append(
            (
                step_id,
                run_id,
                turn_id,
                session_id,
                number,
                "tool_call",
                call.name,
                bodies.output(result.content) if result and result.content is not None else None,
                call.id,
                *(("success", None, None) if result else ("cancelled", "no_result", NO_RESULT)),
                between(call.at, result.at) if result else None,
                trace_id,
                ids.observation_id_of(step_id),
                call.at,
                result.at if result else max(call.at, ended),
                orjson.dumps({"arguments": call.arguments, "backfilled": True}).decode(),
            )
        )
    return steps, of_results


NO_RESULT = "no result came"


def _called_and_brought(said: Group) -> tuple[list[_Call], dict[str | None, _Result]]:
    """Calls in order, and the first result of each; times never go back in a turn."""
    calls: list[_Call] = []
    results: dict[str | None, _Result] = {}
    at = ""
    for one in said:
        at = max(at, one.at)
        if one.kind == "tool_result":
            results.setdefault(one.tool_call_id, _Result(one.place, one.content, at))
        elif one.tool_calls is not None or one.kind == "tool_call":
            calls += _calls(one, at)
    return calls, results


def _calls(one: Said, at: str) -> Iterator[_Call]:
    found = orjson.loads(one.tool_calls) if one.tool_calls is not None else None
    asked = [call for call in found if isinstance(call, dict)] if isinstance(found, list) else []
    for call in asked:
        nested = call.get("function")
        function = nested if isinstance(nested, dict) else call
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = orjson.dumps(arguments).decode()
        yield _Call(_text(call.get("id")), _text(function.get("name")), arguments, at)
    if not asked and one.kind == "tool_call":
        yield _Call(one.tool_call_id, None, None, at)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _links(
    session_id: str, turn_id: str, run_id: str, said: Group, of_results: dict[int, str]
) -> list[Link]:
    """One for each part of the messages whose indexes follow on one another."""
    links = []
    for part in unbroken(said):
        first, last = part[0].place, part[-1].place
        stepped = tuple(pair for pair in of_results.items() if first <= pair[0] <= last)
        links.append(Link(session_id, turn_id, run_id, first, last, stepped))
    return links
