"""The loop of one turn: ask the model, run its tools, send the results, until an answer or a limit.

There is one path for every mode and interface, and for runs that go on from a checkpoint. Whatever
happens ends in one place, `_close`, with every call answered, so that the session can go on.
"""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from xgw import clock
from xgw.agents import context
from xgw.agents.asked import Handoff
from xgw.agents.definition import NoTools
from xgw.agents.ends import SHUTDOWN, Finish, Reached, by_limit, out_of_time
from xgw.agents.fitting import Fitting, fitting_of
from xgw.agents.functions import ToolFailed
from xgw.agents.handoff import MAX_DEPTH, Inside
from xgw.agents.heard import read_answer, received_of, with_ids
from xgw.agents.parts import Parts, Start
from xgw.agents.rounds import ToolSteps
from xgw.agents.snapshots import snapshot_of
from xgw.agents.spent import Spent
from xgw.agents.tasks import begin_task
from xgw.agents.tools import Suspended
from xgw.agents.turns import Turn, Wanted
from xgw.errors import ApiError
from xgw.exchange.exchange import Exchange, GaveUp
from xgw.frozen import changed
from xgw.providers.transport import Call, Cancelled
from xgw.recording.elements import answer_message
from xgw.recording.facts import AttemptEnd, MessageFacts, Retry, TurnEnd
from xgw.recording.requests import Ending
from xgw.store.payloads import Stored
from xgw.store.writer import Patience, Ticket
from xgw.values import Answer, UpstreamFailure

log = logging.getLogger("xgw.agents")


class Unsettled(Exception):
    """The turn cannot begin: a server that has tools of the agent cannot be used."""


