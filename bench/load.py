"""The load: clients on kept-alive connections that each send their next request on an answer.

Runs in the loader's process. Latencies are milliseconds; what a token took on its way is reckoned
from the time that it carries.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from bench import bodies, wire
from bench.wire import Answer

MS = 1e6
"""Nanoseconds in a millisecond."""

NextRequest = Callable[[], bytes | None]


@dataclass(frozen=True)
class Calls:
    """What to send: `requests` by `clients` at once, none begun after `seconds`.

    Each client begins at a random moment of the first `spread_ms`, as streams in use do.
    """

    port: int
    requests: int
    clients: int = 1
    model: str = "bench"
    stream: bool = False
    size: int = 2048
    spread_ms: float = 0.0
    seconds: float = 30.0


@dataclass
class Load:
    """What was measured. `rates` are tokens a second, one for each stream of several tokens."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    first_tokens: list[float] = field(default_factory=list)
    transits: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def add(self, other: Load) -> None:
        """Take in another part of the same load."""
        self.latencies += other.latencies
        self.seconds += other.seconds
        self.first_tokens += other.first_tokens
        self.transits += other.transits
        self.rates += other.rates

    @property
    def requests_per_second(self) -> float:
        """Answers, over the time that all of them took together."""
        return len(self.latencies) / self.seconds


class Client(asyncio.Protocol):
    """One client: asks for as long as `next_request` has a request for it."""

    transport: asyncio.Transport

    def __init__(self, next_request: NextRequest, load: Load, *, streams: bool) -> None:
        self._next_request = next_request
        self._load = load
        self._streams = streams
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = False
        self._answer = Answer()
        self._sent = 0
        self._marks: list[int] = []
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    async def run(self, delay: float) -> None:
        """Begin after `delay` seconds; ConnectionError unless every answer is 200."""
        await asyncio.sleep(delay)
        self._ask()
        await self._done

    def _ask(self) -> None:
        request = self._next_request()
        if request is None:
            self._done.set_result(None)
            return
        self._answer = Answer()
        self._marks = []
        self._sent = time.monotonic_ns()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if self._streams:
            self._read_marks(data, now)
        if not self._answer.feed(data):
            return
        if self._answer.status != 200:
            self._fail(self._answer.body()[:400].decode("latin-1"))
            return
        self._load.latencies.append((now - self._sent) / MS)
        if len(self._marks) > 1:
            # On a busy machine all of them may come at once.
            begun = self._marks[0] if self._marks[-1] > self._marks[0] else self._sent
            lasted = self._marks[-1] - begun
            self._load.rates.append((len(self._marks) - 1) * 1e9 / lasted)
        self._ask()

    def _read_marks(self, data: bytes, now: int) -> None:
        """Note the tokens that are whole; `marks` are the times at which they came."""
        text, end = self._unread + data, 0
        for mark in bodies.MARK.finditer(text):
            end = mark.end()
            if not self._marks:
                self._load.first_tokens.append((now - self._sent) / MS)
            self._marks.append(now)
            self._load.transits.append((now - int(mark[1])) / MS)
        self._unread = text[max(end, len(text) - 32) :]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closing:
            self._fail(f"the connection was closed: {exc}")

    def close(self) -> None:
        """Leave; what is under way then is nobody's business any more."""
        self._closing = True
        self.transport.close()

    def _fail(self, why: str) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError(why))


async def run_calls(calls: Calls) -> Load:
    """Connect, then measure; ConnectionError unless every answer is 200."""
    load = Load()
    chance = random.Random(calls.clients)
    next_request = _budget(calls)
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(
            lambda: Client(next_request, load, streams=calls.stream), "127.0.0.1", calls.port
        )
        for _ in range(calls.clients)
    ]
    delays = [chance.random() * calls.spread_ms / 1000 for _ in made]
    begun = time.monotonic()
    try:
        async with asyncio.timeout(calls.seconds + 30):
            await asyncio.gather(
                *(client.run(delay) for (_, client), delay in zip(made, delays, strict=True))
            )
        load.seconds = time.monotonic() - begun
    finally:
        for _, client in made:
            client.close()
    return load


def _budget(calls: Calls) -> NextRequest:
    """Requests until their number or the time is used up."""
    requests = bodies.Requests(calls.model, calls.size, stream=calls.stream)
    left, until = calls.requests, time.monotonic() + calls.seconds

    def next_request() -> bytes | None:
        nonlocal left
        if left <= 0 or time.monotonic() > until:
            return None
        left -= 1
        return wire.post(requests.next())

    return next_request
