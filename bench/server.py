"""The xgw that is measured: its own process, with a store of its own, in front of the upstream."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import processes

READY_SECONDS = 30.0
POLL_SECONDS = 0.005
CONFIG = """\
[[providers]]
name = "openai"
base_url = "http://127.0.0.1:{port}/v1"
api_key = "sk-of-the-measurements"

[[providers]]
name = "unsteady"
base_url = "http://127.0.0.1:{port}/failing/v1"
api_key = "sk-of-the-measurements"

[[routes]]
model = "gpt-4.1"
targets = ["unsteady/gpt-4.1", "openai/gpt-4.1"]

[[routes]]
model = "o3"
targets = ["unsteady/o3"]

[[routes]]
model = "*"
targets = ["openai/*"]
"""
"""`gpt-4.1` falls back to the upstream that answers, `o3` has nothing to fall back to."""


@dataclass(frozen=True)
class Server:
    """A running server; `ready` is the seconds from its start to the first answer of `/health`."""

    port: int
    pid: int
    store: Path
    ready: float

    def get(self, path: str) -> Any:
        """What a GET brings, parsed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        if answer.status != 200:
            raise SystemExit(f"bench: GET {path}: {answer.status} {body[:300]!r}")
        return json.loads(body)

    def stored_bytes(self) -> int:
        """What the store's pages hold, those still in its log included."""
        with contextlib.closing(sqlite3.connect(self.store)) as connection:
            pages, size, free = (
                int(connection.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_count", "page_size", "freelist_count")
            )
        return (pages - free) * size


@contextlib.contextmanager
def serving(
    folder: Path, upstream: int, *, module: str = "xgw", store: Path | None = None
) -> Iterator[Server]:
    """A server in front of the upstream at that port; `module` has a command line like xgw's."""
    port = _free_port()
    store = store or folder / f"{module.rpartition('.')[2]}-{port}.db"
    config = folder / f"xgw-{port}.toml"
    config.write_text(CONFIG.format(port=upstream), encoding="utf-8")
    options = ("--port", str(port), "--config", str(config), "--db", str(store))
    begun = time.monotonic()
    with processes.running("-m", module, "serve", *options) as process:
        _wait_until_ready(process, port)
        yield Server(port, process.pid, store, time.monotonic() - begun)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(process: subprocess.Popen[str], port: int) -> None:
    pause, deadline = threading.Event(), time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"bench: the server ended with exit code {process.returncode}")
        with contextlib.suppress(ConnectionRefusedError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READY_SECONDS)
            with contextlib.closing(connection):
                connection.request("GET", "/health")
                connection.getresponse().read()
                return
        pause.wait(POLL_SECONDS)
    raise SystemExit(f"bench: the server was not ready within {READY_SECONDS:.0f} s")
