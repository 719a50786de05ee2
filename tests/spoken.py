"""An answer that a test speaks piece by piece, and the client that reads it meanwhile."""

from __future__ import annotations

import queue
from typing import Any

from gateway_fixtures import Reading
from scripted_model import DONE, Asked, Row, chat, delta, event, finish, named, usage
from scripted_upstream import Peer
from servers import DEADLINE, eventually

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Spoken:
    """A model's answer: `say` sends a piece at once, `end` the end of it all."""

    def __init__(self) -> None:
        self._pieces: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def __call__(self, peer: Peer, _: Asked) -> None:
        peer.send(HEAD)
        while block := self._pieces.get(timeout=4 * DEADLINE):
            peer.send(f"{len(block):x}\r\n".encode() + block + b"\r\n")
        peer.send(b"0\r\n\r\n")

    def say(self, *pieces: str | Row) -> None:
        """A chunk for each: a text, or the chunk itself."""
        for piece in pieces:
            self._pieces.put(event(delta(piece) if isinstance(piece, str) else piece))

    def end(self, reason: str = "stop") -> None:
        """The answer is whole."""
        self.say(finish(reason), usage(7, 3))
        self._pieces.put(DONE)
        self.break_off()

    def break_off(self) -> None:
        """Nothing more comes."""
        self._pieces.put(b"")


class Talk:
    """A client in the midst of an answer, whose first words have come."""

    def __init__(
        self, gate: Any, session: str | None, first: str | Row = "So ", **asked: Any
    ) -> None:
        self.spoken = Spoken()
        gate.model.will(self.spoken)
        self.spoken.say(first)
        body = asked.pop("body", None) or chat("Tell me", **asked)
        self.reading: Reading = gate.open(
            {**body, "stream": True, **({} if session is None else named(session))}
        )
        self.turn: Row = gate.turn(self.reading)
        eventually(lambda: gate.steps(self.turn, "llm_call"))
        self.step: str = gate.steps(self.turn, "llm_call")[-1]["id"]
        self.place = f"#stream-{self.step}-text-0"
        """Where its text grows on a page."""

    @property
    def turn_path(self) -> str:
        """The page of its turn."""
        return f"/ui/turns/{self.turn['id']}"

    @property
    def session_path(self) -> str:
        """The page of its session."""
        return f"/ui/sessions/{self.turn['session_id']}"

    def say(self, *pieces: str | Row) -> None:
        self.spoken.say(*pieces)

    def end(self, reason: str = "stop") -> None:
        """To its end, as its client sees it."""
        self.spoken.end(reason)
        self.reading.rest()
