"""How a scribe is started, and its process: `python -m xgw.recording.scribing`.

Its arguments are the link's descriptor, the store's path, its durability, and the cores that it may
use. It has nothing of the serving process but the link, and the store's lock: a server that comes
next waits until nobody can write there any more.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from xgw.recording.notes import perform
from xgw.store.database import Store
from xgw.store.scribe import Employ, Link, Scribe, write_for

COLLECTED_FROM = 5000
log = logging.getLogger("xgw.store")

_LEFT_TO_THE_SERVER = ("SIGINT", "SIGTERM", "SIGHUP")
"""A terminal or a supervisor sends them to both. They are blocked before the process begins: it
takes a while until it could ignore them."""


def employment(store: Store, keep: Sequence[int]) -> Employ | None:
    """How to start a scribe for this store once there is enough to write.

    None where it would not help. It has those descriptors open that are to `keep`.
    """
    frozen = getattr(sys, "frozen", False)  # then there is no Python to start it with
    cores = _cores()
    if sys.platform == "win32" or frozen or len(cores) < 2:
        return None
    return partial(_employ, store, keep, cores)


def _employ(store: Store, keep: Sequence[int], cores: Sequence[int]) -> Scribe | None:
    try:
        return _start(store, keep, cores)
    except OSError as error:
        log.warning("no process could be started that writes the store: %s", error.strerror)
        return None


def _start(store: Store, keep: Sequence[int], cores: Sequence[int]) -> Scribe:
    ours, theirs = socket.socketpair()
    with theirs, _without_signals(), contextlib.ExitStack() as unless_started:
        unless_started.callback(ours.close)
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "xgw.recording.scribing"),
                *(str(theirs.fileno()), str(store.path.absolute()), store.durability),
                ",".join(map(str, cores)),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            pass_fds=[theirs.fileno(), *keep],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        unless_started.pop_all()
    return Scribe(process, ours)


@contextlib.contextmanager
def _without_signals() -> Iterator[None]:
    """A process that is started in this block never gets those; other threads still do."""
    numbers = [getattr(signal, name) for name in _LEFT_TO_THE_SERVER]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


if sys.platform == "linux":

    def _cores() -> list[int]:
        return sorted(os.sched_getaffinity(0))

    def _use(cores: list[int]) -> None:
        """Whoever started it may be bound to one core."""
        os.sched_setaffinity(0, cores)

else:

    def _cores() -> list[int]:
        return list(range(os.cpu_count() or 1))

    def _use(cores: list[int]) -> None:
        return None


def main() -> None:
    """Write what comes over the link until it ends: whatever ends the server, it is written."""
    descriptor, path, durability, cores = sys.argv[1:]
    _use([int(core) for core in cores.split(",")])
    gc.freeze()
    gc.set_threshold(COLLECTED_FROM)
    write_for(Link(socket.socket(fileno=int(descriptor))), Store(Path(path), durability), perform)


if __name__ == "__main__":
    main()
