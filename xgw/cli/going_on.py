"""A turn that goes on: what it says from here, until it is over or waits for a person."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from xgw.cli import texts
from xgw.cli.doors import Door
from xgw.cli.speaking import Speaker
from xgw.cli.terminal import note
from xgw.errors import WorkError
from xgw.providers.sse import EventSplitter

MAX_EVENT_BYTES = 64 << 20
ARGUMENTS_SHOWN = 400

Answer = Mapping[str, Any]
"""The published answer to a message, as `POST /agents/{name}/chat` gives it, or a part of it."""


def events_in(blocks: Iterator[bytes]) -> Iterator[tuple[str | None, Any]]:
    """The events of a stream: name and data of each."""
    splitter = EventSplitter(MAX_EVENT_BYTES)
    for block in blocks:
        for event in splitter.feed(block):
            if event.data is not None:
                yield event.event, orjson.loads(event.data)


def follow(door: Door, run: Mapping[str, Any], after: int, speaker: Speaker) -> tuple[Answer, int]:
    """Say what the turn of a run under way says after an event, until it is over or waits.

    Returns it as it is then, and the `seq` of the last event.
    """
    turn = door.ask("GET", f"/turns/{run['turn_id']}")
    path = f"/sessions/{turn['session_id']}/events?after={after}"
    with contextlib.closing(door.follow(path)) as blocks:  # type: ignore[type-var]
        for _, told in events_in(blocks):
            after = told["seq"] or after
            if told["turn_id"] == turn["id"]:
                speaker.hear(told)
                if _is_end(told, run["checkpoint"]["at"]):
                    break
        else:
            raise WorkError(f"the server ended; look at {turn['id']} with xgw show")
    answer = answer_of(door.ask("GET", f"/turns/{turn['id']}"))
    speaker.finish(None if "runStatus" in answer else answer["message"]["content"])
    return answer, after


def _is_end(told: Mapping[str, Any], since: str) -> bool:
    """Whether a turn is over, or waits again; that it waited before `since` is no news."""
    if told["type"] == "run.updated" and told["payload"]["status"] == "waiting_tool":
        return bool(told["payload"]["checkpoint_at"] > since)
    return bool(told["type"] == "turn.completed")


def answer_of(turn: Mapping[str, Any]) -> Answer:
    """What the published answer would tell of a turn, as far as a person is told."""
    run = turn["runs"][-1]
    answer = {
        "sessionId": turn["session_id"],
        "turnId": turn["id"],
        "runId": run["id"],
        "message": {"role": "assistant", "content": turn["final_output"]},
        "status": turn["status"],
        "error": turn["error"],
    }
    if turn["ended_at"] is not None:
        return answer
    from xgw.web.agents import pending_approvals

    return {**answer, "runStatus": run["status"], "pendingApprovals": pending_approvals(run)}


def tell_waiting(answer: Answer) -> None:
    """Say on stderr that a turn waits for a person, for what, and how that is given."""
    run_id = answer["runId"]
    calls = [(call["id"], call["stepId"]) for call in answer["pendingApprovals"]]
    for call in answer["pendingApprovals"]:
        note(f"xgw: {run_id} waits: {spell_call(call)} ({call['id']})")
    note(f"xgw: decide with xgw approve {run_id} {name_call(*calls[0], calls)}, or xgw deny")


def name_call(id: str, step_id: str | None, calls: Iterable[tuple[str, str | None]]) -> str:
    """How a command names one of the calls that wait: by its id, with its step where two agents
    wait with the same."""
    is_alone = sum(other == id for other, _ in calls) < 2
    return id if is_alone else f"{id} --step {step_id}"


def spell_call(call: Mapping[str, Any]) -> str:
    """A call that waits, on one line: its name, its arguments, and what is wrong with it."""
    text = spell_arguments(call)
    unsure = " (interrupted: nobody knows if it ran)" if call["reason"] != "approval" else ""
    asking = f" of agent {call['agentName']}" if call["agentName"] else ""
    return f"{call['name']} {texts.one_line(text, ARGUMENTS_SHOWN)}{asking}{unsure}"


def spell_arguments(call: Mapping[str, Any]) -> str:
    """The arguments of a call as JSON."""
    return orjson.dumps(call["arguments"]).decode()
