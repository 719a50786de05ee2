"""Mixed load on eight clients with restarts: memory flat, files closed, threads bounded.

Two minutes here, which leave the machine to the tests beside it; XGW_SOAK_SECONDS makes it as long
as wanted, in earnest, and XGW_SOAK_REPORT names a file that gets a line of figures every few
seconds.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from servers import XGW, Installation, ServerProcess, installed
from xgw import clock
from xgw.providers.demo import DemoServer

SHORT = 120.0
SECONDS = float(os.environ.get("XGW_SOAK_SECONDS", SHORT))
PACE = 0.1 if SECONDS <= SHORT else 0.02
"""What the demo's waits are multiplied with."""

REPORT = os.environ.get("XGW_SOAK_REPORT")
CLIENTS = 8
LIVES = max(3, round(SECONDS / 400))
MEASURES = 10
WORDS = ("demo:500", "demo:429", "demo:cut", "demo:garbage", "demo:empty", "demo:reason")
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}

GROWTH_BYTES = 48 << 20
MOST_THREADS = 96
SPARE_FILES = 24


class Load:
    """Clients that ask all kinds of things until told to stop; `whole`: turns that ended well."""

    def __init__(self) -> None:
        self.address = ("127.0.0.1", 0)
        self.stopping = threading.Event()
        self.whole: set[str] = set()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(CLIENTS)
        ]

    def start(self) -> None:
        """Start every client."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End every client."""
        self.stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _run(self, number: int) -> None:
        dice = random.Random(number)
        conversation = 0
        while not self.stopping.is_set():
            conversation += 1
            with suppress(OSError, http.client.HTTPException, ValueError):
                self._converse(dice, f"soak-{number}-{conversation}")
            self.stopping.wait(dice.random() * 0.05)

    def _converse(self, dice: random.Random, key: str) -> None:
        messages: list[Any] = []
        for turn in range(dice.randrange(1, 12)):
            if self.stopping.is_set():
                return
            said = f"{dice.choice(WORDS)} " if dice.random() < 0.15 else "Tell me more: "
            messages.append({"role": "user", "content": said + "word " * dice.randrange(400)})
            tools = [TOOL] if dice.random() < 0.2 else None
            answer = self._ask(dice, key, messages, tools, stream=dice.random() < 0.8)
            messages.append({"role": "assistant", "content": answer or f"nothing in turn {turn}"})

    def _ask(
        self, dice: random.Random, key: str, messages: Any, tools: Any, *, stream: bool
    ) -> str:
        body = {"model": "demo", "messages": messages, "stream": stream}
        body |= {"tools": tools} if tools else {}
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        try:
            headers = {"Content-Type": "application/json", "X-Session-Id": key}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            if dice.random() < 0.1:
                answer.read(64)  # and the client leaves
                return ""
            text = answer.read().decode()
            if answer.status == 200 and (not stream or text.endswith("data: [DONE]\n\n")):
                with self._lock:
                    self.whole.add(answer.headers["X-Turn-Id"])
            return text[:2000]
        finally:
            connection.close()


def _figures(server: ServerProcess) -> dict[str, int]:
    """Memory, open files and threads of the serving process."""
    [worker] = server.workers()
    status = Path(f"/proc/{worker}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return {
        "rss": int(fields["VmRSS"].split()[0]) * 1024,
        "threads": int(fields["Threads"]),
        "files": len(os.listdir(f"/proc/{worker}/fd")),
    }


@contextmanager
def _watchers(address: tuple[str, int]) -> Iterator[None]:
    """Two readers of everything that happens, one of whom never reads."""
    readers = [http.client.HTTPConnection(*address, timeout=60) for _ in range(2)]
    for reader in readers:
        reader.request("GET", "/events")
    answer = readers[0].getresponse()

    def read() -> None:
        with suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            while answer.read1(65536):
                pass

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        for reader in readers:
            reader.close()
        thread.join(20)


def _live(here: Installation, load: Load, seconds: float, number: int) -> list[dict[str, int]]:
    """One life of the server under load; its figures, the last of them once all is quiet."""
    server = here.serve()
    url = urlsplit(server.url)
    load.address = (str(url.hostname), int(url.port or 0))
    taken = []
    with _watchers(load.address):
        for measure in range(MEASURES):
            load.stopping.wait(seconds / MEASURES)
            taken.append(_figures(server))
            _report(number, measure, taken[-1])
    # Every other life ends without a warning.
    server.send_all(signal.SIGKILL if number % 2 else signal.SIGTERM)
    server.wait()
    return taken


def _report(life: int, measure: int, figures: dict[str, int]) -> None:
    if REPORT:
        with open(REPORT, "a") as out:
            print(f"{clock.now():%H:%M:%S} life {life} measure {measure} {figures}", file=out)


@pytest.mark.slow
def test_mixed_load_with_restarts_leaves_nothing_behind(tmp_path: Path) -> None:
    demo, load = DemoServer(pace=PACE), Load()
    config = f'[[providers]]\nname = "up"\nbase_url = "{demo.start()}"\n'
    with installed(tmp_path, config, XGW) as here:
        load.start()
        lives = [_live(here, load, SECONDS / LIVES, number) for number in range(LIVES)]
        load.stop()
        here.serve().stop()
        for figures in lives:
            settled = figures[MEASURES // 3 :]
            assert settled[-1]["rss"] - settled[0]["rss"] < GROWTH_BYTES, figures
            assert max(f["threads"] for f in figures) <= MOST_THREADS, figures
            assert settled[-1]["files"] <= settled[0]["files"] + SPARE_FILES, figures
        _check_store(here.store, load.whole)
    demo.stop()


def _check_store(path: Path, whole: set[str]) -> None:
    store = sqlite3.connect(path)
    assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    open_calls = "SELECT count(*) FROM steps WHERE status = 'running' AND step_type = 'llm_call'"
    assert store.execute(open_calls).fetchone() == (0,)
    statuses = dict(store.execute("SELECT id, status FROM turns"))
    assert len(whole) > CLIENTS
    assert {statuses.get(turn) for turn in whole} <= {"success", "running"}
    waiting = dict(store.execute("SELECT turn_id, status FROM runs"))
    assert all(waiting[t] == "waiting_tool" for t in whole if statuses[t] == "running")
    store.close()
