"""How a turn may end, and what its record then says."""

from __future__ import annotations

from dataclasses import dataclass

from xgw.recording.facts import LimitFacts


@dataclass(frozen=True, slots=True)
class Finish:
    """How a turn ends; `limit` is set where a limit ended it."""

    ended_by: str
    error_type: str | None = None
    message: str | None = None
    limit: LimitFacts | None = None

    @property
    def call_error(self) -> str | None:
        """The error of a model call that is cut by this; None where it is merely cancelled."""
        return None if self.limit is not None else self.error_type


class Reached(Exception):
    """A limit forbids to go on."""

    def __init__(self, limit: LimitFacts) -> None:
        super().__init__(limit.limit)
        self.limit = limit


SHUTDOWN = Finish("shutdown", "interrupted", "xgw was shut down before the answer was complete")


def by_limit(limit: LimitFacts) -> Finish:
    """A limit was reached."""
    words = limit.limit.replace("_", " ")
    message = f"the turn reached its limit of {limit.max:g} ({words})"
    return Finish("limit", f"limit_{limit.limit}", message, limit)


def out_of_time(elapsed: float, most: float) -> Finish:
    """The turn took as long as it may; both in seconds."""
    return by_limit(LimitFacts("seconds", max(round(elapsed, 1), most), most))
