"""A model that follows a script, on a real socket, and the bodies that it and its clients send."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from scripted_upstream import Peer, Upstream
from servers import DEADLINE

Row = dict[str, Any]


# -- the model -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A request as the model got it."""

    head: bytes
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n")[0].decode()

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Names in lower case."""
        pairs = [line.decode("latin-1").partition(": ") for line in self.head.split(b"\r\n")[1:]]
        return [(name.lower(), value) for name, _, value in pairs]


Answer = Callable[[Peer, Asked], None]


class Model:
    """An upstream: each request it gets is answered by the next of the planned answers."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._planned: deque[Answer] = deque()
        self._unplanned = 0
        self._usual: Answer | None = None
        self._lock = threading.Lock()
        self._upstream = Upstream(*[self._serve] * 2000)
        self.url = f"{self._upstream.url}/v1"

    def will(self, *answers: Answer) -> None:
        """Plan the next answers."""
        self._planned.extend(answers)

    def always(self, answer: Answer | None) -> None:
        """What to answer where nothing is planned; None makes that a fault again."""
        self._usual = answer

    def start_over(self) -> None:
        """A test begins."""
        self.asked.clear()
        self._usual = None

    def was_asked(self) -> bool:
        """Whether a request has come that a planned answer is on its way to."""
        with self._lock:
            return bool(self.asked)

    def check(self) -> None:
        """A test ended: nothing was asked that was not planned, and everything was asked."""
        left, more = len(self._planned), self._unplanned
        self._planned.clear()
        self._unplanned = 0
        assert (left, more) == (0, 0), f"{left} answers not asked for, {more} not planned"

    def close(self) -> None:
        self._upstream.close()

    def _serve(self, peer: Peer) -> None:
        with contextlib.suppress(ConnectionError):
            while peer.sock.fileno() >= 0 and _has_more(peer):
                asked = Asked(*peer.request())
                self._next(asked)(peer, asked)

    def _next(self, asked: Asked) -> Answer:
        with self._lock:
            self.asked.append(asked)
            if self._planned:
                return self._planned.popleft()
            if self._usual is not None:
                return self._usual
            self._unplanned += 1
            return whole({"error": {"message": "nothing is planned"}}, status="418 No Plan")


def _has_more(peer: Peer) -> bool:
    peer.sock.settimeout(None)
    more = bool(peer.sock.recv(1, socket.MSG_PEEK))
    peer.sock.settimeout(DEADLINE)
    return more


def whole(body: Any, *, status: str = "200 OK", headers: str = "", kind: str = "json") -> Answer:
    """One body with its length."""
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    label = f"Content-Type: application/{kind}\r\n" if kind else ""

    def answer(peer: Peer, _: Asked) -> None:
        peer.answer(content, status=status, headers=label + headers)

    return answer


CUT, RESET, HANG = "cut", "reset", "hang"
Piece = bytes | Row | threading.Event | str | Callable[[], object]


def stream(*pieces: Piece, headers: str = "", label: str = "text/event-stream") -> Answer:
    """A chunked body, one chunk a piece: bytes as they are, a dict as an event; an event is waited
    for, a function called; CUT, RESET and HANG (until xgw hangs up) end it badly."""

    def answer(peer: Peer, _: Asked) -> None:
        kind = f"Content-Type: {label}\r\n" if label else ""
        peer.send(f"HTTP/1.1 200 OK\r\n{kind}{headers}Transfer-Encoding: chunked\r\n\r\n".encode())
        for piece in pieces:
            if isinstance(piece, str):
                {CUT: peer.sock.close, RESET: peer.reset, HANG: peer.wait_for_end}[piece]()
                peer.sock.close()
                return
            _send(peer, piece)
        peer.send(b"0\r\n\r\n")

    return answer


def _send(peer: Peer, piece: bytes | Row | threading.Event | Callable[[], object]) -> None:
    if isinstance(piece, threading.Event):
        assert piece.wait(DEADLINE)
    elif isinstance(piece, bytes | dict):
        block = piece if isinstance(piece, bytes) else event(piece)
        peer.send(f"{len(block):x}\r\n".encode() + block + b"\r\n")
    else:
        piece()


def raw(*blocks: bytes, then: str = CUT) -> Answer:
    """Exactly these bytes."""

    def answer(peer: Peer, _: Asked) -> None:
        for block in blocks:
            peer.send(block)
        {CUT: peer.sock.close, RESET: peer.reset, HANG: peer.wait_for_end}[then]()
        peer.sock.close()

    return answer


def event(value: Row) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chunk(*choices: Row, **more: Any) -> Row:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m-served"}
    return head | {"choices": list(choices)} | more


def delta(text: str | None = None, index: int = 0, **fields: Any) -> Row:
    said = fields if text is None else {"content": text} | fields
    return chunk({"index": index, "delta": said, "finish_reason": None})


def finish(reason: str = "stop", index: int = 0, **more: Any) -> Row:
    return chunk({"index": index, "delta": {}, "finish_reason": reason}, **more)


def counts(sent: int, received: int, **more: Any) -> Row:
    return {
        "prompt_tokens": sent,
        "completion_tokens": received,
        "total_tokens": sent + received,
    } | more


def usage(sent: int, received: int, **more: Any) -> Row:
    return chunk(usage=counts(sent, received, **more))


def call(call_id: str, name: str = "look", arguments: str = "{}") -> Row:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def completion(text: str | None = "ok", *calls: Row, **more: Any) -> Row:
    """A whole answer; it asks for tools where `calls` are given."""
    message: Row = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = list(calls)
    reason = "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m-served",
        "choices": [choice],
        "usage": counts(7, 3),
    } | more


def says(text: str = "ok") -> Answer:
    return whole(completion(text))


def streams(*texts: str, reason: str = "stop") -> Answer:
    return stream(delta(role="assistant"), *map(delta, texts), finish(reason), usage(7, 3), DONE)


def asks_for(*call_ids: str) -> Answer:
    """An answer that asks for tools."""
    return whole(completion(None, *map(call, call_ids)))


# -- requests --------------------------------------------------------------------------------------


def user(text: Any) -> Row:
    return {"role": "user", "content": text}


def said(text: str | None, *calls: Row) -> Row:
    return {"role": "assistant", "content": text} | ({"tool_calls": list(calls)} if calls else {})


def result(call_id: str, text: str = "found") -> Row:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def chat(*messages: str | Row, model: str = "m", **fields: Any) -> Row:
    """A chat request; a text is a user message. `metadata` and others as given."""
    elements = [user(m) if isinstance(m, str) else m for m in messages or ("hi",)]
    return {"model": model, "messages": elements, **fields}


def named(session: str | None = None, turn: str | None = None, **more: Any) -> Row:
    """Metadata that names a session and a turn."""
    metadata = {"session_id": session, "turn_id": turn} | more
    return {"metadata": {k: v for k, v in metadata.items() if v is not None}}
