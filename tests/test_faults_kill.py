"""`kill -9` under clients with tools: nothing that they got is lost, what waits for them goes on.

`python tests/test_faults_kill.py 50` (or XGW_KILL_ROUNDS=50) does it 50 times.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import random
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from faults import all_at_once
from scripted_model import DONE, chunk, delta, event, finish, usage
from servers import DEADLINE, XGW, Installation, ServerProcess, installed
from test_kill import BEGUN, CONFIG, ENDED, Model, Trigger, check_payloads, check_sums, play
from xgw.queries.messages import of_turn
from xgw.queries.turns import find_turn
from xgw.store import payloads
from xgw.store.database import Store

ROUNDS = int(os.environ.get("XGW_KILL_ROUNDS", "3"))
CLIENTS = 8
ASKED_FOR_TOOLS = b'"finish_reason":"tool_calls"'
MARKS = {ASKED_FOR_TOOLS: 16, b"\n\n": 1500, b"[DONE]": 30, BEGUN: 30}
"""A round is killed once the clients got so many of one of these, at most."""

TOOL_SECONDS = 0.2
"""How long a client's tools take."""

Messages = list[dict[str, Any]]
log = logging.getLogger("kill")


# -- the model -------------------------------------------------------------------------------------


def pieces_of(number: int, step: int) -> list[str]:
    """What the model says at this step of the answer to prompt `number`."""
    chance = random.Random(number * 10 + step)
    return [f"{number}.{step}.{n} " for n in range(chance.choice((1, 5, 25, 60)))]


def calls_of(number: int, step: int) -> list[str]:
    """The tools that it then asks for; none at the last step."""
    chance = random.Random(number)
    last = chance.choice((0, 1, 1, 2))
    return [f"call-{number}-{step}-{n}" for n in range(chance.choice((1, 2)) if step < last else 0)]


class ToolModel(Model):
    """Answers prompts with texts and tool calls that follow from their number."""

    def answer(self, messages: Messages) -> Iterator[bytes]:
        """The prompt is the first message; each answer in it is a step that was taken."""
        number = int(messages[0]["content"].rpartition(" ")[2])
        step = sum(message["role"] == "assistant" for message in messages)
        yield event(delta(role="assistant"))
        for piece in pieces_of(number, step):
            yield event(delta(piece))
        calls = calls_of(number, step)
        for index, call_id in enumerate(calls):
            function = {"name": "look", "arguments": f'{{"for":"{call_id}"}}'}
            asked = {"index": index, "id": call_id, "type": "function", "function": function}
            yield event(chunk({"index": 0, "delta": {"tool_calls": [asked]}}))
        yield event(finish("tool_calls" if calls else "stop"))
        yield event(usage(number, step + 1))
        yield DONE


# -- the clients -----------------------------------------------------------------------------------


@dataclass
class Task:
    """A prompt and all that answers it. `run` is None until an answer has begun."""

    number: int
    run: str | None = None
    messages: Messages = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    """The text of each step whose answer came whole."""

    sent: int = 0
    """How many steps were asked for."""

    def turn(self, store: Store) -> str:
        """The turn's id."""
        found = store.sql("SELECT turn_id FROM runs WHERE id = ?", (self.run,))
        return str(found[0][0])

    @property
    def is_done(self) -> bool:
        return bool(self.whole) and not self.awaited

    @property
    def awaited(self) -> list[str]:
        """The tools that the newest whole answer asked for."""
        return calls_of(self.number, len(self.whole) - 1) if self.whole else []


class Client:
    """Works on one task after the other; one that broke off is taken up where it was."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.tasks: list[Task] = []
        self._works = threading.Event()

    def talk(self, server: ServerProcess, trigger: Trigger) -> None:
        """Until the server is gone."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            while True:
                self.finish(server, trigger)
                self.tasks.append(Task(self.name * 100_000 + len(self.tasks)))

    def finish(self, server: ServerProcess, trigger: Trigger) -> None:
        """Come to the end of the task under way."""
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE)
        with contextlib.closing(connection):
            while self.tasks and not self.tasks[-1].is_done:
                self._step(connection, self.tasks[-1], trigger)
                if self.tasks[-1].awaited:
                    self._works.wait(TOOL_SECONDS)

    def _step(self, connection: http.client.HTTPConnection, task: Task, trigger: Trigger) -> None:
        if not task.messages:
            task.messages.append({"role": "user", "content": f"prompt {task.number}"})
        task.sent = len(task.whole) + 1
        body = {"model": "any", "stream": True, "messages": task.messages}
        connection.request("POST", "/v1/chat/completions", orjson.dumps(body), self._headers(task))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        run = response.headers["X-Run-Id"]
        if task.whole or (self._has_keys and task.run):
            assert run == task.run, "what was sent again has not gone on in its turn"
        task.run = run
        trigger.see(BEGUN)
        answer = b""
        while block := response.read1(65536):
            trigger.see(block)
            answer += block
        assert answer.endswith(DONE), answer
        self._take(task, answer)

    def _take(self, task: Task, answer: bytes) -> None:
        chunks = [orjson.loads(b[6:]) for b in answer.split(b"\n\n") if b.startswith(b"data: {")]
        deltas = [c["choices"][0]["delta"] for c in chunks if c["choices"]]
        calls = [call for d in deltas for call in d.get("tool_calls", ())]
        task.whole.append("".join(d.get("content") or "" for d in deltas))
        assert [call["id"] for call in calls] == task.awaited
        assert task.whole[-1] == "".join(pieces_of(task.number, len(task.whole) - 1))
        asked = [{k: v for k, v in call.items() if k != "index"} for call in calls]
        task.messages.append({"role": "assistant", "content": task.whole[-1], "tool_calls": asked})
        for call_id in task.awaited:
            found = {"role": "tool", "tool_call_id": call_id, "content": f"found {call_id}"}
            task.messages.append(found)

    @property
    def _has_keys(self) -> bool:
        """Every other client names its turns."""
        return self.name % 2 == 1

    def _headers(self, task: Task) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "X-Session-Id": f"client {self.name}"}
        return headers | ({"X-Turn-Id": f"turn {task.number}"} if self._has_keys else {})