class Loop:
    """One turn, for the thread that runs it."""

    def __init__(
        self, parts: Parts, turn: Turn, start: Start, is_closing: Callable[[], bool]
    ) -> None:
        self._parts = parts
        self._turn = turn
        self._start = start
        self._is_closing = is_closing
        above = None if start.inside is None else start.inside.spent
        self._spent = Spent(start.checkpoint, above, start.since)
        self._model = turn.wanted.model or start.definition.table.model
        self._sent_before = start.sent_before
        self._exchange: Exchange | None = None
        self._in_call = False
        self._context = start.context
        self._offers = [tool.offer() for tool in start.definition.tools]
        self._fitting: Fitting
        self._tools = self._tools_of(start)
        self.finish: Finish | None = None
        """How it ended, once it has."""
        self._text = start.text
        self._final_model: str | None = None
        self._ticket: Ticket | None = None
        self._waits = False

    def run(self) -> bool:
        """Everything up to the recorded end of the turn; True if it waits for a person instead.

        Raises nothing.
        """
        seconds = self._start.bounds.seconds
        left = 0.0 if seconds is None else seconds - self._spent.elapsed_ms / 1000
        timer = threading.Timer(max(0.0, left), self._turn.stop, ("limit",))
        timer.daemon = True
        if seconds is not None:
            timer.start()
        try:
            self._go()
        except Reached as reached:
            self._close(by_limit(reached.limit))
        except Cancelled:
            self._close(self._stopped())
        except Unsettled as error:
            self._close(Finish("gateway", "tool_error", str(error)))
        except ApiError as error:
            self._close(Finish("gateway", error.type, error.message))
        except Exception:  # the driver of a run: it marks the run failed
            log.exception("turn %s failed", self._turn.scope.turn_id)
            self._close(Finish("gateway", "internal", "xgw itself failed"))
        finally:
            timer.cancel()
        if self._ticket is not None:
            self._parts.means.recorder.writer.wait(self._ticket, Patience())
        return self._waits

    def _tools_of(self, start: Start) -> ToolSteps:
        parts = self._parts
        return ToolSteps(
            parts.means,
            parts.record,
            parts.pool,
            self._turn,
            start.definition,
            self._spent,
            start.earlier,
            start.context.desk,
            self._hand_over,
            start.inside,
        )

    @property
    def text(self) -> str | None:
        """What the model said last."""
        return self._text

    def _go(self) -> None:
        self._settle()
        has_calls = self._tools.take_up(self._start.checkpoint)
        self._fitting = fitting_of(self._parts, self._turn, self._start, self._model, self._offers)
        if has_calls and not self._run_tools():
            return
        self._start.used.check(self._start.bounds)
        while (said := self._ask()) is not None:
            self._context.say(said)
            self._start.used.check(self._start.bounds)
            if not self._run_tools():
                return

    def _run_tools(self) -> bool:
        """Run the calls of the last answer; False if a person is awaited by another agent that has
        a task now."""
        results = self._tools.run()
        self._start.used.check(self._start.bounds)  # another agent may have used what was left
        if results is not None:
            self._context.answer(results)
            return True
        self._waits = True
        if self._start.inside is None:
            turn, scope = self._end_of(Finish("finished"), clock.now()), self._turn.scope
            progress = self._tools.progress()
            ending = Ending(scope, None, None, waits=True, turn=turn, progress=progress)
            self._ticket = self._parts.means.recorder.finish(ending, ())
        return False

    def _settle(self) -> None:
        """Ask the agent's servers for their tools, where it has any; the turn then keeps these."""
        asked = self._start.definition
        if not asked.sources:
            return
        try:
            definition = asked.settled(self._turn.call)
        except NoTools as error:
            # It may quote what a server wrote.
            raise Unsettled(self._parts.means.masker.text(str(error))) from None
        self._start = replace(self._start, definition=definition)
        self._tools = self._tools_of(self._start)
        self._offers = [tool.offer() for tool in definition.tools]
        if not self._turn.goes_on and self._start.inside is None:
            snapshot = snapshot_of(self._parts.means, definition, self._turn.wanted)
            self._ticket = self._parts.record.settle(self._turn.scope, snapshot)

    # -- one answer ----------------------------------------------------------------------------

    def _ask(self) -> context.Block | None:
        """What the model says if it asks for tools; None once the turn has ended, or waits.

        What turns out to be too long for the provider is sent once more, shorter.
        """
        size = self._fitting.fit()
        self._start.used.begin(self._start.bounds)
        answered = context.last_results(self._context.elements())
        try:
            try:
                return self._take(*self._call(size, answered))
            except GaveUp as end:
                assert self._exchange is not None
                recorder, scope = self._parts.means.recorder, self._turn.scope
                if not self._fitting.shorten(recorder, scope, self._exchange, end.failure):
                    raise
            return self._take(*self._call(self._fitting.fit(), ()))
        except GaveUp as end:
            self._fail(end.failure)
            return None

    def _call(self, size: int | None, answered: Sequence[str]) -> tuple[Answer, dict[str, Any]]:
        """One answer, and the message as it came. Raises GaveUp without one."""
        inside = self._start.inside
        parameters = {**self._start.definition.table.parameters, **self._turn.wanted.parameters}
        self._exchange = exchange = self._parts.exchange(
            self._model,
            self._context.elements(),
            self._turn.wanted.client,
            tools=self._offers,
            parameters=parameters,
            parent_step_id=inside.step_id if inside else None,
            agent_name=inside.agent_name if inside else None,
            window=self._start.bounds.window,
        )
        exchange.describe(self._compare(exchange.trial.sent), size, clock.now())
        scope, start = self._turn.scope, self._parts.record.call
        self._in_call = True
        self._ticket = start(scope, exchange.facts, answered, exchange.trial.take_bodies())
        try:
            opened = exchange.open(lambda: scope, self._turn.call, self._keep)
            answer = read_answer(opened)
        finally:
            exchange.trial.close_response()
        return answer, received_of(opened, answer)

    def _keep(self, ticket: Ticket) -> None:
        self._ticket = ticket

    def _compare(self, sent: Stored) -> str | None:
        """How what is sent compares with what the session's previous call sent."""
        before, self._sent_before = self._sent_before, tuple(sent.elements)
        if before is None:
            return None
        return "appended" if self._sent_before[: len(before)] == before else "rewritten"

    def _take(self, answer: Answer, received: dict[str, Any]) -> context.Block | None:
        """Record an answer; without calls it is the turn's."""
        assert self._exchange is not None
        answer, received, calls = with_ids(answer, received)
        answer = self._exchange.trial.storable(answer)
        end, bodies = self._exchange.trial.succeeded(answer)
        self._start.used.add(end)
        self._text = answer.text() or self._text
        self._final_model = end.model
        said = self._message(answer, end, bodies, partial=False)
        if not calls:
            finish = Finish("finished")
            self._finish(finish, end, said, bodies, finish_reason=answer.finish_reason)
            return None
        self._tools.ask(self._exchange.facts.step_id, calls)
        # A limit ends the turn whatever a person would decide.
        self._waits = self._tools.undecided and self._start.used.reached(self._start.bounds) is None
        holds = self._waits and self._start.inside is None
        ending = Ending(
            self._turn.scope,
            self._exchange.facts,
            end,
            messages=said,
            waits=holds,
            turn=self._end_of(Finish("finished"), end.ended_at) if holds else None,
            progress=self._tools.progress(),
        )
        self._in_call = False
        self._ticket = self._parts.means.recorder.finish(ending, bodies)
        if self._waits:
            return None
        message_ids = tuple(message.id for message in said)
        asked = (context.assistant(received),)
        return context.Block(self._turn.scope.turn_id, asked, message_ids)

    def _message(
        self, answer: Answer | None, end: AttemptEnd, bodies: list[Stored], *, partial: bool
    ) -> tuple[MessageFacts, ...]:
        if answer is None or not answer.choices:
            return ()
        said = answer_message(
            answer.message(),
            self._parts.means.recorder.shelf,
            bodies,
            tokens=end.usage.output_tokens,
            token_source=end.usage.source,
            partial=partial,
        )
        if said is None:
            return ()
        inside = self._start.inside
        if inside is not None:
            said = changed(said, metadata={**(said.metadata or {}), "handoff": inside.step_id})
        return (said,)

    # -- other agents --------------------------------------------------------------------------

    def _hand_over(self, handoff: Handoff, stop: Call) -> str:
        """What another agent answers to a message. Raises ToolFailed with why it does not, and
        Suspended."""
        turn, start, partner = self._turn, self._start, handoff.partner
        done = start.handed.find(handoff.known, handoff.step_id)
        if handoff.known is not None and handoff.known.is_answered:
            return done.text or ""
        depth = 1 if start.inside is None else start.inside.depth + 1
        if depth > MAX_DEPTH:
            raise ToolFailed(f"{MAX_DEPTH} tasks are handed over inside of one another already")
        # A plan is the turn's: where it is worked on for another one, nobody keeps one.
        wanted = Wanted(handoff.message, "chat", client=turn.wanted.client)
        task = Turn(turn.scope, partner, wanted, call=stop)
        inside = Inside(handoff.step_id, partner, depth, self._spent, done.above)
        begun = begin_task(self._parts, turn.scope.turn_id, start, handoff, done, inside)
        loop = Loop(self._parts, task, begun, self._is_closing)
        if loop.run():
            raise Suspended
        if loop.finish is None or loop.finish.ended_by != "finished":
            reason = loop.finish and loop.finish.message
            raise ToolFailed(f"the agent {partner} came to no answer: {reason or 'it was stopped'}")
        return loop.text or ""

    # -- ends ----------------------------------------------------------------------------------

    def _fail(self, failure: UpstreamFailure) -> None:
        """No target answered, or one broke off."""
        assert self._exchange is not None
        end, bodies = self._exchange.trial.failed(failure)
        finish = Finish("provider", end.error_type, end.error_message)
        self._finish_call(finish, end, bodies, Retry("give_up"))

    def _stopped(self) -> Finish:
        """Why the turn was stopped."""
        reason = self._turn.reason
        if reason == "limit":
            return out_of_time(self._spent.elapsed_ms / 1000, self._start.bounds.seconds or 0)
        if reason is None and self._is_closing():
            return SHUTDOWN
        return Finish(reason or "user_cancel")

    def _close(self, finish: Finish) -> None:
        """End the turn from this side, and whatever of it is open."""
        if not self._in_call or self._exchange is None or self._exchange.trial.is_recorded:
            self._finish(finish, None, (), [])
            return
        error = finish.call_error
        status = "cancelled" if error is None else "error"
        end, bodies = self._exchange.trial.cut(status, error, finish.message)
        self._finish_call(finish, end, bodies, None)

    def _finish_call(
        self, finish: Finish, end: AttemptEnd, bodies: list[Stored], failure: Retry | None
    ) -> None:
        """The turn ends in the middle of a call: what has arrived is kept."""
        assert self._exchange is not None
        so_far = self._exchange.trial.answer_so_far()
        self._text = (so_far.text() if so_far else None) or self._text
        self._final_model = end.model
        said = self._message(so_far, end, bodies, partial=True)
        self._finish(finish, end, said, bodies, failure=failure)

    def _finish(
        self,
        finish: Finish,
        end: AttemptEnd | None,
        said: tuple[MessageFacts, ...],
        bodies: list[Stored],
        *,
        failure: Retry | None = None,
        finish_reason: str | None = None,
    ) -> None:
        self._tools.start_rest()
        at, exchange, is_inside = clock.now(), self._exchange, self._start.inside is not None
        closed = self._tools.close(finish.message or "it was cancelled", at)
        is_answered = is_inside and finish.ended_by == "finished"
        ending = Ending(
            scope=self._turn.scope,
            attempt=exchange.facts if exchange is not None and end is not None else None,
            end=changed(end, ended_at=at) if end is not None else None,
            failure=failure,
            messages=said,
            dropped_tools=closed.ends,
            dropped_handoffs=closed.handoffs,
            results=closed.said,
            limit=finish.limit,
            turn=None if is_inside else self._end_of(finish, at, finish_reason),
            progress=self._tools.progress(is_answered=True) if is_answered else None,
        )
        self._in_call = False
        self.finish = finish
        self._ticket = self._parts.means.recorder.finish(ending, bodies)

    def _end_of(
        self, finish: Finish, at: datetime.datetime, finish_reason: str | None = None
    ) -> TurnEnd:
        exchange = self._exchange
        return TurnEnd(
            ended_by=finish.ended_by,
            ended_at=at,
            busy_ms=self._spent.busy_ms,
            error_type=finish.error_type,
            error_message=finish.message,
            finish_reason=finish_reason,
            final_output=self._text,
            final_provider_name=exchange.target.provider.name if exchange else None,
            final_model=self._final_model,
            keep_final=exchange is None,  # what the run that it goes on from had said stands
        )
