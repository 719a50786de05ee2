"""What the gateway knows of a session and its turns while they are in use.

What is decided here never changes, even while the store cannot be written: the units that carry it
out are queued in the same order.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from xgw import clock
from xgw.frozen import changed
from xgw.gateway.conversation import History
from xgw.recording.facts import Scope, TurnEnd
from xgw.store.writer import Ticket


@dataclass(slots=True)
class OpenTool:
    """A client-side tool: its step, and when it began (monotonic; None after a restart).

    `output` is the hash of its result's text, once that came. `answer` is the step that asked for
    it, `choice` the index of the choice that did; None if there was but one.
    """

    step_id: str
    tool_call_id: str
    name: str | None
    arguments: str
    began: float | None
    began_at: str | None = None
    output: str | None = None
    answer: str | None = None
    choice: int | None = None


@dataclass(slots=True)
class Cancellation:
    """Someone wants a turn to end: from then on until none of its requests is under way.

    `has_cut` tells whether it ended one of them; `ended_by` is how the turn ended, None until then.
    """

    has_cut: bool = False
    ended_by: str | None = None


@dataclass(slots=True)
class TurnState:
    """A gateway turn: `status` is running, waiting or ended; `under_way` counts its requests."""

    scope: Scope
    turn_key: str | None
    status: str
    under_way: int = 0
    busy_ms: int = 0
    active_since: float = field(default_factory=clock.monotonic)
    open_tools: dict[str, list[OpenTool]] = field(default_factory=dict)
    """By the id of their call; there are models that use one id for several calls of an answer."""
    ended_tools: dict[str, OpenTool] = field(default_factory=dict)
    seen: set[tuple[int, bytes]] = field(default_factory=set)
    last_seen: tuple[int, bytes] | None = None
    """The last of these in its newest request, which may be shorter than those before it."""
    latest: datetime.datetime | None = None
    """When a request of it last ended, since it is in memory."""
    cancellation: Cancellation | None = None
    """Requests that come while it is being cancelled are cancelled, too."""

    def cancel(self) -> Cancellation:
        """It is to end, as soon as its requests that are under way have."""
        if self.cancellation is None:
            self.cancellation = Cancellation()
        return self.cancellation

    def settle(self, end: TurnEnd) -> TurnEnd:
        """How it ends with the last of its requests, of which it would end with `end`.

        A cancelled one is cancelled, unless all that it was to do was done by then.
        """
        cancellation, self.cancellation = self.cancellation, None
        if cancellation is None:
            return end
        if cancellation.has_cut or self.open_tools:
            end = changed(
                end, ended_by="user_cancel", error_type=None, error_message=None, finish_reason=None
            )
        cancellation.ended_by = end.ended_by
        return end

    def open_tool(self, tool: OpenTool) -> None:
        """The client's result for this call is awaited from now on."""
        self.open_tools.setdefault(tool.tool_call_id, []).append(tool)

    def take_open_tool(self, call_id: str) -> OpenTool | None:
        """The first call of this id that awaits its result; it awaits it no longer."""
        tools = self.open_tools.get(call_id, [])
        tool = tools.pop(0) if tools else None
        if not tools:
            self.open_tools.pop(call_id, None)
        return tool

    def take_unchosen(self, answer: str, chosen: set[int]) -> list[OpenTool]:
        """The calls of an answer that stand in other choices; they await no result any longer."""
        tools = [tool for found in self.open_tools.values() for tool in found]
        taken = [
            tool
            for tool in tools
            if tool.answer == answer and tool.choice is not None and tool.choice not in chosen
        ]
        for tool in taken:
            self.open_tools[tool.tool_call_id].remove(tool)
            if not self.open_tools[tool.tool_call_id]:
                del self.open_tools[tool.tool_call_id]
            self.ended_tools.setdefault(tool.tool_call_id, tool)
        return taken

    def goes_on_at(self, hashes: Sequence[bytes]) -> int | None:
        """Where in a later history that follows which it had; None if that is another one."""
        position, digest = self.last_seen or (-1, b"")
        stays = 0 <= position < len(hashes) and hashes[position] == digest
        return position + 1 if stays else None

    def not_before(self, at: datetime.datetime) -> datetime.datetime:
        """A moment not before that, unless the wall clock went back.

        What changes of it because of a request that began beside others comes after their ends.
        """
        return at if self.latest is None else max(at, min(self.latest, clock.now()))

    def busy_until(self, moment: float) -> int:
        """Milliseconds of work until `moment` (monotonic), without waits for tools."""
        if self.status != "running":
            return self.busy_ms
        return self.busy_ms + max(0, round((moment - self.active_since) * 1000))


@dataclass(slots=True)
class SessionState:
    """A session: decisions about it are made under its lock, one at a time."""

    session_id: str
    session_key: str
    project_id: str
    exists: bool
    task_id: str | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    turns: dict[str, TurnState] = field(default_factory=dict)
    history: History | None = None
    in_use: int = 0
    last_ticket: Ticket | None = None
    is_empty: bool = False
    """It was opened, but nothing has been asked in it yet."""
    successor: SessionState | None = None
    """What its key names from now on: this one is being deleted, or was never made."""

    def find_turn(self, key: str) -> TurnState | None:
        """A turn that is in memory, by its key or id."""
        return next((t for t in self.turns.values() if key in (t.turn_key, t.scope.turn_id)), None)

    def awaiting(self) -> list[TurnState]:
        """Turns that await the client's tools, also those with a request under way."""
        turns = self.turns.values()
        return [t for t in turns if t.status == "waiting" or (t.under_way and t.open_tools)]
