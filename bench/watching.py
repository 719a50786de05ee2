"""A reader of `/events` beside streams that run: how long after a fact or a token it knows of it.

Runs in the loader's process.
"""

from __future__ import annotations

import asyncio
import datetime
import re
import time
from dataclasses import dataclass, field
from typing import cast

from bench import bodies, wire
from bench.load import MS, Calls, run_calls

JOIN_SECONDS = 10.0
LAST_SECONDS = 0.3
"""How long the last events may still be on their way."""

_FACT = re.compile(rb'"type":"([a-z_.]+)","at":"([^"]+)"')


@dataclass(frozen=True)
class Watching:
    """The streams to watch, by their load on xgw."""

    calls: Calls


@dataclass
class Seen:
    """Milliseconds: from a stored event's time to the reader, from a token's to the reader."""

    events: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)


class Reader(asyncio.Protocol):
    """A reader of server-sent events; `joined` is set once the first bytes are there."""

    def __init__(self) -> None:
        self.joined = asyncio.Event()
        self.seen = Seen()
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(wire.get("/events"))

    def data_received(self, data: bytes) -> None:
        monotonic, now = time.monotonic_ns(), time.time()
        *frames, self._unread = (self._unread + data).split(b"\n\n")
        for frame in frames:
            self._note(frame, monotonic, now)
        if b": connected" in data:
            self.joined.set()

    def _note(self, frame: bytes, monotonic: int, now: float) -> None:
        fact = _FACT.search(frame)
        if fact is None:
            return
        if fact[1] == b"step.delta":
            marks = bodies.MARK.finditer(frame)
            self.seen.tokens += [(monotonic - int(mark[1])) / MS for mark in marks]
        elif fact[1] != b"step.progress":
            at = datetime.datetime.fromisoformat(fact[2].decode())
            self.seen.events.append((now - at.timestamp()) * 1000)


async def watch(watching: Watching) -> Seen:
    """Join, let the streams run, and leave when their last events must have come."""
    loop = asyncio.get_running_loop()
    transport, reader = await loop.create_connection(Reader, "127.0.0.1", watching.calls.port)
    try:
        async with asyncio.timeout(JOIN_SECONDS):
            await reader.joined.wait()
        await run_calls(watching.calls)
        await asyncio.sleep(LAST_SECONDS)
    finally:
        transport.close()
    return reader.seen
