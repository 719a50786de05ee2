"""The load: clients on kept-alive connections that each send their next request on an answer."""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from dataclasses import dataclass

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)


@dataclass(frozen=True)
class Load:
    """What a load measured: seconds for each request, and for all of them together."""

    latencies: list[float]
    seconds: float

    @property
    def median_ms(self) -> float:
        return statistics.median(self.latencies) * 1000

    @property
    def requests_per_second(self) -> float:
        return len(self.latencies) / self.seconds


class Client(asyncio.Protocol):
    """One client: sends `request` for as long as `budget` holds a request to be sent."""

    transport: asyncio.Transport

    def __init__(self, request: bytes, budget: list[int], latencies: list[float]) -> None:
        self.request, self.budget, self.latencies = request, budget, latencies
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received = b""
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.send()

    def send(self) -> None:
        if not self.budget[0]:
            self.done.set_result(None)
            self.transport.close()
            return
        self.budget[0] -= 1
        self.received = b""
        self.sent_at = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        if not is_complete(self.received):
            return
        self.latencies.append(time.perf_counter() - self.sent_at)
        if self.received[9:12] == b"200":
            self.send()
        else:
            self.fail(self.received[:400].decode("latin-1"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(f"the connection was closed: {exc}")

    def fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(why))
            self.transport.close()


def is_complete(received: bytes) -> bool:
    """Whether a whole answer is there, by its length or its last chunk."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return False
    if length := _LENGTH.search(received, 0, end):
        return len(received) >= end + 4 + int(length[1])
    return bool(_CHUNKED.search(received, 0, end)) and received.endswith(b"\r\n0\r\n\r\n")


async def run_load(port: int, body: bytes, *, clients: int, requests: int) -> Load:
    """`requests` chat completions by `clients` at once; ConnectionError unless all answer 200."""
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    latencies: list[float] = []
    budget = [requests]
    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    made = [
        await loop.create_connection(
            lambda: Client(head.encode() + body, budget, latencies), "127.0.0.1", port
        )
        for _ in range(clients)
    ]
    await asyncio.gather(*(client.done for _, client in made))
    return Load(latencies, time.perf_counter() - started)
