"""The threads that answer requests: made when there is none to spare, and kept."""

from __future__ import annotations

import _thread
import queue
import threading
from collections.abc import Callable

Job = Callable[[], None]


class Pool:
    """At most `most` threads; a job that finds none waits its turn. A job raises nothing.

    Each thread calls `prepare`, if there is one, before its first job.
    """

    def __init__(self, most: int, prepare: Job | None = None) -> None:
        self._most = most
        self._prepare = prepare
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._open = 0
        """Jobs that are submitted and not done."""

    def submit(self, job: Job) -> None:
        """Have a job done; never waits."""
        self._jobs.put(job)
        with self._lock:
            self._open += 1
            if self._open <= self._count or self._count == self._most:
                return
            self._count += 1
        try:
            # threading.Thread.start waits until the new thread has run: among many busy ones that
            # can take long, and whoever submits accepts connections.
            _thread.start_new_thread(self._work, ())
        except RuntimeError:  # the system allows no more
            with self._lock:
                self._count -= 1
                if not self._count:
                    raise

    def shutdown(self, wait: bool = True) -> None:
        """Nothing to do: the threads end with the process."""

    def _work(self) -> None:
        threading.current_thread()  # from here on it is counted among the threads
        if self._prepare is not None:
            self._prepare()
        while True:
            self._jobs.get()()
            with self._lock:
                self._open -= 1
