"""The time that a run takes, without waits for people: its limit counts it, and its record."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from xgw import clock
from xgw.recording.pending import Checkpoint


class Spent:
    """Counts on top of what a checkpoint has, from `since` on (monotonic seconds), else from now.

    `above` is the time of the run, or of the agent, that awaits this one.
    """

    def __init__(
        self, before: Checkpoint, above: Spent | None = None, since: float | None = None
    ) -> None:
        self._before = before
        self._above = above
        self._began = clock.monotonic() if since is None else since
        self._in_tools = 0.0
        self._tools_since: float | None = None

    @contextlib.contextmanager
    def in_tools(self) -> Iterator[None]:
        """Tools run for as long as the block does."""
        self._tools_since = clock.monotonic()
        try:
            yield
        finally:
            self._in_tools += clock.monotonic() - self._tools_since
            self._tools_since = None

    @property
    def elapsed_ms(self) -> int:
        """All of it, with the runs that this one goes on from."""
        return self._before.elapsed_ms + _ms(clock.monotonic() - self._began)

    @property
    def above_ms(self) -> tuple[int, ...]:
        """What all that await this one have spent by now, the turn itself first."""
        above = self._above
        return () if above is None else (*above.above_ms, above.elapsed_ms)

    @property
    def busy_ms(self) -> int:
        """This run's, without its tools."""
        until = clock.monotonic() if self._tools_since is None else self._tools_since
        return self._before.busy_ms + _ms(until - self._began - self._in_tools)


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
