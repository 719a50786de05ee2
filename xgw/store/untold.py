"""Events that are committed and still to be published, in the order of their commits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from xgw.events import Envelope
from xgw.store.outcomes import tell

Publish = Callable[[Sequence[Envelope]], None]


class Untold:
    """Whoever has committed adds events; whoever has time next publishes all that there are."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._waiting: deque[Sequence[Envelope]] = deque()
        self._telling = threading.Lock()

    def add(self, events: Sequence[Envelope]) -> None:
        """Those of one commit; the next ones are added after it."""
        if events:
            self._waiting.append(events)

    def tell(self) -> None:
        """Publish what waits, unless another thread does; it never waits for that one."""
        # Once more after each round: what was added while another thread was at its end.
        while self._waiting and self._telling.acquire(blocking=False):
            try:
                while self._waiting:
                    tell(partial(self._publish, self._waiting.popleft()))
            finally:
                self._telling.release()