# -- the store -------------------------------------------------------------------------------------


def check(path: Path, clients: list[Client]) -> int:
    """The store, right after a server has started on it again; how many turns wait."""
    store = Store(path)
    assert store.sql("PRAGMA integrity_check") == [("ok",)]
    assert store.sql("PRAGMA foreign_key_check") == []
    waiting = _check_open(store)
    for client in clients:
        for task in client.tasks:
            if task.run is not None:
                _check_task(store, task)
        if (
            client.tasks
            and client.tasks[-1].awaited
            and client.tasks[-1].sent == len(client.tasks[-1].whole)
        ):
            assert client.tasks[-1].run in waiting, "what nobody has answered yet goes on waiting"
    check_sums(store)
    check_payloads(store)
    store.close()
    return len(waiting)


def _check_open(store: Store) -> set[str]:
    """Nothing is under way but what waits for a client's tools; the runs of that."""
    runs = store.sql(f"SELECT id, turn_id, status FROM runs WHERE status NOT IN {ENDED}")
    assert {status for _, _, status in runs} <= {"waiting_tool"}
    open_turns = store.sql(f"SELECT id, status FROM turns WHERE status NOT IN {ENDED}")
    assert sorted(open_turns) == sorted((turn, "running") for _, turn, _ in runs)
    steps = f"SELECT run_id, step_type FROM steps WHERE status NOT IN {ENDED}"
    waiting = {run for run, _, _ in runs}
    assert {(run, kind) for run, kind in store.sql(steps)} == {
        (run, "tool_call") for run in waiting
    }
    return waiting


STEPS = "SELECT id, output_payload, input_tokens, output_tokens, finish_reason FROM steps "
STEPS += "WHERE run_id = ? AND step_type = 'llm_call' AND status = 'success'"
TOOLS = "SELECT status, output_payload FROM steps WHERE run_id = ? AND tool_call_id = ?"
RUN = "SELECT status FROM runs WHERE id = ?"


def _check_task(store: Store, task: Task) -> None:
    answers: dict[str, tuple[Any, ...]] = {}
    said: dict[str, list[str]] = {}
    for message in of_turn(store, task.turn(store)):
        if message["role"] == "assistant":
            said.setdefault(message["step_id"], []).append(message["content"])
    for id, output, *rest in store.sql(STEPS, (task.run,)):
        choice = orjson.loads(payloads.load(store, output))["choices"][0]
        calls = [call["id"] for call in choice["message"].get("tool_calls") or ()]
        answers[choice["message"]["content"]] = (id, calls, *rest)
    for step, text in enumerate(task.whole):
        calls = calls_of(task.number, step)
        id, *found = answers[text]
        assert found == [calls, task.number, step + 1, "tool_calls" if calls else "stop"]
        assert said.get(id) == [text]
        if step + 1 < len(task.whole):
            for call_id in calls:
                tools = store.sql(TOOLS, (task.run, call_id))
                outputs = {
                    payloads.load(store, key) for status, key in tools if status == "success"
                }
                assert outputs == {f"found {call_id}".encode()}
    if task.is_done:
        turn = find_turn(store, task.turn(store))
        assert turn is not None
        assert (turn["status"], turn["ended_by"]) == ("success", "finished")
        assert turn["final_output"] == task.whole[-1]
        assert store.sql(RUN, (task.run,)) == [("success",)]


# -- the rounds ------------------------------------------------------------------------------------


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    model = ToolModel()
    with installed(tmp_path, CONFIG.format(port=model.port), XGW) as one:
        yield one
    model.close()


@pytest.mark.slow
def test_turns_with_tools_outlive_the_server(installation: Installation) -> None:
    chance = random.Random(20260203)
    clients = [Client(name) for name in range(CLIENTS)]
    waited = 0
    server = installation.serve()
    for number in range(ROUNDS):
        mark, most = list(MARKS.items())[number % len(MARKS)]
        count = chance.randrange(1, most)
        play(server, clients, mark, count)  # type: ignore[arg-type]
        server = installation.serve()
        waits = check(installation.store, clients)
        waited += waits
        log.info("round %d: killed at %d times %r, %d turns wait", number + 1, count, mark, waits)
    never = Trigger(b"never", 1, threading.Event().set)
    all_at_once([partial(client.finish, server, never) for client in clients])
    assert check(installation.store, clients) == 0
    assert server.stop() == 0
    whole = sum(len(task.whole) for client in clients for task in client.tasks)
    log.info("%d answers were got whole, %d turns waited through a kill", whole, waited)
    assert whole > ROUNDS
    assert waited > 0


if __name__ == "__main__":
    os.environ["XGW_KILL_ROUNDS"] = sys.argv[1] if len(sys.argv) > 1 else "50"
    sys.exit(pytest.main([__file__, "-q", "--log-cli-level=INFO"]))
