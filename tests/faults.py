"""A server process under faults: its model, store and memory, and clients that watch the time."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gateway_fixtures import PROVIDER_KEY, Client, Records, Reply
from scripted_model import (
    DONE,
    Asked,
    Model,
    Row,
    chat,
    delta,
    finish,
    named,
    stream,
    usage,
    user,
)
from scripted_upstream import Peer
from servers import DEADLINE, XGW, ServerProcess, installed
from xgw import clock
from xgw.queries.messages import of_turn
from xgw.store.database import Store

CONFIG = """
[[providers]]
name = "p1"
base_url = "{url}"
api_key = "{key}"
[[routes]]
model = "m"
targets = ["p1/m"]
"""


class Running(Client, Records):
    """A server process, the model behind it, and its store."""

    def __init__(self, server: ServerProcess, model: Model, store: Path) -> None:
        Client.__init__(self, server.url)
        Records.__init__(self, Store(store))
        self.server = server
        self.model = model

    def health(self) -> Any:
        """What /health says."""
        reply = self.get("/health")
        assert reply.status == 200
        return reply.json

    def memory(self) -> int:
        """Bytes that the server and its worker have resident."""
        pids = [self.server.popen.pid, *self.server.workers()]
        return sum(map(_resident, pids))


def _resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


@contextlib.contextmanager
def running(folder: Path, model: Model | None = None, config: str = "") -> Iterator[Running]:
    """A server for a `with` block; `config` is more of its configuration."""
    model = model or Model()
    tables = CONFIG.format(url=model.url, key=PROVIDER_KEY) + config
    try:
        with installed(folder, tables, XGW) as one:
            gate = Running(one.serve(), model, one.store)
            try:
                yield gate
            finally:
                gate.store.close()
    finally:
        model.close()


def assert_is_error(reply: Reply, status: int, code: str | None = None) -> None:
    """The API's error shape."""
    assert reply.status == status, reply.body
    assert set(reply.error) == {"message", "type", "param", "code"}
    assert code is None or reply.error["code"] == code


def watch(gate: Running, path: str = "/events", buffer: int | None = None) -> socket.socket:
    """A watcher that is connected, every event still to be read.

    `buffer` is how much it takes without being read.
    """
    sock = socket.socket()
    if buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.settimeout(DEADLINE)
    sock.connect(gate.address)
    sock.sendall(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
    seen = b""
    while b": connected" not in seen:
        byte = sock.recv(1)
        assert byte, seen
        seen += byte
    return sock


def read_to_end(sock: socket.socket) -> bytes:
    """What still comes, until the other end closes; then this one is closed too."""
    blocks = []
    with contextlib.closing(sock):
        while block := sock.recv(1 << 16):
            blocks.append(block)
    return b"".join(blocks)


def all_at_once(works: list[Callable[[], None]]) -> None:
    """Each in a thread of its own; the first fault of one of them is raised."""
    faults: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as fault:  # noqa: BLE001 it belongs to the test, which raises it
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * DEADLINE)
        assert not thread.is_alive()
    if faults:
        raise faults[0]


# -- clients that talk until they are told to stop -------------------------------------------------

PIECES = 20
PACE = 0.01


def echo(peer: Peer, asked: Asked) -> None:
    """Repeats the prompt, piece by piece, and counts its number as the tokens that were sent."""
    prompt = asked.json["messages"][-1]["content"]
    pace, pieces = threading.Event(), [delta(piece) for piece in pieces_of(prompt)]
    paced = [part for piece in pieces for part in (piece, lambda: pace.wait(PACE))]
    stream(*paced, finish(), usage(number_of(prompt), PIECES), DONE)(peer, asked)


def pieces_of(prompt: str) -> list[str]:
    """What `echo` says, piece by piece."""
    return [f"{prompt}.{n} " for n in range(PIECES)]


def number_of(prompt: str) -> int:
    """The number at its end."""
    return int(prompt.rpartition(" ")[2])


@dataclass(frozen=True)
class Said:
    """An answer that a client got whole, and how long it took."""

    prompt: str
    reply: Reply
    seconds: float


class Talker:
    """Asks again and again in a session of its own, until told to stop."""

    def __init__(self, gate: Running, name: int, over: threading.Event) -> None:
        self._gate = gate
        self.name = name
        self._over = over
        self.said: list[Said] = []

    def talk(self) -> None:
        try:
            while not self._over.is_set():
                self.said.append(self._ask(f"prompt {self.name * 100_000 + len(self.said)}"))
        finally:
            self._over.set()

    def _ask(self, prompt: str) -> Said:
        began = clock.monotonic()
        session = named(f"session {self.name}")
        reply = self._gate.post(chat(prompt, stream=True, **session))
        assert reply.status == 200, reply.body
        assert _text(reply) == "".join(pieces_of(prompt))
        assert reply.body.endswith(DONE)
        return Said(prompt, reply, clock.monotonic() - began)


def _text(reply: Reply) -> str:
    """What a stream said; an error event among its events has no choices."""
    chunks = [orjson.loads(data) for data in reply.events[:-1]]
    return "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])


@contextlib.contextmanager
def talking(gate: Running, count: int) -> Iterator[list[Talker]]:
    """Clients that talk during the `with` block; their faults are raised at its end."""
    gate.model.always(echo)
    over = threading.Event()
    talkers = [Talker(gate, name, over) for name in range(count)]
    with ThreadPoolExecutor(count) as pool:
        talks = [pool.submit(talker.talk) for talker in talkers]
        try:
            yield talkers
        finally:
            over.set()
        for talk in talks:
            talk.result()


def check_said(gate: Running, talkers: list[Talker]) -> None:
    """Everything that these clients got is in the store, and nothing else."""
    for talker in talkers:
        turns = gate.turns(f"session {talker.name}")
        assert [t["turn_index"] for t in turns] == list(range(len(talker.said)))
        for said, turn in zip(talker.said, turns, strict=True):
            _check(gate, said, turn)
    assert gate.store.sql("PRAGMA integrity_check") == [("ok",)]


def _check(gate: Running, said: Said, turn: Row) -> None:
    text = "".join(pieces_of(said.prompt))
    assert said.reply.headers["x-turn-id"] == turn["id"]
    assert (turn["status"], turn["user_input"], turn["final_output"]) == (
        "success",
        said.prompt,
        text,
    )
    (step,) = gate.steps(turn)
    assert (step["status"], step["output_tokens"]) == ("success", PIECES)
    assert step["input_tokens"] == number_of(said.prompt)
    assert text.encode() in gate.payload(step["output_payload"])
    (request,) = gate.requests(turn)
    assert orjson.loads(gate.payload(request["request_payload"]))["messages"][0] == user(
        said.prompt
    )
    assert [m["content"] for m in of_turn(gate.store, turn["id"])] == [said.prompt, text]
