"""What every measurement is given: the upstream, the loader, a folder, and how much to measure."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench import processes
from bench.load import Calls, Load
from bench.loader import Loader, loading
from bench.scale import Scale
from bench.server import Server, serving

WARMING = 10
"""A load is warmed up with one part in so many of itself, uncounted."""


@dataclass(frozen=True)
class Round:
    """One load, direct and through xgw in turns; `cpu` is what the server's processes spent."""

    direct: Load
    through: Load
    cpu: float


@dataclass(frozen=True)
class Setting:
    """The upstream's port, the loader, and the size and number of the rounds."""

    folder: Path
    upstream: int
    loader: Loader
    scale: Scale
    rounds: int

    @contextlib.contextmanager
    def serving(self, module: str = "xgw", store: Path | None = None) -> Iterator[Server]:
        """An xgw in front of the upstream."""
        with serving(self.folder, self.upstream, module=module, store=store) as server:
            yield server

    def side_by_side(self, server: Server, calls: Calls, *, more_direct: int = 1) -> list[Round]:
        """The rounds of one load, direct and through xgw; its own port does not count.

        `more_direct`: how many times as many direct calls, where they take next to no time.
        """
        warm = replace(calls, requests=max(calls.clients, calls.requests // WARMING))
        for port in (self.upstream, server.port):
            self.loader.call(replace(warm, port=port))
        return [self._round(server, calls, more_direct) for _ in range(self.rounds)]

    def _round(self, server: Server, calls: Calls, more_direct: int) -> Round:
        """In parts by turns, so that what else the machine does meets both alike."""
        direct, through, cpu = Load(), Load(), 0.0
        parts = min(self.scale.alternations, max(1, calls.requests // calls.clients))
        part = replace(calls, requests=calls.requests // parts)
        beside = replace(part, requests=part.requests * more_direct, port=self.upstream)
        for _ in range(parts):
            direct.add(self.loader.call(beside))
            before = processes.cpu_seconds(server.pid)
            through.add(self.loader.call(replace(part, port=server.port)))
            cpu += processes.cpu_seconds(server.pid) - before
        return Round(direct, through, cpu)


@contextlib.contextmanager
def prepared(scale: Scale, rounds: int) -> Iterator[Setting]:
    """A setting whose processes and files last as long as the block."""
    with (
        tempfile.TemporaryDirectory(prefix="xgw-bench-") as folder,
        upstream() as port,
        loading() as loader,
    ):
        yield Setting(Path(folder), port, loader, scale, rounds)


@contextlib.contextmanager
def upstream() -> Iterator[int]:
    """The upstream in its own process; its port."""
    with processes.running("-m", "bench.upstream", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


def median(values: list[float]) -> float:
    """The median, of at least one value."""
    return statistics.median(values)
