"""Processes that the measurements start, and what Linux says of one and of those below it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STOP_SECONDS = 20.0
TICKS = os.sysconf("SC_CLK_TCK")
KIB = 1024


@dataclass(frozen=True)
class Memory:
    """Megabytes of all processes of a tree together: `pss` counts what they share once."""

    rss: float
    pss: float


def environment() -> dict[str, str]:
    """That of a user without any XGW_ variable: a configuration of theirs changes nothing.

    Python keeps what it has compiled, as it does unless told otherwise: a server starts with that.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("XGW_") and name != "PYTHONDONTWRITEBYTECODE"
    }


@contextlib.contextmanager
def running(
    *arguments: str, stdin: int | None = None, stdout: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """A Python process in the checkout, ended on leaving."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdin=stdin, stdout=stdout, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def tree(root: int) -> list[int]:
    """The process and all below it that are alive."""
    return _below(root, _stats())


def cpu_seconds(root: int) -> float:
    """User and system time of a process tree so far."""
    stats = _stats()
    return sum(int(stats[pid][11]) + int(stats[pid][12]) for pid in _below(root, stats)) / TICKS


def _below(root: int, stats: dict[int, list[str]]) -> list[int]:
    def is_below(pid: int) -> bool:
        return pid == root or (pid in stats and is_below(int(stats[pid][1])))

    return [pid for pid in stats if is_below(pid)]


def _stats() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat after the name, of every process."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            found[int(stat.parent.name)] = stat.read_text().rpartition(")")[2].split()
    return found


def memory(root: int) -> Memory:
    """Memory of a process tree now."""
    sizes = {"Rss": 0, "Pss": 0}
    for pid in tree(root):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                name, _, amount = line.partition(":")
                if name in sizes:
                    sizes[name] += int(amount.split()[0])
    return Memory(sizes["Rss"] * KIB / 1e6, sizes["Pss"] * KIB / 1e6)
