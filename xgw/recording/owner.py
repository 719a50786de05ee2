"""Who owns a run: this boot of the machine, a process, and the moment that the process started."""

from __future__ import annotations

import os
from pathlib import Path


def own() -> str:
    """The name of this process as an owner: `boot:pid:start`."""
    return f"{_boot_id()}:{os.getpid()}:{_started(os.getpid())}"


def is_alive(owner: str | None) -> bool:
    """Whether the process that an owner names still runs."""
    if not owner or owner.count(":") != 2:
        return False
    boot, pid, started = owner.split(":")
    return boot == _boot_id() and pid.isdigit() and _started(int(pid)) == started


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown-boot"


def _started(pid: int) -> str:
    """The start time of a process, "gone" if there is none; without /proc only whether it runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        state, start = stat.rpartition(")")[2].split()[0], stat.rpartition(")")[2].split()[19]
        return "gone" if state in "ZX" else start
    except OSError:
        if Path("/proc/self").exists():
            return "gone"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        return "running"
    return "running"
