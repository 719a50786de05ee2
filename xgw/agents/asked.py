"""The calls of one answer while they are run, and the tasks that they hand over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from xgw.agents.settled import Recorded
from xgw.providers.transport import Call
from xgw.recording.facts import ToolEnd
from xgw.recording.pending import PendingCall, Task
from xgw.recording.requests import Said


@dataclass(frozen=True, slots=True)
class Handoff:
    """A task for another agent: the step of the call that hands it over, and the message.

    `known` is how far that agent was with it when the run was picked up.
    """

    step_id: str
    partner: str
    message: str
    known: Task | None


HandOver = Callable[[Handoff, Call], str]
"""As in `tools`."""


@dataclass(slots=True)
class Asked:
    """The calls of one answer: which have ended, and the messages that told results so far."""

    asked_by: str
    above: str
    """The step that theirs stand under: `asked_by`, unless that is of an earlier run."""
    pending: list[PendingCall]
    step_ids: list[str]
    began: float
    reused: dict[int, Recorded]
    started: bool = False
    results: dict[int, str] = field(default_factory=dict)
    message_ids: list[str] = field(default_factory=list)

    @property
    def told(self) -> int:
        """How many results have been told."""
        return len(self.message_ids)


@dataclass(frozen=True, slots=True)
class Closed:
    """How calls ended that got no result of their own: their steps, those of them that had handed
    a task over, and the messages that say so."""

    ends: tuple[ToolEnd, ...] = ()
    handoffs: tuple[ToolEnd, ...] = ()
    said: tuple[Said, ...] = ()
