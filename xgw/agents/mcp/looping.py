"""The thread whose event loop speaks to all MCP servers; it begins when it is needed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class LoopThread:
    """Runs coroutines for threads that wait for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def runs(self) -> bool:
        """Whether anything was ever run."""
        return self._loop is not None

    def submit(self, coroutine: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Have this run; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._started())

    def stop(self) -> None:
        """End the thread; what still runs in it is dropped."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(2)
        if not thread.is_alive():
            loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="xgw-mcp", daemon=True
                )
                self._thread.start()
            return self._loop
