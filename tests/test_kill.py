"""`kill -9` in the middle of streams: what a client got whole is whole in the store.

`python tests/test_kill.py 20` (or XGW_KILL_ROUNDS=20) does it 20 times.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import random
import signal
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from servers import DEADLINE, XGW, Installation, ServerProcess, installed
from xgw.queries.snapshot import snapshot
from xgw.queries.texts import bring_back
from xgw.store import payloads
from xgw.store.database import Store

ROUNDS = int(os.environ.get("XGW_KILL_ROUNDS", "4"))
CLIENTS = 4
PACE = 0.004
BEGUN = b"(headers)"
MARKS = {b"\n\n": 1200, b"[DONE]": 25, BEGUN: 25}
"""A round is killed once its clients got so many events, last ones or first bytes, at most.

An answer's start is recorded right before its first byte leaves, its end before its last event.
"""

CONFIG = """\
[[providers]]
name = "model"
kind = "openai"
base_url = "http://127.0.0.1:{port}/v1"
api_key = "sk-test"

[[routes]]
model = "*"
targets = ["model/scripted"]
"""

log = logging.getLogger("kill")


# -- the model -------------------------------------------------------------------------------------


def script(number: int) -> list[str]:
    """What the model says to prompt `number`, piece by piece."""
    chance = random.Random(number)
    count = chance.choice((3, 20, 60, 150))
    return [f"{number}.{n}{'ü' * chance.randrange(9)} " for n in range(count)]


def events_of(number: int) -> Iterator[bytes]:
    """The answer to prompt `number`, as it goes over the wire."""
    common = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1}
    common |= {"model": "scripted-1"}
    pieces = script(number)
    for piece in pieces:
        delta = {"index": 0, "delta": {"role": "assistant", "content": piece}}
        yield _event(common | {"choices": [delta | {"finish_reason": None}]})
    yield _event(common | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = {"prompt_tokens": 5, "completion_tokens": len(pieces), "total_tokens": 5 + len(pieces)}
    yield _event(common | {"choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


class Model:
    """An upstream whose answer follows from the number at the end of the prompt."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._over = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def answer(self, messages: list[dict[str, Any]]) -> Iterator[bytes]:
        """What it says to this conversation, event by event."""
        return events_of(int(messages[-1]["content"].rpartition(" ")[2]))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        """Requests on one connection until the other end is gone: it is killed now and then."""
        with sock, contextlib.suppress(OSError), sock.makefile("rb") as reader:
            while body := _read_request(reader):
                sock.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n"
                )
                for event in self.answer(orjson.loads(body)["messages"]):
                    sock.sendall(b"%x\r\n%b\r\n" % (len(event), event))
                    self._over.wait(PACE)
                sock.sendall(b"0\r\n\r\n")


def _read_request(reader: Any) -> bytes:
    """A request's body; nothing once the connection is closed."""
    length = 0
    while (line := reader.readline()) not in (b"\r\n", b""):
        if line.lower().startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    body: bytes = reader.read(length)
    return body


# -- the clients -----------------------------------------------------------------------------------


@dataclass
class Got:
    """What a client got of one answer. `number` is its prompt's, `turn` None before the headers."""

    number: int
    turn: str | None = None
    body: bytes = b""

    @property
    def is_whole(self) -> bool:
        return self.body.endswith(b"data: [DONE]\n\n")

    @property
    def text(self) -> str:
        """What the model said, as far as it came."""
        blocks = self.body.split(b"\n\n")[:-1]
        chunks = [orjson.loads(b[6:]) for b in blocks if b.startswith(b"data: {")]
        return "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])


class Trigger:
    """Calls `act` the moment that the clients have got a mark so many times."""

    def __init__(self, mark: bytes, count: int, act: Callable[[], None]) -> None:
        self._mark, self._left, self._act = mark, count, act
        self._lock = threading.Lock()
        self.done = threading.Event()

    def see(self, block: bytes) -> None:
        with self._lock:
            self._left -= block.count(self._mark)
            if self._left <= 0 and not self.done.is_set():
                self._act()
                self.done.set()


