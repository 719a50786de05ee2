"""Who plays in the pictures of the documentation: models that answer at a human pace, and clients.

The clients are real; a hosted model is played by a scripted upstream.
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from faults import Running
from gateway_fixtures import Reading
from scripted_model import (
    DONE,
    Answer,
    Asked,
    Model,
    Piece,
    Row,
    call,
    delta,
    finish,
    result,
    said,
    stream,
    usage,
    user,
    whole,
)
from scripted_upstream import Peer
from xgw.accounting.tokens import TokenCounter

SERVED = {"model": "gpt-4o-2024-08-06"}
"""What the upstreams call the model that answers."""

# -- what models say -------------------------------------------------------------------------------


def _wait(seconds: float) -> Piece:
    return lambda: threading.Event().wait(seconds)


def _slowly(*pieces: Row, first: float, pause: float) -> Iterator[Piece]:
    """Events of the model that answers; `first` is the time to the first of them."""
    for number, piece in enumerate(pieces):
        yield _wait(pause if number else first)
        yield piece | SERVED


def _texts(text: str) -> list[Row]:
    return [delta(role="assistant"), *map(delta, re.findall(r"\S+\s*", text))]


class _Meter:
    """Counts as a hosted model bills: what was sent, and how much of it was sent before.

    The start that a conversation shares with its last request is served from the cache if it has
    1,024 tokens or more, in steps of 128.
    """

    def __init__(self) -> None:
        self._counter = TokenCounter()
        self._counter.load()
        self._before: dict[str, int] = {}

    def usage(self, asked: Asked, *said: str) -> Row:
        """The usage event of an answer that consists of these texts."""
        body = asked.json
        sent = self._counter.estimate_request(body["messages"], body.get("tools"), body["model"])
        received = sum(self._counter.count_text(text, body["model"]) or 0 for text in said)
        start = body["messages"][0]["content"]
        before = self._before.get(start, 0)
        cached = before // 128 * 128 if before >= 1024 else 0
        self._before[start] = sent or 0
        return usage(sent or 0, received, prompt_tokens_details={"cached_tokens": cached})


@functools.cache
def _meter() -> _Meter:
    return _Meter()


def _answers(*pieces: Row, said: Iterable[str], first: float, pause: float) -> Answer:
    """A stream at a human pace, with its usage at the end."""

    def answer(peer: Peer, asked: Asked) -> None:
        counted = _meter().usage(asked, *said)
        stream(*_slowly(*pieces, counted, first=first, pause=pause), DONE)(peer, asked)

    return answer


def writes(text: str) -> Answer:
    """A streamed text."""
    return _answers(*_texts(text), finish(), said=[text], first=0.4, pause=0.02)


def begins(text: str, until: threading.Event) -> Answer:
    """A streamed text whose end is held back."""
    return stream(*_slowly(*_texts(text), first=0.6, pause=0.03), until.wait, finish(), DONE)


def asks_for(*calls: Row) -> Answer:
    """A streamed answer that asks for tools."""
    asked = [delta(tool_calls=[{"index": n} | one]) for n, one in enumerate(calls)]
    said = [orjson.dumps(one["function"]).decode() for one in calls]
    pieces = (delta(role="assistant"), *asked, finish("tool_calls"))
    return _answers(*pieces, said=said, first=0.5, pause=0.15)


def refuses(status: str, message: str, headers: str = "") -> Answer:
    """An error, after a moment."""
    error = {"message": message, "type": "server_error", "param": None, "code": None}
    answer = whole({"error": error}, status=status, headers=headers)

    def answer_later(peer: Peer, asked: Asked) -> None:
        threading.Event().wait(0.3)
        answer(peer, asked)

    return answer_later


RATE_LIMIT = refuses(
    "429 Too Many Requests",
    "Rate limit reached for gpt-4o: 30000 tokens per minute.",
    "Retry-After: 1\r\n",
)
OVERLOADED = refuses("503 Service Unavailable", "The engine is overloaded, try again later.")


def use(name: str, **arguments: Any) -> Row:
    """The call of a tool."""
    return call(f"call_{next(_numbers):04x}", name, orjson.dumps(arguments).decode())


_numbers = itertools.count(0x9F2C)

# -- who talks to them -----------------------------------------------------------------------------


class Stage:
    """xgw, with the upstreams behind it."""

    def __init__(self, gate: Running, openai: Model, backup: Model) -> None:
        self.gate = gate
        self.openai = openai
        self.backup = backup
        self.under_way: list[Reading] = []
        self.held = threading.Event()

    def session(self, key: str) -> str:
        """The address of a session's page."""
        return f"/ui/sessions/{self.gate.session(key)['id']}"

    def turn(self, key: str, number: int = -1) -> str:
        """The address of the page of one of a session's turns."""
        return f"/ui/turns/{self.gate.turns(key)[number]['id']}"

    def step(self, key: str, number: int = -1) -> str:
        """The address of the page of the last model call of one of a session's turns."""
        turn = self.gate.turns(key)[number]
        return f"/ui/steps/{self.gate.steps(turn, 'llm_call')[-1]['id']}"


class Talk:
    """One conversation: its client sends all that was said so far each time, as clients do."""

    def __init__(self, stage: Stage, key: str, model: str = "gpt-4o", **fields: Any) -> None:
        self._stage = stage
        self._fixed = {"model": model, "metadata": {"session_id": key}} | fields
        self._messages: list[Row] = []

    def says(self, text: str) -> None:
        """The system's or the user's next message; nothing is asked yet."""
        self._messages.append(user(text) if self._messages else {"role": "system", "content": text})

    def asks(self, text: str, *answers: Answer, backup: tuple[Answer, ...] = ()) -> None:
        """A user's message, and what the upstreams will answer to it."""
        self._messages.append(user(text))
        self.goes_on(*answers, backup=backup)

    def goes_on(self, *answers: Answer, backup: tuple[Answer, ...] = ()) -> None:
        """The conversation as it is, sent; the answer becomes part of it."""
        reply = self._send(*answers, backup=backup).rest()
        if reply.status == 200:
            self._messages.append(_message(reply.body))

    def ran(self, seconds: float, *results: Any) -> None:
        """Its tools ran; what came out for each call of the last answer."""
        threading.Event().wait(seconds)
        calls = self._messages[-1]["tool_calls"]
        for wanted, found in zip(calls, results, strict=True):
            self._messages.append(result(wanted["id"], orjson.dumps(found).decode()))

    def waits(self, *answers: Answer, seen: bytes, backup: tuple[Answer, ...] = ()) -> None:
        """As `goes_on`, but the answer stays under way once `seen` has come."""
        reading = self._send(*answers, backup=backup)
        reading.until(seen)
        self._stage.under_way.append(reading)

    def _send(self, *answers: Answer, backup: tuple[Answer, ...]) -> Reading:
        self._stage.openai.will(*answers)
        self._stage.backup.will(*backup)
        body = self._fixed | {"messages": self._messages, "stream": True}
        return self._stage.gate.open(body)


def _message(body: bytes) -> Row:
    """What the assistant said, put together from the events of its stream."""
    text, calls = "", []
    for data in re.findall(rb"^data: (\{.*\})$", body, re.MULTILINE):
        for choice in orjson.loads(data)["choices"]:
            text += choice["delta"].get("content") or ""
            calls += choice["delta"].get("tool_calls") or []
    kept = [{name: part for name, part in one.items() if name != "index"} for one in calls]
    return said(text or None, *kept)
