"""An agent's turn in this process: what was asked, and how it is stopped."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Literal

from xgw.config import Mode
from xgw.providers.transport import Call
from xgw.recording.facts import Scope

Reason = Literal["user_cancel", "superseded", "shutdown", "limit"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A message to an agent; `model` and `parameters` replace the agent's own for this turn."""

    message: str
    mode: Mode
    model: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] | None = None
    client: dict[str, Any] = field(default_factory=dict)

    def overrides(self) -> dict[str, Any]:
        """What its run keeps, so that another process can begin a turn that waits."""
        kept = {"mode": self.mode, "model": self.model, "parameters": self.parameters or None}
        return {key: value for key, value in kept.items() if value is not None}


class Turn:
    """A turn that waits or runs; `done` is set once its end is recorded, or that a person is
    awaited.

    `goes_on`: this is not its beginning, but a run of it that the store has already. `call` is what
    it is cancelled by, where that is another's.
    """

    def __init__(
        self,
        scope: Scope,
        agent_name: str,
        wanted: Wanted,
        *,
        goes_on: bool = False,
        call: Call | None = None,
    ) -> None:
        self.scope = scope
        self.agent_name = agent_name
        self.wanted = wanted
        self.goes_on = goes_on
        self.call = call or Call()
        self.done = threading.Event()
        self.waits = False
        """Whether a person is awaited, if it is done."""
        self._reason: Reason | None = None
        self._lock = threading.Lock()

    def stop(self, reason: Reason) -> None:
        """End it, wherever it is; the first reason counts."""
        with self._lock:
            self._reason = self._reason or reason
        self.call.cancel()

    @property
    def reason(self) -> Reason | None:
        """Why it was stopped; None for a cancel that came by its call."""
        return self._reason
