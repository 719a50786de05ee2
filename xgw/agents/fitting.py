"""Makes the next call of a turn fit into the model's window, or ends the turn.

What a compaction uses counts as the turn's: a limit that it reaches ends the turn as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xgw.agents.compaction import Compactor, Room, Trigger
from xgw.agents.context import Choice
from xgw.agents.ends import Reached
from xgw.agents.limits import Bounds, Used
from xgw.agents.parts import Parts, Start
from xgw.agents.turns import Turn
from xgw.exchange.exchange import Exchange
from xgw.recording.facts import LimitFacts, Retry, Scope
from xgw.recording.recorder import Recorder
from xgw.values import UpstreamFailure

VOCABULARY_SECONDS = 60.0
"""A context that has to fit is not sent before it is counted; a vocabulary takes under a second."""


class Fitting:
    """What one turn sends, by the tokens that it has. Methods raise Reached and Cancelled."""

    def __init__(self, compactor: Compactor, used: Used, bounds: Bounds) -> None:
        self._compactor = compactor
        self._used = used
        self._bounds = bounds

    def fit(self) -> int | None:
        """Tokens of the next call, which fits by then; None if nobody knows."""
        choice = self._compactor.choose("threshold")
        if choice is not None:
            self._compact(choice, "threshold")
        size, window = self._compactor.size(), self._compactor.room.window
        if window is not None and size is not None and size > window:
            raise Reached(LimitFacts("context", size, window))
        return size

    def shorten(
        self, recorder: Recorder, scope: Scope, exchange: Exchange, failure: UpstreamFailure
    ) -> bool:
        """A call failed: whether it was too long, and what would be sent next is shorter now.

        Then the failed call is over in the record, and another one is to follow.
        """
        choice = self._compactor.choose("overflow")
        if failure.error_type != "context_overflow" or choice is None:
            return False
        end, bodies = exchange.trial.failed(failure)
        retry = Retry("retry", 0, exchange.target.name)
        recorder.fail_attempt(scope, exchange.facts, end, retry, bodies)
        exchange.trial.is_recorded = True
        self._compact(choice, "overflow")
        return True

    def _compact(self, choice: Choice, trigger: Trigger) -> None:
        try:
            self._compactor.run(trigger, choice)
        finally:
            for end in self._compactor.take_ends():
                self._used.add(end)
        self._used.check(self._bounds)


def fitting_of(
    parts: Parts, turn: Turn, start: Start, model: str, offers: Sequence[dict[str, Any]]
) -> Fitting:
    """What makes a turn's context fit, as its agent says; ApiError 404 without a way to `model`."""
    table = start.definition.table.context
    window = start.bounds.window or parts.window_of(model)
    if window is not None:
        parts.means.counter.wait(model, VOCABULARY_SECONDS)
    compactor = Compactor(
        parts,
        turn.scope,
        turn.call,
        model,
        turn.wanted.client,
        start.context,
        offers,
        Room.of(window, table.compact_at, table.keep_last_turns),
        start.inside,
    )
    return Fitting(compactor, start.used, start.bounds)
