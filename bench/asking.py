"""One client that asks and waits: lists that are read, and a conversation that resends its history.

Runs in the loader's process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import cast

from bench import bodies, wire
from bench.load import MS
from bench.wire import Answer

ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class Reads:
    """Paths to read, each `times` times after once that does not count."""

    port: int
    paths: list[str]
    times: int


@dataclass(frozen=True)
class Conversation:
    """A session of `turns` turns, each of which sends all that was said before.

    Around the turns in `sampled` (first, last) the same body goes to `direct` first.
    """

    direct: int
    through: int
    session_key: str
    turns: int
    question_size: int
    sampled: list[tuple[int, int]]


@dataclass
class Talk:
    """`direct`, `through`: milliseconds of the sampled turns, a list for each span.

    `content` is the size of all that was said, once: the last request and its answer.
    """

    direct: list[list[float]] = field(default_factory=list)
    through: list[list[float]] = field(default_factory=list)
    content: int = 0


class Asker(asyncio.Protocol):
    """A connection that answers are awaited on, one by one."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._answer = Answer()
        self._asked = False
        self._came: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._answer.feed(data) and not self._came.done():
            self._came.set_result(time.monotonic_ns())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._asked and not self._came.done():
            self._came.set_exception(ConnectionError(f"the connection was closed: {exc}"))

    async def ask(self, request: bytes) -> tuple[float, bytes]:
        """Milliseconds and the body; ConnectionError unless the answer is 200."""
        self._answer = Answer()
        self._came = asyncio.get_running_loop().create_future()
        self._asked = True
        sent = time.monotonic_ns()
        self.transport.write(request)
        async with asyncio.timeout(ANSWER_SECONDS):
            came = await self._came
        self._asked = False
        if self._answer.status != 200:
            raise ConnectionError(self._answer.body()[:400].decode("latin-1"))
        return (came - sent) / MS, self._answer.body()


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Asker]:
    """A connection to a port of this machine."""
    loop = asyncio.get_running_loop()
    transport, asker = await loop.create_connection(Asker, "127.0.0.1", port)
    try:
        yield asker
    finally:
        transport.close()


async def read_pages(reads: Reads) -> list[list[float]]:
    """The milliseconds of each reading, a list for each path."""
    found = []
    async with connected(reads.port) as asker:
        for path in reads.paths:
            request = wire.get(path)
            await asker.ask(request)
            found.append([(await asker.ask(request))[0] for _ in range(reads.times)])
    return found


async def converse(conversation: Conversation) -> Talk:
    """Have the conversation; the answers become part of its history."""
    talk = Talk([[] for _ in conversation.sampled], [[] for _ in conversation.sampled])
    headers = f"X-Session-Id: {conversation.session_key}\r\n"
    elements = [bodies.SYSTEM]
    async with connected(conversation.direct) as direct, connected(conversation.through) as through:
        for turn in range(1, conversation.turns + 1):
            elements.append(_question(turn, conversation.question_size))
            body = b'{"model":"bench","messages":[%b]}' % b",".join(elements)
            request = wire.post(body, headers)
            spans = [n for n, (a, b) in enumerate(conversation.sampled) if a <= turn <= b]
            for span in spans:
                talk.direct[span].append((await direct.ask(request))[0])
            took, answer = await through.ask(request)
            for span in spans:
                talk.through[span].append(took)
            said = json.loads(answer)["choices"][0]["message"]["content"]
            elements.append(bodies.message("assistant", said))
            talk.content = len(body) + len(elements[-1])
    return talk


def _question(turn: int, size: int) -> bytes:
    number = bodies.serial()
    return bodies.message("user", f"{number} {bodies.text(size, seed=turn)}"[:size])
