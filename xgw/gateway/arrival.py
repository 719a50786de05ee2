"""A request that is to be placed, and its place: its turn, and what else changes because of it."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

from xgw.gateway.conversation import Conversation, History
from xgw.gateway.identity import Identity
from xgw.gateway.state import TurnState
from xgw.recording.facts import ToolEnd
from xgw.recording.requests import Arrived, Closing
from xgw.store.payloads import Stored


@dataclass(slots=True)
class Place:
    """The turn of a request and what else changes because of it."""

    turn: TurnState
    is_new: bool
    reopened: str | None = None
    resumed: str | None = None
    closings: list[Closing] = field(default_factory=list)
    results: list[Arrived] = field(default_factory=list)
    dropped_tools: tuple[ToolEnd, ...] = ()
    taken: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Arrival:
    """A request that is to be placed.

    It began at `began_at`, by the clock that never goes back at `moment`.
    """

    project_id: str
    identity: Identity
    conversation: Conversation | None
    is_chat: bool
    began_at: datetime.datetime
    moment: float
    trace_id: str | None
    bodies: list[Stored]
    before: History | None = None
    """What the session's previous request was."""
