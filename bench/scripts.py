"""Conversations that an xgw records, so that what is made from them looks as what it writes.

Each script is held once, with `turns` turns in one session and one turn on its own beside it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import bodies
from bench.server import Server, serving

SETTLE_SECONDS = 20.0
LEAVING = "bench-400x20"
"""A model that talks for longer than the client listens."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the documents.",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
        },
    }
]


@dataclass(frozen=True)
class Script:
    """One kind of conversation.

    Every `fails_every`th turn asks a model that is down; with `remembers` it sends no more than so
    many of the last messages.
    """

    name: str
    model: str
    stream: bool = False
    tools: bool = False
    fails_every: int = 0
    leaves: bool = False
    remembers: int | None = None


SCRIPTS = (
    Script("support", "gpt-4o-mini"),
    Script("chat", "gpt-4o", stream=True),
    Script("research", "gpt-4o", tools=True),
    Script("drafts", "gpt-4.1"),
    Script("batch", "gpt-4o-mini", fails_every=4),
    Script("visitor", "gpt-4o", stream=True, leaves=True),
)

LONG = Script("archive", "gpt-4o-mini", remembers=12)
"""One that can be held for thousands of turns: what it sends does not grow."""


@dataclass(frozen=True)
class Recorded:
    """The rows of one script: those of its session, and of the turn on its own."""

    session_id: str
    turn_id: str


@dataclass
class _Talk:
    """A conversation under way."""

    server: Server
    script: Script
    session_key: str
    messages: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.messages = [json.loads(bodies.SYSTEM)]

    def take_turn(self, number: int, *, last: bool) -> None:
        """A question and what follows from it."""
        failing = self.script.fails_every and number % self.script.fails_every == 2
        question = f"{bodies.serial()} {bodies.text(160, seed=number)}?"
        self.messages.append({"role": "user", "content": question})
        if last and self.script.leaves:
            self._leave()
        elif said := self._ask("o3" if failing else self.script.model):
            self.messages.append(said)
            for call in said.get("tool_calls") or ():
                found = f"{bodies.serial()} {bodies.text(300, seed=number)}"
                result = {"role": "tool", "tool_call_id": call["id"], "content": found}
                self.messages.append(result)
            if said.get("tool_calls"):
                self.messages.append(self._ask(self.script.model) or {})

    def ask_alone(self) -> str:
        """A request that names no session; the turn's id."""
        asked = [{"role": "user", "content": f"{bodies.serial()} {bodies.text(120, seed=7)}?"}]
        with _posted(self.server, {"model": self.script.model, "messages": asked}, {}) as answer:
            answer.read()
            return answer.headers["X-Turn-Id"]

    def _ask(self, model: str) -> dict[str, Any] | None:
        """The model's message; None if the answer is an error."""
        with _posted(self.server, self._body(model), self._headers()) as answer:
            raw = answer.read()
        if answer.status != 200:
            return None
        if not self.script.stream:
            said: dict[str, Any] = json.loads(raw)["choices"][0]["message"]
            return {name: value for name, value in said.items() if value is not None}
        return {"role": "assistant", "content": "".join(_deltas(raw))}

    def _leave(self) -> None:
        with _posted(self.server, self._body(LEAVING), self._headers()) as answer:
            answer.read1()

    def _body(self, model: str) -> dict[str, Any]:
        options: dict[str, Any] = {"stream": True} if self.script.stream else {}
        options |= {"tools": TOOLS} if self.script.tools else {}
        return {"model": model, **options, "temperature": 0.2, "messages": self._remembered()}

    def _remembered(self) -> list[dict[str, Any]]:
        most = self.script.remembers
        if most is None or len(self.messages) <= most:
            return self.messages
        return [self.messages[0], *self.messages[1 - most :]]

    def _headers(self) -> dict[str, str]:
        return {
            "X-Session-Id": self.session_key,
            "X-Task-Id": f"task-{self.script.name}",
            "X-End-User-Id": f"user-{self.session_key[-12:]}",
        }


def record(
    folder: Path, upstream: int, wanted: Sequence[tuple[Script, int]]
) -> tuple[Path, list[Recorded]]:
    """Have scripts of so many turns recorded; the store, closed, and what is in it."""
    with serving(folder, upstream, store=folder / "scripts.db") as server:
        found = [_hold(server, script, turns) for script, turns in wanted]
        _wait_until_ended(server)
    return server.store, found


def _hold(server: Server, script: Script, turns: int) -> Recorded:
    talk = _Talk(server, script, f"{script.name}-{bodies.serial()}")
    for number in range(turns):
        talk.take_turn(number, last=number == turns - 1)
    alone = talk.ask_alone()
    return Recorded(server.get(f"/sessions/{talk.session_key}")["id"], alone)


def _wait_until_ended(server: Server) -> None:
    """Until no turn is under way: the one that its client left takes a moment."""
    pause, deadline = threading.Event(), time.monotonic() + SETTLE_SECONDS
    while server.get("/turns?running=true&limit=1")["data"]:
        if time.monotonic() > deadline:
            raise SystemExit("bench: a recorded turn did not end")
        pause.wait(0.05)


@contextlib.contextmanager
def _posted(
    server: Server, body: dict[str, Any], headers: dict[str, str]
) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    content = json.dumps(body, separators=(",", ":"))
    with contextlib.closing(connection):
        sent = {"Content-Type": "application/json", "User-Agent": "bench/1.0", **headers}
        connection.request("POST", "/v1/chat/completions", content, sent)
        yield connection.getresponse()


def _deltas(raw: bytes) -> Iterator[str]:
    """The texts of a stream of chat chunks."""
    for line in raw.splitlines():
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                yield choice["delta"].get("content") or ""
