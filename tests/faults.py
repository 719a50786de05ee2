"""A server process under faults: its model, its store, its memory, and clients that watch the time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gateway_fixtures import PROVIDER_KEY, Client, Reply, Records
from scripted_model import Model
from servers import DEADLINE, ServerProcess, installed
from xgw.store.database import Store

CONFIG = """
[[providers]]
name = "p1"
base_url = "{url}"
api_key = "{key}"
[[routes]]
model = "m"
targets = ["p1/m"]
"""


class Running(Client, Records):
    """A server process, the model behind it, and its store."""

    def __init__(self, server: ServerProcess, model: Model, store: Path) -> None:
        Client.__init__(self, server.url)
        Records.__init__(self, Store(store))
        self.server = server
        self.model = model

    def health(self) -> Any:
        """What /health says."""
        reply = self.get("/health")
        assert reply.status == 200
        return reply.json

    def memory(self) -> int:
        """Bytes that the server and its worker have resident."""
        pids = [self.server.popen.pid, *self.server.workers()]
        return sum(map(_resident, pids))


def _resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


@contextlib.contextmanager
def running(folder: Path, model: Model | None = None, config: str = "") -> Iterator[Running]:
    """A server for a `with` block; `config` is more of its configuration."""
    model = model or Model()
    tables = CONFIG.format(url=model.url, key=PROVIDER_KEY) + config
    try:
        with installed(folder, tables) as one:
            gate = Running(one.serve(), model, one.store)
            try:
                yield gate
            finally:
                gate.store.close()
    finally:
        model.close()


def assert_is_error(reply: Reply, status: int, code: str | None = None) -> None:
    """The API's error shape."""
    assert reply.status == status, reply.body
    assert set(reply.error) == {"message", "type", "param", "code"}
    assert code is None or reply.error["code"] == code


def all_at_once(works: list[Callable[[], None]]) -> None:
    """Each in a thread of its own; the first fault of one of them is raised."""
    faults: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as fault:  # noqa: BLE001 it belongs to the test, which raises it
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * DEADLINE)
        assert not thread.is_alive()
    if faults:
        raise faults[0]
