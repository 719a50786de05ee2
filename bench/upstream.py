"""The upstream that the measurements use: every POST gets one ready-made chat completion at once.

`python -m bench.upstream` prints the port that it listens on and serves until it is stopped.
"""

from __future__ import annotations

import asyncio
import json
import re

MODEL = "bench-model"
CONTENT = "A write-ahead log lets readers see the old pages while one writer appends. " * 8
ANSWER = {
    "id": "chatcmpl-bench",
    "object": "chat.completion",
    "created": 1750000000,
    "model": MODEL,
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": CONTENT, "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 420, "completion_tokens": 128, "total_tokens": 548},
}
MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "bench"}]}

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def http_answer(body: object) -> bytes:
    """A complete HTTP/1.1 answer, 200 and JSON."""
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    return head.encode() + b"\r\n\r\n" + content


COMPLETION, MODEL_LIST = http_answer(ANSWER), http_answer(MODELS)


class Connection(asyncio.Protocol):
    """One kept-alive connection; requests carry a Content-Length."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self.received, 0, end)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self.received) < whole:
                return
            self.transport.write(COMPLETION if self.received.startswith(b"POST") else MODEL_LIST)
            self.received = self.received[whole:]


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
