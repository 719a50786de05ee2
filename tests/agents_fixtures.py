"""Agents between real sockets: a scripted model behind them, clients in front, their record."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from agent_gates import start_over
from gateway_fixtures import Gate, Reply, gate_and_model
from scripted_model import DONE, Answer, Row, delta, finish, stream, usage
from servers import eventually
from xgw.store.models import Turn

FILE = Path(__file__).with_name("agent_tools.py")
TOOLS = (
    *("look", "note", "boom", "quit", "flood", "first", "second", "stuck", "later", "anything"),
    *("mute", "garble"),
)


def tools(**changes: Row) -> Row:
    """The tables of the tools in `agent_tools.py`."""
    named = {name: {"python": f"{FILE}:{name}"} for name in TOOLS}
    return {name: table | changes.get(name, {}) for name, table in named.items()}


def agent(**fields: Any) -> Row:
    """The table of an agent that has all of them."""
    return {"model": "m", "instructions": "Be brief.", "tools": TOOLS, **fields}


class AgentGate:
    """xgw with agents, and what a test asks of it."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.model = gate.model

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.gate.post(body, path, **headers)

    def chat(self, message: str, session: str | None = None, name: str = "a", **more: Any) -> Reply:
        """A message to an agent."""
        named = {"sessionId": session} if session else {}
        return self.post(f"/agents/{name}/chat", {"message": message, **named, **more})

    def say(self, message: str, session: str | None = None, **more: Any) -> Row:
        """The published answer to a message."""
        reply = self.chat(message, session, **more)
        assert reply.status in (200, 202), reply.body
        answer: Row = reply.json
        return answer

    def turn(self, answer: Row) -> Row:
        return self.gate.all(Turn, Turn.id == answer["turnId"])[0]

    def ended(self, answer: Row) -> Row:
        """The turn of an answer, once it is over."""
        eventually(lambda: self.turn(answer)["ended_at"])
        return self.turn(answer)

    def story(self, answer: Row) -> list[str]:
        return self.gate.story(self.turn(answer))

    def steps(self, answer: Row, kind: str | None = None) -> list[Row]:
        return self.gate.steps(self.turn(answer), kind)

    def sent(self, number: int) -> list[Row]:
        """The messages of the model's request of this number."""
        messages: list[Row] = self.model.asked[number].json["messages"]
        return messages

    def cancel(self, turn_id: str) -> Reply:
        return self.post(f"/turns/{turn_id}/cancel", {})


@contextlib.contextmanager
def agents(folder: Path, **tables: Any) -> Iterator[AgentGate]:
    """xgw with the agent `a`, and what else `tables` define."""
    given = {"agents": {"a": agent()}, "tools": tools()} | tables
    start_over()
    with gate_and_model(folder, **given) as gate:
        yield AgentGate(gate)
        start_over()


@contextlib.contextmanager
def a_test_with(served: AgentGate) -> Iterator[AgentGate]:
    """One test's use of agents that several share."""
    start_over()
    served.model.start_over()
    yield served
    served.model.check()
    start_over()
    eventually(lambda: served.gate.services.calls.count == 0)
    eventually(lambda: len(served.gate.services.recorder.live) == 0)


# -- the model's answers ---------------------------------------------------------------------------


def asks(*calls: tuple[str, str, str], reason: str = "tool_calls", text: str = "") -> Answer:
    """A stream that asks for tools: (id, name, arguments) each."""
    begun = [delta(text)] if text else []
    deltas = [
        delta(
            tool_calls=[
                {
                    "index": index,
                    "id": call_id,
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
            ]
        )
        for index, (call_id, name, arguments) in enumerate(calls)
    ]
    return stream(delta(role="assistant"), *begun, *deltas, finish(reason), usage(10, 5), DONE)


def requested(*calls: tuple[str, str, str]) -> Row:
    """The message that such an answer becomes in the next request."""
    named = [
        {"id": i, "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, name, arguments in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": named}


def told(body: bytes) -> list[tuple[str, Row]]:
    """The events of a stream: name and data of each."""
    found = []
    for block in body.decode().split("\n\n"):
        fields = [line.partition(": ") for line in block.split("\n") if line[:1] not in ("", ":")]
        lines = {name: value for name, _, value in fields}
        if "event" in lines:
            found.append((lines["event"], orjson.loads(lines["data"])))
    return found
