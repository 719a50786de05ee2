"""The upstream that is measured against: an OpenAI-compatible API that answers at once.

`python -m bench.upstream` prints its port and serves until it is stopped. A model `…-NxP` streams N
tokens, P milliseconds apart (0: all at once), each the time at which it was written; any other one
streams words. Where tools are offered, a question is answered by calling the first one. Paths that
begin with /failing answer 503.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from functools import cache
from typing import cast

from bench import bodies, wire
from bench.event_loop import run

CREATED = 1750000000
CONTENT = bodies.text(600, seed=3)
USAGE = {"prompt_tokens": 420, "completion_tokens": 128, "total_tokens": 548}
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
MODELS = wire.ok(json.dumps({"object": "list", "data": []}).encode())
OVERLOADED = wire.ok(
    b'{"error":{"message":"The model is overloaded.","type":"server_error","code":null}}',
    status="503 Service Unavailable",
)
OPTIONS_WITHIN = 400
"""Options stand at either end of a body: a long conversation is not searched for them."""

_MODEL = re.compile(rb'"model": *"([^"]+)"')
_PACE = re.compile(r"-(\d+)x([\d.]+)$")
_TOOL = re.compile(rb'"tools": *\[.*?"name": *"([^"]+)"', re.DOTALL)
_SERIAL = "@serial@"


def _numbered(content: str) -> str:
    """The text with a serial number of its own in its places for one."""
    return content.replace(_SERIAL, bodies.serial())


@cache
def _completion(model: str, tool: str | None) -> str:
    called = {
        "id": f"call_{_SERIAL}",
        "type": "function",
        "function": {"name": tool, "arguments": f'{{"query": "number {_SERIAL}"}}'},
    }
    said: dict[str, object] = {"content": f"{_SERIAL} {CONTENT}", "refusal": None}
    asked = {"content": None, "tool_calls": [called]}
    choice = {
        "index": 0,
        "message": {"role": "assistant", **(asked if tool else said)},
        "logprobs": None,
        "finish_reason": "tool_calls" if tool else "stop",
    }
    return json.dumps(
        {
            "id": f"chatcmpl-{_SERIAL}",
            "object": "chat.completion",
            "created": CREATED,
            "model": model,
            "choices": [choice],
            "usage": USAGE,
        }
    )


def _event(head: str, choices: str, more: str = "") -> bytes:
    return f'data: {{{head},"choices":[{choices}]{more}}}\n\n'.encode()


def _choice(delta: str, finish_reason: str = "null") -> str:
    return f'{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish_reason}}}'


class Stream:
    """One streamed answer: each token at its time, however late the one before it was."""

    def __init__(self, transport: asyncio.Transport, model: str, *, usage: bool) -> None:
        paced = _PACE.search(model)
        number = bodies.serial()
        self._left, self._pace = (int(paced[1]), float(paced[2]) / 1000) if paced else (0, 0.0)
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time()
        head = (
            f'"id":"chatcmpl-{number}","object":"chat.completion.chunk",'
            f'"created":{CREATED},"model":{json.dumps(model)}'
        )
        self._token = _event(head, _choice('{"content":"T%d "}'))
        ending = _event(head, _choice("{}", '"stop"'))
        ending += _event(head, "", f',"usage":{json.dumps(USAGE)}') if usage else b""
        self._ending = wire.chunk(ending + b"data: [DONE]\n\n") + wire.LAST_CHUNK
        words = [] if paced else [number, *CONTENT.split()]
        said = [
            '{"role":"assistant","content":""}',
            *(f'{{"content":"{word} "}}' for word in words),
        ]
        events = (wire.chunk(_event(head, _choice(delta))) for delta in said)
        transport.write(STREAM_HEAD + b"".join(events))
        self._step()

    def _step(self) -> None:
        if self._transport.is_closing():
            return
        if not self._left:
            self._transport.write(self._ending)
            return
        self._left -= 1
        self._transport.write(wire.chunk(self._token % time.monotonic_ns()))
        if self._pace:
            self._due += self._pace
            self._loop.call_at(self._due, self._step)
        else:
            self._loop.call_soon(self._step)


class Connection(asyncio.Protocol):
    """One kept-alive connection; requests carry a Content-Length."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._received = bytearray()
        self._whole = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= self._whole:
            end = self._received.find(wire.HEAD_END)
            if end < 0:
                return
            length = wire.LENGTH.search(self._received, 0, end)
            self._whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._received) < self._whole:
                return
            head, body = self._received[:end], bytes(self._received[end + 4 : self._whole])
            del self._received[: self._whole]
            self._whole = 0
            self._answer(bytes(head), body)

    def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET"):
            self.transport.write(MODELS)
        elif head.startswith(b"POST /failing"):
            self.transport.write(OVERLOADED)
        else:
            self._complete(body)

    def _complete(self, body: bytes) -> None:
        options = body[:OPTIONS_WITHIN] + body[-OPTIONS_WITHIN:]
        named = _MODEL.search(options)
        model = named[1].decode() if named else "bench"
        if b'"stream":true' in options:
            Stream(self.transport, model, usage=b'"include_usage":true' in options)
            return
        tool = _TOOL.search(options)
        asked = tool and body.rfind(b'"role":"user"') > body.rfind(b'"role":"tool"')
        answer = _completion(model, tool[1].decode() if tool and asked else None)
        self.transport.write(wire.ok(_numbered(answer).encode()))


async def serve() -> None:
    """Serve on a free port of the loopback interface, which is printed."""
    server = await asyncio.get_running_loop().create_server(
        Connection, "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    run(serve())
