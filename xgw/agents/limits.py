"""Where a turn ends before its answer: iterations, tokens, cost, context."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from xgw.agents.definition import Definition
from xgw.agents.ends import Reached
from xgw.config import Mode
from xgw.recording.facts import AttemptEnd, LimitFacts


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a turn may use; None is without bounds. The session's count from its beginning."""

    iterations: int
    turn_tokens: int | None
    session_tokens: int | None
    turn_cost: float | None
    session_cost: float | None
    seconds: float | None
    window: int | None


@dataclass(slots=True)
class Used:
    """What a turn has used so far, and its session before it.

    What another agent uses that a task was handed over to counts there too: `outer` is what the one
    that handed it over has used and may use.
    """

    session_tokens: int = 0
    session_cost: float = 0.0
    iterations: int = 0
    tokens: int = 0
    cost: float = 0.0
    outer: tuple[Used, Bounds] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, bounds: Bounds) -> None:
        """One more answer is asked for. Raises Reached if another agent that works at the same time
        has taken the last one."""
        with self._lock:
            if self.iterations >= bounds.iterations:
                raise Reached(LimitFacts("iterations", self.iterations, bounds.iterations))
            if self.outer is not None:
                self.outer[0].begin(self.outer[1])
            self.iterations += 1

    def add(self, end: AttemptEnd) -> None:
        """One more try; what nobody knows is not counted."""
        with self._lock:
            self.tokens += end.usage.total_tokens or 0
            self.cost += end.cost_usd or 0.0
        if self.outer is not None:
            self.outer[0].add(end)

    def check(self, bounds: Bounds) -> None:
        """Raises Reached if a limit forbids to ask the model once more."""
        reached = self.reached(bounds)
        if reached is not None:
            raise Reached(reached)

    def reached(self, bounds: Bounds) -> LimitFacts | None:
        """The limit that forbids to ask the model once more."""
        pairs: tuple[tuple[str, float, float | None], ...] = (
            ("iterations", self.iterations, bounds.iterations),
            ("turn_tokens", self.tokens, bounds.turn_tokens),
            ("session_tokens", self.session_tokens + self.tokens, bounds.session_tokens),
            ("cost", self.cost, bounds.turn_cost),
            ("cost", self.session_cost + self.cost, bounds.session_cost),
        )
        for limit, value, most in pairs:
            if most is not None and value >= most:
                return LimitFacts(limit, value, most)
        return None if self.outer is None else self.outer[0].reached(self.outer[1])


def bounds_of(definition: Definition, mode: Mode, budget: dict[str, float | None]) -> Bounds:
    """The limits of a turn: the agent's, and what the session's own budget leaves of them."""
    limits = definition.table.limits
    tokens = [b for b in (limits.max_session_tokens, budget.get("tokens")) if b is not None]
    costs = [b for b in (limits.max_session_cost_usd, budget.get("cost_usd")) if b is not None]
    return Bounds(
        iterations=definition.table.max_iterations(mode),
        turn_tokens=limits.max_turn_tokens,
        session_tokens=int(min(tokens)) if tokens else None,
        turn_cost=limits.max_turn_cost_usd,
        session_cost=min(costs) if costs else None,
        seconds=limits.max_seconds,
        window=definition.table.context.window,
    )