class Client:
    """Asks again and again, in one conversation, until the server is gone."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.got: list[Got] = []
        self._messages: list[dict[str, str]] = []

    def talk(self, server: ServerProcess, trigger: Trigger) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE)
        with contextlib.suppress(OSError, http.client.HTTPException):
            while True:
                self._ask(connection, trigger)
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection, trigger: Trigger) -> None:
        got = Got(self.name * 100_000 + len(self.got))
        self.got.append(got)
        prompt = {"role": "user", "content": f"prompt {got.number}"}
        body = {"model": "any", "stream": True, "messages": [*self._messages, prompt]}
        path, headers = self._session()
        connection.request("POST", f"{path}/chat/completions", orjson.dumps(body), headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        got.turn = response.headers["X-Turn-Id"]
        trigger.see(BEGUN)
        while block := response.read1(65536):
            trigger.see(block)
            got.body += block
        assert got.is_whole
        self._messages += [prompt, {"role": "assistant", "content": got.text}]

    def _session(self) -> tuple[str, dict[str, str]]:
        """Each client names its session in another way; the last one has none."""
        headers = {"Content-Type": "application/json"}
        if self.name == 0:
            return "/v1", headers | {"X-Session-Id": "by header"}
        return ("/s/by-url/v1", headers) if self.name == 1 else ("/v1", headers)


# -- the rounds ------------------------------------------------------------------------------------


def play(server: ServerProcess, clients: list[Client], mark: bytes, count: int) -> None:
    """Let the clients talk, and kill the server with all of its processes in the midst of it."""
    trigger = Trigger(mark, count, lambda: server.send_all(signal.SIGKILL))
    threads = [threading.Thread(target=client.talk, args=(server, trigger)) for client in clients]
    for thread in threads:
        thread.start()
    assert trigger.done.wait(DEADLINE)
    server.popen.wait(DEADLINE)
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()


def check(path: Path, clients: list[Client]) -> None:
    """The store, right after a server has started on it again."""
    store = Store(path)
    assert store.sql("PRAGMA integrity_check") == [("ok",)]
    assert store.sql("PRAGMA foreign_key_check") == []
    for table in ("turns", "runs", "steps"):
        assert store.sql(f"SELECT id FROM {table} WHERE status NOT IN {ENDED}") == [], table
    for client in clients:
        for got in client.got:
            if got.is_whole:
                _check_whole(store, got)
            elif got.turn is not None:
                _check_begun(store, got)
    check_sums(store)
    check_payloads(store)
    store.close()


ENDED = "('success', 'error', 'cancelled')"
TURN = "SELECT status, ended_by, final_output, attempts, output_tokens FROM turns WHERE id = ?"


def _check_whole(store: Store, got: Got) -> None:
    """Everything about an answer that its client got whole."""
    text = "".join(script(got.number))
    assert got.text == text
    [(*turn, tokens)] = store.sql(TURN, (got.turn,))
    turn[2] = _text(store, turn[2])
    assert turn == ["success", "finished", text, 1]
    assert tokens == len(script(got.number))
    [step] = store.sql(
        "SELECT status, finish_reason, output_payload, partial_output FROM steps WHERE turn_id = ?",
        (got.turn,),
    )
    assert (step[0], step[1], step[3]) == ("success", "stop", None)
    answer = orjson.loads(payloads.load(store, step[2]))
    assert answer["choices"][0]["message"]["content"] == text
    query = "SELECT content FROM messages WHERE turn_id = ? AND role = 'assistant' AND step_id = ("
    query += "SELECT id FROM steps WHERE turn_id = ?)"
    [(content,)] = store.sql(query, (got.turn, got.turn))
    assert _text(store, content) == text
    events = "SELECT type FROM events WHERE turn_id = packed_id(?, 'turn') ORDER BY seq"
    types = [type for (type,) in store.sql(events, (got.turn,))]
    assert (types[0], types[-1]) == ("turn.started", "turn.completed")
    assert types.count("turn.completed") == 1


def _check_begun(store: Store, got: Got) -> None:
    """An answer that its client got a part of: its start is there, and nothing untrue."""
    [(status, ended_by, output, *_)] = store.sql(TURN, (got.turn,))
    text = "".join(script(got.number))
    assert text.startswith(got.text)
    output = _text(store, output)
    if status == "success":
        assert output == text
    else:
        assert ended_by in ("crash", "client_disconnect")
        assert text.startswith(output or "")


def _text(store: Store, column: str | None) -> str | None:
    """What a column holds, or names: long texts are payloads."""
    row: dict[str, str | None] = {"text": column}
    bring_back(store, [row], ("text",))
    return row["text"]


def check_sums(store: Store) -> None:
    """Indexes have no gaps, and totals are those of the rows; at one moment, work may go on."""
    with snapshot(store):
        query = "SELECT id, turn_count, message_count, output_tokens FROM sessions"
        for row in store.sql(query):
            _check_session(store, *row)


def _check_session(
    store: Store, id: str, turn_count: int, message_count: int, tokens: int | None
) -> None:
    turns = store.sql(
        "SELECT turn_index, output_tokens FROM turns WHERE session_id = ? ORDER BY turn_index",
        (id,),
    )
    assert [index for index, _ in turns] == list(range(turn_count))
    assert (tokens or 0) == sum(count or 0 for _, count in turns)
    count = "SELECT count(*), max(message_index) FROM messages WHERE session_id = ?"
    assert store.sql(count, (id,)) == [(message_count, message_count - 1)]


def check_payloads(store: Store) -> None:
    """Nothing refers to a body that is not there."""
    places = {
        "turns": ("input_payload", "config_snapshot"),
        "steps": ("input_payload", "output_payload"),
        "request_logs": ("request_payload", "response_body"),
    }
    keys = {
        key
        for table, columns in places.items()
        for column in columns
        for (key,) in store.sql(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL")
    }
    assert len(payloads.load_many(store, keys)) == len(keys)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    model = Model()
    with installed(tmp_path, CONFIG.format(port=model.port), XGW) as one:
        yield one
    model.close()


def test_nothing_that_a_client_got_is_lost(installation: Installation) -> None:
    chance = random.Random(20260102)
    clients = [Client(name) for name in range(CLIENTS)]
    server = installation.serve()
    for number in range(ROUNDS):
        mark, most = list(MARKS.items())[number % len(MARKS)]
        count = chance.randrange(1, most)
        play(server, clients, mark, count)
        server = installation.serve()
        check(installation.store, clients)
        answers = [got for client in clients for got in client.got]
        log.info(
            "round %d, killed after %d times %r: %d answers whole, %d cut so far",
            number + 1,
            count,
            mark,
            sum(got.is_whole for got in answers),
            sum(not got.is_whole and got.turn is not None for got in answers),
        )
    assert server.stop() == 0
    whole = sum(got.is_whole for client in clients for got in client.got)
    cut = sum(bool(got.body) and not got.is_whole for client in clients for got in client.got)
    assert whole > ROUNDS
    assert cut > 0
    with contextlib.closing(sqlite3.connect(installation.store)) as connection:
        [(turns,)] = connection.execute("SELECT count(*) FROM turns").fetchall()
    assert whole + cut <= turns <= sum(len(client.got) for client in clients)


if __name__ == "__main__":
    os.environ["XGW_KILL_ROUNDS"] = sys.argv[1] if len(sys.argv) > 1 else "20"
    sys.exit(pytest.main([__file__, "-q", "--log-cli-level=INFO"]))
