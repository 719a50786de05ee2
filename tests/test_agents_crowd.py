"""Fifty agents' turns at once in one process: each its own, and seen the same by every client."""

from __future__ import annotations

import threading
from pathlib import Path

import orjson
import pytest

from agents_fixtures import AgentGate, agents, asks
from api_socket import ApiSocket, events, heard
from faults import all_at_once, watch
from scripted_model import DONE, Asked, Row, delta, finish, stream, usage
from scripted_upstream import Peer
from servers import DEADLINE
from xgw.queries.events import list_events
from xgw.store.models import Event

CROWD = 50
STORY = [
    "session.created",
    "turn.started",
    "run.started",
    "message.added user",
    "step.started llm_call",
    "step.completed success",
    "tool.requested",
    "message.added assistant",
    "step.started tool_call",
    "step.started tool_call",
    "step.completed success",
    "message.added tool",
    "step.completed success",
    "message.added tool",
    "tool.results_sent",
    "step.started llm_call",
    "step.completed success",
    "message.added assistant",
    "run.completed success",
    "turn.completed success finished",
]
COUNTS = ("input_tokens", "output_tokens", "total_tokens")


class Guests:
    """A model that knows who asks: it waits until all have, and answers each of their own."""

    def __init__(self) -> None:
        self._here = threading.Barrier(CROWD)

    def __call__(self, peer: Peer, asked: Asked) -> None:
        said = asked.json["messages"]
        number = int(said[1]["content"].split()[-1])
        if said[-1]["role"] == "user":
            self._here.wait(DEADLINE)
            notes = [(f"c{n}-{number}", "note", f'{{"text": "{n} of {number}"}}') for n in (1, 2)]
            asks(*notes)(peer, asked)
            return
        told = " and ".join(one["content"] for one in said if one["role"] == "tool")
        words = [delta(f"{word} ") for word in f"{told} for {number}".split()]
        stream(*words, finish(), usage(1000 + number, number), DONE)(peer, asked)


def text_for(number: int) -> str:
    return f"kept: 1 of {number} and kept: 2 of {number} for {number} "


class Follower:
    """Reads a session's server-sent events; `got` is every stored one, `texts` what grew."""

    def __init__(self, gate: AgentGate, session_id: str) -> None:
        self._gate = gate
        self._path = f"/sessions/{session_id}/events"
        self.got: list[Row] = []
        self.texts: dict[str, str] = {}
        self._open(0)

    def _open(self, after: int) -> None:
        self._sock = watch(self._gate.gate, f"{self._path}?after={after}")
        self._lines = self._sock.makefile("rb")

    def until(self, kind: str) -> None:
        """Read up to the first event of this type."""
        while (event := self._read())["type"] != kind:
            pass
        assert event["seq"] is not None

    def come_back(self) -> None:
        """Lose the connection, and open another where this one ended."""
        self.leave()
        self.texts.clear()
        self._open(self.got[-1]["seq"])

    def leave(self) -> None:
        self._lines.close()
        self._sock.close()

    def _read(self) -> Row:
        for line in self._lines:
            if line.startswith(b"data: "):
                event: Row = orjson.loads(line[6:])
                self._take(event)
                return event
        raise AssertionError("the stream ended")

    def _take(self, event: Row) -> None:
        if event["seq"] is not None:
            self.got.append(event)
        elif event["type"] == "step.delta" and event["payload"]["kind"] == "text":
            piece, step = event["payload"], event["step_id"]
            known = "" if piece.get("replace") else self.texts.get(step, "")
            self.texts[step] = known + piece["text"]
            assert len(self.texts[step]) == piece["text_length"], "a gap, or something came twice"


class Guest:
    """One session, and those who look at it: from the start, leaving, by websocket, late."""

    def __init__(self, gate: AgentGate, number: int) -> None:
        self.gate = gate
        self.number = number
        opened = gate.post("/sessions", {"agent": "a", "session_key": f"guest {number}"})
        self.session_id: str = opened.json["id"]
        self.first = Follower(gate, self.session_id)
        self.leaving = Follower(gate, self.session_id)
        self.socket = ApiSocket(gate.gate)
        self.socket.ask("session.subscribe", session_id=self.session_id, after=0)
        self.answer: Row = {}

    def chat(self) -> None:
        """The whole turn, and everybody who looks at it to its end."""
        asked = self.gate.say(f"I am {self.number}", self.session_id, wait=0)
        self.leaving.until("tool.requested")
        self.leaving.come_back()
        reloaded = Follower(self.gate, self.session_id)
        self.leaving.until("step.started")
        self.leaving.come_back()
        followers = [self.first, self.leaving, reloaded]
        for follower in followers:
            follower.until("turn.completed")
        self.socket.until("session.turn.completed", turn_id=asked["turnId"])
        late = Follower(self.gate, self.session_id)
        late.until("turn.completed")
        for follower in [*followers, late]:
            follower.leave()
        self.socket.close()
        self.turn = self.gate.turn(asked)
        self.seen = [follower.got for follower in [*followers, late]]
        self.seen.append(events(self.socket.told, self.session_id))

    def check(self) -> None:
        """Nobody saw anything else, and all of it is its own."""
        stored = list_events(self.gate.gate.store, 0, 1000, session_id=self.session_id)
        told = [envelope.to_json() for envelope in stored]
        assert [event["seq"] for event in told] == sorted({event["seq"] for event in told})
        for seen in self.seen:
            assert seen == told
        final = self.gate.steps({"turnId": self.turn["id"]}, "llm_call")[-1]
        assert self.first.texts[final["id"]] == text_for(self.number)
        texts = [f for f in self.socket.told if f["payload"]["payload"].get("kind") == "text"]
        assert heard(texts)[final["id"]] == text_for(self.number)
        self._check_turn(told)

    def _check_turn(self, told: list[Row]) -> None:
        answer, number = {"turnId": self.turn["id"]}, self.number
        assert (self.turn["status"], self.turn["final_output"]) == ("success", text_for(number))
        assert [self.turn[name] for name in COUNTS] == [
            1010 + number,
            5 + number,
            1015 + 2 * number,
        ]
        assert self.gate.gate.session(f"guest {number}")["total_tokens"] == 1015 + 2 * number
        kinds = [(step["step_type"], step["tool_call_id"]) for step in self.gate.steps(answer)]
        calls = [("tool_call", f"c{n}-{number}") for n in (1, 2)]
        assert kinds == [("llm_call", None), *calls, ("llm_call", None)]
        said = [(m["role"], m["content"]) for m in self.gate.gate.messages(self.turn)]
        assert said == [
            ("user", f"I am {number}"),
            ("assistant", None),
            ("tool", f"kept: 1 of {number}"),
            ("tool", f"kept: 2 of {number}"),
            ("assistant", text_for(number)),
        ]
        assert self.gate.story(answer) == STORY
        mine = {event["turn_id"] for event in told} - {None}
        assert mine == {self.turn["id"]}


@pytest.mark.slow
def test_fifty_turns_at_once_each_seen_the_same_by_everybody(tmp_path: Path) -> None:
    with agents(tmp_path) as gate:
        gate.model.always(Guests())
        guests = [Guest(gate, number) for number in range(CROWD)]
        all_at_once([guest.chat for guest in guests])
        for guest in guests:
            guest.check()
        seqs = [event["seq"] for event in gate.gate.all(Event)]
        assert seqs == list(range(1, len(seqs) + 1))
