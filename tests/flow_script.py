"""The debugging flow of someone who writes an app, as one scripted session.

An agent with tools: a call that is refused and tried again, tools side by side of which one fails,
a second turn, a limit, a compaction, a budget that is used up. Whoever watches says when it has
seen that something is under way; only then does it go on.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import orjson

from agent_gates import GATES
from agents_fixtures import AgentGate, agent, asks
from scripted_model import DONE, Answer, Row, delta, finish, stream, streams, usage, whole
from xgw.config import Retry, Route

NAME = "guide"
KEY = "debugging-flow"
WINDOW = 4000
BUDGET = 390
TASK_ITERATIONS = 2

LOOK = ("call_look", "look", '{"city": "Oslo"}')
BOOM = ("call_boom", "boom", "{}")
STUCK = ("call_stuck", "stuck", "{}")
NOTE = ("call_note", "note", '{"text": "step by step"}')
CALLS = (LOOK, BOOM, STUCK)

INTRODUCTION = "I will look at both. One moment."
ANSWER = "Oslo has 21 degrees, Rome is not known."
SECOND = "Rome is warm."
SUMMARY = "Oslo has 21 degrees; a note was kept."
LAST = "It all fits again."

LONG = "What does the almanac of the year say of the weather in Rome? " * 40
LONGER = "Compare that with what the almanacs of other years have to say. " * 80


@dataclass(frozen=True)
class Message:
    """What is said in a turn, and how the agent is to work on it."""

    text: str
    mode: str = "chat"


MESSAGES = (
    Message("What is the weather in Oslo and Rome?"),
    Message(LONG),
    Message("Keep notes, step by step.", mode="task"),
    Message(LONGER),
    Message("One more thing."),
)
FIRST, PLAIN, ITERATIONS, COMPACTED, SPENT = range(5)
"""The turns, by what happens in them."""


def tables() -> Row:
    """The configuration: the agent, and a route that tries again."""
    guide = agent(
        description="Knows the weather",
        tools=("look", "boom", "stuck", "note"),
        modes={"task": {"max_iterations": TASK_ITERATIONS}},
        context={"window": WINDOW, "compact_at": 0.5, "keep_last_turns": 1},
    )
    retry = Retry(max_attempts=2, base_delay_ms=20)
    return {
        "agents": {NAME: guide},
        "routes": (Route(model="m", targets=("p1/m",), retry=retry),),
    }


class Script:
    """The model's side of it; `saw` is what lets it go on."""

    def __init__(self, gate: AgentGate) -> None:
        self._spoken = threading.Event()
        self._stuck: str | None = None
        gate.model.will(
            whole({"error": {"message": "slow down"}}, status="429 Too Many Requests"),
            self._asking(),
            stream(
                *map(delta, ("Oslo has 21 degrees, ", "Rome is not known.")),
                finish(),
                usage(180, 12, prompt_tokens_details={"cached_tokens": 128}),
                DONE,
            ),
            streams(SECOND),
            asks(NOTE),
            asks(NOTE),
            streams(SUMMARY),
            streams(LAST),
        )

    def _asking(self) -> Answer:
        """The first answer: it speaks, waits to be seen, and asks for the tools."""
        begun, rest = INTRODUCTION[:9], INTRODUCTION[9:]
        asked = [_call(index, *call) for index, call in enumerate(CALLS)]
        counted = usage(120, 20, prompt_tokens_details={"cached_tokens": 64})
        told = (delta(begun), self._spoken, delta(rest), *asked)
        return stream(delta(role="assistant"), *told, finish("tool_calls"), counted, DONE)

    def saw_words(self) -> None:
        """The first answer was seen to grow."""
        self._spoken.set()

    def saw_tools(self) -> None:
        """The tools were seen at work."""
        GATES["free"].set()

    def hear(self, envelope: Row) -> None:
        """An event was received: one that tells how far something is lets it go on."""
        payload, step_id = envelope["payload"], envelope["step_id"]
        if envelope["type"] == "step.started" and payload["name"] == STUCK[1]:
            self._stuck = step_id
        if envelope["type"] == "step.progress":
            if payload.get("input_tokens") and payload.get("output_tokens"):
                self.saw_words()
            if step_id == self._stuck:
                self.saw_tools()


def _call(index: int, id: str, name: str, arguments: str) -> Row:
    function = {"name": name, "arguments": arguments}
    call = {"index": index, "id": id, "type": "function", "function": function}
    return delta(tool_calls=[call])


@dataclass
class Seen:
    """What one reader saw: events as they came, and what the API answers before, between, after.

    `replies` are the published answers, where the reader gets any.
    """

    gate: AgentGate
    session_id: str
    before: Row
    between: Row
    events: list[Row]
    turn_ids: list[str]
    replies: list[Row]

    def get(self, path: str) -> Any:
        """What the API answers now."""
        reply = self.gate.gate.get(path)
        assert reply.status == 200, reply.body
        return orjson.loads(reply.body)

    def session(self) -> Any:
        return self.get(f"/sessions/{self.session_id}")

    def turn(self, number: int) -> Any:
        return self.get(f"/turns/{self.turn_ids[number]}")

    def steps(self, number: int, kind: str) -> list[Row]:
        """The steps of a turn, as its JSON has them."""
        found = [step for run in self.turn(number)["runs"] for step in run["steps"]]
        return [step for step in found if step["step_type"] == kind]

    def messages(self) -> list[Row]:
        path = f"/sessions/{self.session_id}/messages?order=asc"
        found: list[Row] = self.get(path)["data"]
        return found

    def told(self, number: int, *types: str, **fields: Any) -> list[Row]:
        """The events of a turn of these types whose payload has these fields, in order."""
        return [
            event
            for event in self.events
            if event["turn_id"] == self.turn_ids[number]
            and event["type"] in types
            and fields.items() <= event["payload"].items()
        ]

    def one(self, number: int, type: str, **fields: Any) -> Row:
        """The only such event."""
        found = self.told(number, type, **fields)
        assert len(found) == 1, f"{len(found)} × {type} {fields} in turn {number + 1}"
        return found[0]

    def of_step(self, step_id: str, type: str) -> list[Row]:
        return [e for e in self.events if e["step_id"] == step_id and e["type"] == type]

    def order(self, *events: Row) -> None:
        """These came one after another."""
        places = [self.events.index(event) for event in events]
        assert places == sorted(places), [(e["seq"], e["type"]) for e in events]
