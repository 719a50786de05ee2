"""The record of one proxied request: how it begins, and the one way in which it ends."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from contextlib import nullcontext

from xgw import clock, ids
from xgw.exchange.calls import Calls
from xgw.exchange.exchange import Exchange
from xgw.exchange.means import Means
from xgw.frozen import changed
from xgw.gateway.arrival import Arrival
from xgw.gateway.closing import drop_open_tools
from xgw.gateway.opening import Beginning, Settling
from xgw.gateway.placement import Placement
from xgw.gateway.sessions import Sessions
from xgw.gateway.state import OpenTool, SessionState, TurnState
from xgw.providers.transport import Call
from xgw.recording.elements import answer_message
from xgw.recording.facts import (
    AttemptEnd,
    MessageFacts,
    Retry,
    Scope,
    ToolEnd,
    ToolStart,
    TurnEnd,
)
from xgw.recording.requests import Ending
from xgw.store.payloads import Stored
from xgw.store.writer import Patience, Ticket
from xgw.values import Answer, UpstreamFailure

LONG_BYTES = 1 << 20
"""A provider reads a request of so many bytes for longer than it takes to commit its start."""


_UNLOCKED = nullcontext()


class Record:
    """One request's entry in the record. It ends once: whatever comes later changes nothing."""

    def __init__(
        self,
        means: Means,
        placement: Placement,
        calls: Calls,
        sessions: Sessions,
        exchange: Exchange,
        call: Call,
    ) -> None:
        self._means = means
        self._placement = placement
        self._calls = calls
        self._sessions = sessions
        self._exchange = exchange
        self._call = call
        self._patience = Patience()
        self._has_begun = self._ended = False
        self._session: SessionState | None = None
        self._turn: TurnState
        self._ticket: Ticket

    @property
    def scope(self) -> Scope:
        """The identifiers of the turn."""
        return self._turn.scope

    @property
    def session_name(self) -> str | None:
        """The session as the client named it, else its id; None without one."""
        return self._session.session_key if self._session else None

    @property
    def turn_name(self) -> str:
        """The turn as the client named it, else its id."""
        return self._turn.turn_key or self._turn.scope.turn_id

    # -- the beginning -------------------------------------------------------------------------

    def begin(self, settling: Settling, session: SessionState | None) -> list[Stored]:
        """Place the request and hand its start to the writer; returns the bodies it needs."""
        bodies: list[Stored] = [*self._exchange.trial.take_bodies()]
        with self._sessions.held(session) if session else _UNLOCKED as session:
            self._session = session
            began_at = self._began_at()
            arrival = Arrival(
                settling.project_id,
                settling.identity,
                settling.conversation,
                settling.endpoint == "chat.completions",
                began_at,
                self._exchange.trial.began,
                settling.trace_id,
                bodies,
                session.history if session is not None else None,
            )
            if session is not None:
                session.task_id = settling.identity.task_id or session.task_id
            place = self._placement.place(session, arrival)
            self._turn = place.turn
            self._turn.under_way += 1
            opening = Beginning(self._means, self._exchange, settling, session).opening(
                arrival, place
            )
            urgent = settling.stream or settling.client_body.size >= LONG_BYTES
            self._calls.add(self.scope.turn_id, self._call)  # whoever hears of it may cancel it
            self._ticket = self._means.recorder.begin(opening, bodies, urgent=urgent)
            if session is not None:
                session.exists = True
                session.is_empty = False
                session.last_ticket = self._ticket
                if settling.conversation is not None and settling.conversation.hashes:
                    session.history = settling.conversation.history(session.history)
            self._has_begun = True
            if self._turn.cancellation is not None:
                # It must not keep the turn from ending.
                self._call.cancel()
                self.cancel(waits=False)
        return bodies

    def _began_at(self) -> datetime.datetime:
        """When the first try began, which is before it gets its record."""
        at, moment = clock.together()
        return at - datetime.timedelta(seconds=moment - self._exchange.trial.began)

    def keep(self, ticket: Ticket) -> None:
        """Another unit of this request is on its way."""
        self._ticket = ticket

    def prepare(self) -> None:
        """Do what will have to be done for the commit and can be done before."""
        self._means.recorder.prepare(self._ticket)

    def wait_for_start(self) -> None:
        """Wait until what begins with this request is committed, as long as it may."""
        self._means.recorder.writer.wait(self._ticket, self._patience)

    # -- the ends ------------------------------------------------------------------------------

    def succeed(self, answer: Answer, *, waits: bool = True) -> None:
        """The answer came whole. Whoever does not wait here does so by `wait_for_end`."""
        answer = self._exchange.trial.storable(answer)
        end, bodies = self._exchange.trial.succeeded(answer)
        self._end("finished", end, bodies, answer=answer, waits=waits)

    def wait_for_end(self) -> None:
        """Wait until the end is committed, as long as it may."""
        self._means.recorder.writer.wait(self._ticket, self._patience)

    def fail(self, failure: UpstreamFailure) -> None:
        """No answer, or only a part of one: the upstream's fault."""
        end, bodies = self._exchange.trial.failed(failure)
        self._end("provider", end, bodies, failed=True)

    def leave(self) -> None:
        """The client went away before it had the end of the answer."""
        end, bodies = self._exchange.trial.cut("cancelled", None, None)
        self._end("client_disconnect", end, bodies)

    @property
    def is_shutdown(self) -> bool:
        """Whether calls are cancelled because the server ends."""
        return self._calls.closing

    def cancel(self, *, waits: bool = True) -> None:
        """Someone cancelled the turn, or the server ends."""
        if self.is_shutdown:
            message = "xgw was shut down before the answer was complete"
            end, bodies = self._exchange.trial.cut("error", "interrupted", message)
            self._end("shutdown", end, bodies, waits=waits)
            return
        end, bodies = self._exchange.trial.cut("cancelled", None, None)
        self._end("user_cancel", end, bodies, waits=waits)

    def fail_internally(self) -> None:
        """Something in xgw itself went wrong; nothing happens unless the record is open."""
        if self._ended or not self._has_begun:
            return
        end, bodies = self._exchange.trial.cut("error", "internal", "xgw itself failed")
        self._end("gateway", end, bodies, failed=True)

    def _end(
        self,
        ended_by: str,
        end: AttemptEnd,
        bodies: Iterable[Stored],
        *,
        answer: Answer | None = None,
        failed: bool = False,
        waits: bool = True,
    ) -> None:
        if self._ended:
            return
        self._ended = True
        stored = [*bodies]
        session = self._session
        with session.lock if session else _UNLOCKED:
            moment: float | None = None
            if session is not None:
                at, moment = clock.together()
                # The one that comes last here ends the turn, so it must not seem to end earlier.
                end = changed(end, ended_at=at)
                self._turn.latest = at
            ending = self._ending(ended_by, end, moment, answer, stored, failed=failed)
            self._ticket = self._means.recorder.finish(ending, stored, awaited=True)
            if session is not None:
                session.last_ticket = self._ticket
        self._calls.remove(ending.scope.turn_id, self._call)
        if session is not None:
            self._sessions.release(session)
        if waits:
            self.wait_for_end()

    def _ending(
        self,
        ended_by: str,
        end: AttemptEnd,
        moment: float | None,
        answer: Answer | None,
        bodies: list[Stored],
        *,
        failed: bool,
    ) -> Ending:
        """`moment` is when it ends, by the clock that never goes back; None without a session."""
        turn = self._turn
        turn.under_way -= 1
        if turn.cancellation is not None and ended_by == "user_cancel":
            turn.cancellation.has_cut = True
        tools = self._tools(answer) if answer is not None and self._session is not None else ()
        waits = False
        turn_end: TurnEnd | None = None
        dropped: tuple[ToolEnd, ...] = ()
        if turn.under_way == 0:
            # A turn without a session is its only call, and takes exactly as long.
            busy: int | None = None
            if moment is not None:
                turn.busy_ms = busy = turn.busy_until(moment)
            turn_end = turn.settle(self._turn_end(ended_by, end, busy, answer))
            if turn_end.ended_by == "user_cancel":
                dropped = drop_open_tools(turn, end.ended_at)
            if turn.open_tools:
                turn.status, waits = "waiting", True
            else:
                turn.status = "ended"
        told = self._exchange.trial.is_recorded
        return Ending(
            scope=turn.scope,
            attempt=None if told else self._exchange.facts,
            end=None if told else end,
            failure=Retry("give_up") if failed else None,
            messages=self._answer_messages(end, answer, bodies),
            tools=tools,
            waits=waits,
            turn=turn_end,
            dropped_tools=dropped,
        )

    def _answer_messages(
        self, end: AttemptEnd, answer: Answer | None, bodies: list[Stored]
    ) -> tuple[MessageFacts, ...]:
        partial = answer is None
        answer = answer or self._exchange.trial.answer_so_far()
        if answer is None or not answer.choices:
            return ()
        said = answer_message(
            answer.message(),
            self._means.recorder.shelf,
            bodies,
            tokens=end.usage.output_tokens,
            token_source=end.usage.source,
            partial=partial,
        )
        return (said,) if said is not None else ()

    def _tools(self, answer: Answer) -> tuple[ToolStart, ...]:
        """The client-side tools that begin with this answer.

        A call that was cut short is not awaited; a result that comes all the same belongs here.
        """
        turn, starts = self._turn, []
        awaited = frozenset(turn.open_tools)  # by an answer before: asked for again, not once more
        for call in answer.tool_calls:
            call_id = call.tool_call_id
            if not call_id or call_id in awaited:
                continue
            choice = call.choice if len(answer.choices) > 1 else None
            notes = None if choice is None else {"choice": choice}
            start = ToolStart(ids.mint("step"), call_id, call.name, call.arguments, notes=notes)
            tool = OpenTool(start.step_id, call_id, call.name, call.arguments, clock.monotonic())
            tool.answer, tool.choice = self._exchange.facts.step_id, choice
            if call.incomplete:
                turn.ended_tools.setdefault(call_id, tool)
                continue
            turn.open_tool(tool)
            starts.append(start)
        return tuple(starts)

    def _turn_end(
        self, ended_by: str, end: AttemptEnd, busy: int | None, answer: Answer | None
    ) -> TurnEnd:
        text = answer.text() if answer is not None else end.partial_output
        return TurnEnd(
            ended_by=ended_by,
            ended_at=end.ended_at,
            busy_ms=busy,
            error_type=end.error_type,
            error_message=end.error_message,
            finish_reason=end.finish_reason if end.status == "success" else None,
            final_output=text,
            final_provider_name=self._exchange.target.provider.name,
            final_model=end.model,
        )
