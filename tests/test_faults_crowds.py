"""Many watchers and streams at once, more than there are places for, one watcher that is stuck."""

from __future__ import annotations

import contextlib
import re
import selectors
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import orjson
import pytest

from faults import Running, all_at_once, assert_is_error, read_to_end, running, watch
from scripted_model import DONE, chat, delta, finish, named, says, stream, usage
from servers import DEADLINE, eventually
from xgw import clock
from xgw.store.models import Event, Turn

WATCHERS = 300
STREAMS = 100
PACE = 0.1
EVENTS = 25
HEALTHY_SECONDS = 20 * 0.1
"""Many times the 100 ms in which /health is to answer: a hundred other programs may run, too."""


class Crowd:
    """Watchers of /events, connected, all read by one thread; each one's bytes stay apart."""

    def __init__(self, gate: Running, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._over = threading.Event()
        self.got = [bytearray() for _ in range(count)]
        self.ended = 0
        self._socks = [watch(gate) for _ in range(count)]
        for number, sock in enumerate(self._socks):
            self._selector.register(sock, selectors.EVENT_READ, number)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.is_set():
            for key, _ in self._selector.select(0.1):
                block = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                self.got[key.data] += block
                if not block:
                    self.ended += 1
                    self._selector.unregister(key.fileobj)

    def close(self) -> None:
        """Leave, all of them."""
        self._over.set()
        self._thread.join(DEADLINE)
        for sock in self._socks:
            sock.close()


@contextlib.contextmanager
def crowd(gate: Running, count: int) -> Iterator[Crowd]:
    """Watchers for a `with` block."""
    watchers = Crowd(gate, count)
    try:
        yield watchers
    finally:
        watchers.close()


def health_times(gate: Running, until: threading.Event) -> list[float]:
    """How long /health takes, asked again and again."""
    times = []
    while not until.wait(0.05):
        began = clock.monotonic()
        assert gate.get("/health").status == 200
        times.append(clock.monotonic() - began)
    return times


@pytest.mark.slow
def test_hundreds_of_watchers_and_streams(tmp_path: Path) -> None:
    over, pace, times = threading.Event(), threading.Event(), list[float]()
    begun = threading.Barrier(STREAMS)
    words = [part for n in range(EVENTS) for part in (delta(f"{n} "), lambda: pace.wait(PACE))]
    answer = stream(
        delta("go "), lambda: begun.wait(DEADLINE), *words, finish(), usage(7, EVENTS), DONE
    )

    def ask(gate: Running, number: int) -> None:
        reply = gate.post(chat(stream=True, **named(f"session {number}")))
        assert (reply.status, reply.body.endswith(DONE)) == (200, True)
        assert b'"error"' not in reply.body

    def probe(gate: Running) -> None:
        times.extend(health_times(gate, over))

    with running(tmp_path) as gate, crowd(gate, WATCHERS) as watchers:
        gate.model.always(answer)
        prober = threading.Thread(target=probe, args=(gate,), daemon=True)
        prober.start()
        all_at_once([partial(ask, gate, number) for number in range(STREAMS)])
        over.set()
        prober.join(DEADLINE)
        times.sort()
        for got in watchers.got:
            eventually(lambda got=got: got.count(b"event: turn.completed") == STREAMS)
        assert watchers.ended == 0
        assert gate.health()["status"] == "ok"
        assert times[len(times) // 2] < HEALTHY_SECONDS
        assert {turn["status"] for turn in gate.all(Turn)} == {"success"}
        assert "Traceback" not in gate.server.stderr.text


def test_more_than_there_are_places_for(tmp_path: Path) -> None:
    """Calls and watchers have places of their own; whoever finds none may come again soon."""
    go_on = threading.Event()
    held = stream(delta("a"), go_on, finish(), DONE)
    with (
        running(tmp_path, config="[server]\nmax_calls = 3\nmax_watchers = 2\n") as gate,
        crowd(gate, 2) as watchers,
    ):
        gate.model.will(held, held, held)
        readings = [gate.open(chat(stream=True)) for _ in range(3)]
        for refused in (gate.post(chat()), gate.post(chat(stream=True)), gate.get("/events")):
            assert_is_error(refused, 503)
            assert refused.error["type"] == "overloaded"
            assert int(refused.headers["retry-after"]) >= 1
        health = gate.health()
        assert (health["calls"], health["watchers"]) == (3, 2)
        go_on.set()
        for reading in readings:
            assert reading.rest().body.endswith(DONE)
        gate.model.will(says())
        assert gate.post(chat()).status == 200
        assert len(gate.all(Turn)) == 4
        eventually(lambda: all(got.count(b"event: turn.completed") == 4 for got in watchers.got))


def test_a_watcher_that_stands_still_slows_nobody(tmp_path: Path) -> None:
    words = 5000
    with running(tmp_path) as gate, contextlib.closing(watch(gate, buffer=4096)) as watcher:
        gate.model.will(stream(*[delta("word ")] * words, finish(), DONE))
        reply = gate.post(chat(stream=True))
        assert reply.body.count(b"word ") == words
        assert reply.body.endswith(DONE)
        gate.model.always(says("y" * 5000))
        for _ in range(100):
            assert gate.post(chat("x" * 5000)).status == 200
        told = read_to_end(watcher)
        assert told.count(b"event: stream.lagged") == 1
        last = orjson.loads(told.rpartition(b"data: ")[2])
        resume_after = last["payload"]["resume_after"]
        seqs = [int(number) for number in re.findall(rb"id: (\d+)\nevent", told)]
        assert seqs == list(range(seqs[0], resume_after + 1))
        newest = gate.all(Event)[-1]["seq"]
        assert resume_after < newest
        with contextlib.closing(watch(gate, f"/events?after={resume_after}")) as again:
            rest = b""
            while f"id: {newest}\nevent".encode() not in rest:
                rest += again.recv(1 << 16)
        assert int(re.findall(rb"id: (\d+)\nevent", rest)[0]) == resume_after + 1
