"""The record of one proxied request: how it begins, and the one way in which it ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import orjson

from xgw import clock, ids
from xgw.exchange.calls import Calls
from xgw.exchange.exchange import Exchange
from xgw.exchange.means import Means
from xgw.gateway.conversation import Conversation, answer_message, message_of
from xgw.gateway.identity import Identity
from xgw.gateway.placement import Arrival, Place, Placement, no_result
from xgw.gateway.state import OpenTool, Sessions, SessionState, TurnState
from xgw.providers.transport import Call
from xgw.recording.facts import (
    AttemptEnd,
    MessageFacts,
    Retry,
    Scope,
    SessionFacts,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnFacts,
)
from xgw.recording.recorder import Ending, Opening
from xgw.store.payloads import Stored
from xgw.store.writer import Patience, Ticket
from xgw.values import Answer, UpstreamFailure

PARAMETERS_LEFT_OUT = frozenset({"messages", "input", "tools", "metadata"})


@dataclass(frozen=True, slots=True)
class Settling:
    """What a request brings for its record."""

    project_id: str
    org_id: str | None
    api_key_id: str | None
    identity: Identity
    conversation: Conversation | None
    endpoint: str
    model: str
    tools: list[Any] | None
    client_body: bytes
    trace_id: str | None
    fields: Mapping[str, Any]


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
        self._ended = False
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

    def begin(self, settling: Settling, session: SessionState | None) -> None:
        """Place the request and hand its start to the writer."""
        bodies: list[Stored] = [*self._exchange.trial.take_bodies()]
        with self._sessions.held(session) if session else nullcontext() as session:
            self._session = session
            arrival = Arrival(
                settling.project_id,
                settling.identity,
                settling.conversation,
                settling.endpoint == "chat.completions",
                clock.now(),
                settling.trace_id,
                bodies,
            )
            if session is not None:
                session.task_id = settling.identity.task_id or session.task_id
            place = self._placement.place(session, arrival)
            self._turn = place.turn
            self._turn.under_way += 1
            opening = self._opening(settling, session, arrival, place)
            self._ticket = self._means.recorder.begin(opening, bodies)
            if session is not None:
                session.exists = True
                session.is_empty = False
                session.last_ticket = self._ticket
                if settling.conversation is not None and settling.conversation.hashes:
                    session.history = settling.conversation.history(session.history)
            self._calls.add(self.scope.turn_id, self._call)

    def _opening(
        self, settling: Settling, session: SessionState | None, arrival: Arrival, place: Place
    ) -> Opening:
        first = session is not None and not session.exists
        conversation = settling.conversation
        before = session.history if session else None
        history = conversation.compare(before) if conversation else None
        self._exchange.describe(history, self._estimate(settling), arrival.at)
        whole = first or (session is not None and session.is_empty)
        messages = self._messages(settling, arrival, place, whole=whole)
        identity = settling.identity
        return Opening(
            scope=place.turn.scope,
            at=arrival.at,
            session=self._session_facts(settling, session) if first and session else None,
            session_changes={"task_id": identity.task_id, "end_user_id": identity.end_user_id},
            closings=tuple(place.closings),
            turn=self._turn_facts(settling, arrival, place) if place.is_new else None,
            reopened=place.reopened,
            resumed=place.resumed,
            results=tuple(place.results),
            messages=tuple(messages),
            attempt=self._exchange.facts,
            context_tokens=self._exchange.facts.input_tokens,
            context_window=self._exchange.facts.context_window,
        )

    def _messages(
        self, settling: Settling, arrival: Arrival, place: Place, *, whole: bool
    ) -> list[MessageFacts]:
        """The new elements as messages; those that this turn has seen before are only compared."""
        conversation = settling.conversation
        if conversation is None:
            return []
        before = self._session.history if self._session else None
        shelf, seen = self._means.recorder.shelf, place.turn.seen
        messages: list[MessageFacts] = []
        for position in conversation.new_positions(before, whole=whole):
            mark = (position, conversation.hashes[position])
            if position in place.taken or mark in seen:
                continue
            seen.add(mark)
            element = conversation.elements[position]
            message = message_of(
                element,
                shelf,
                arrival.bodies,
                tokens=self._means.counter.count_message(
                    element, settling.model, digest=conversation.hashes[position]
                ),
                history=whole and position < conversation.tail,
            )
            messages.append(message)
        for position in place.taken:
            seen.add((position, conversation.hashes[position]))
        return messages

    def _estimate(self, settling: Settling) -> int | None:
        """Input tokens by the published rule; messages seen before cost a look-up each."""
        conversation = settling.conversation
        if conversation is None:
            return None
        return self._means.counter.estimate_request(
            conversation.elements, settling.tools, settling.model, digests=conversation.hashes
        )

    def _session_facts(self, settling: Settling, session: SessionState) -> SessionFacts:
        identity = settling.identity
        return SessionFacts(
            id=session.session_id,
            session_key=session.session_key,
            project_id=settling.project_id,
            source=identity.session_source or "managed",
            org_id=settling.org_id,
            api_key_id=settling.api_key_id,
            end_user_id=identity.end_user_id,
            task_id=identity.task_id,
            model=settling.model,
            metadata={"identifiers": identity.others} if identity.others else None,
        )

    def _turn_facts(self, settling: Settling, arrival: Arrival, place: Place) -> TurnFacts:
        shelf, masker = self._means.recorder.shelf, self._means.masker
        body = shelf.request(masker.body(settling.client_body))
        snapshot = shelf.whole(masker.body(_snapshot(settling.fields)))
        arrival.bodies += [body, snapshot]
        conversation = settling.conversation
        metadata: dict[str, Any] = {}
        if settling.identity.others:
            metadata["identifiers"] = settling.identity.others
        client_metadata = settling.fields.get("metadata")
        if isinstance(client_metadata, dict):
            own = {
                k: v
                for k, v in client_metadata.items()
                if k.lower() not in settling.identity.metadata_keys
            }
            metadata |= {"client": own} if own else {}
        return TurnFacts(
            scope=place.turn.scope,
            started_at=arrival.at,
            endpoint=settling.endpoint,
            user_input=conversation.user_input() if conversation else _embedding_input(settling),
            input_payload=body.hash,
            turn_key=settling.identity.turn_key,
            config_snapshot=snapshot.hash,
            metadata=metadata or None,
            owner=self._means.recorder.owner,
        )

    def keep(self, ticket: Ticket) -> None:
        """Another unit of this request is on its way."""
        self._ticket = ticket

    def wait_for_start(self) -> None:
        """Wait until what begins with this request is committed, as long as it may."""
        self._means.recorder.writer.wait(self._ticket, self._patience)

    # -- the ends ------------------------------------------------------------------------------

    def succeed(self, answer: Answer) -> None:
        """The answer came whole."""
        answer = self._exchange.trial.storable(answer)
        end, bodies = self._exchange.trial.succeeded(answer)
        self._end("finished", end, bodies, answer=answer)

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

    def cancel(self) -> None:
        """Someone cancelled the turn, or the server ends."""
        if self.is_shutdown:
            message = "xgw was shut down before the answer was complete"
            end, bodies = self._exchange.trial.cut("error", "interrupted", message)
            self._end("shutdown", end, bodies)
            return
        end, bodies = self._exchange.trial.cut("cancelled", None, None)
        self._end("user_cancel", end, bodies)

    def fail_internally(self) -> None:
        """Something in xgw itself went wrong; nothing happens if the record has ended."""
        if self._ended:
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
    ) -> None:
        if self._ended:
            return
        self._ended = True
        stored = [*bodies]
        session = self._session
        with session.lock if session else nullcontext():
            ending = self._ending(ended_by, end, answer, stored, failed=failed)
            ticket = self._means.recorder.finish(ending, stored)
            if session is not None:
                session.last_ticket = ticket
        self._calls.remove(self.scope.turn_id, self._call)
        if session is not None:
            self._sessions.release(session)
        self._means.recorder.writer.wait(ticket, self._patience)

    def _ending(
        self,
        ended_by: str,
        end: AttemptEnd,
        answer: Answer | None,
        bodies: list[Stored],
        *,
        failed: bool,
    ) -> Ending:
        turn = self._turn
        turn.under_way -= 1
        tools = self._tools(end) if answer is not None and self._session is not None else ()
        waits = False
        turn_end: TurnEnd | None = None
        dropped: tuple[ToolEnd, ...] = ()
        if turn.under_way == 0:
            busy = turn.busy_until_now()
            turn.busy_ms = busy
            turn_end = self._turn_end(ended_by, end, busy, answer)
            if ended_by == "user_cancel":
                dropped = tuple(no_result(tool, end.ended_at) for tool in turn.open_tools.values())
                turn.open_tools.clear()
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

    def _tools(self, end: AttemptEnd) -> tuple[ToolStart, ...]:
        """The client-side tools that begin with this answer."""
        starts = []
        for call in end.tool_calls or ():
            call_id = call["tool_call_id"]
            if not call_id or call["incomplete"] or call_id in self._turn.open_tools:
                continue
            start = ToolStart(ids.mint("step"), call_id, call["name"], call["arguments"])
            self._turn.open_tools[call_id] = OpenTool(
                start.step_id, call_id, call["name"], call["arguments"], clock.monotonic()
            )
            starts.append(start)
        return tuple(starts)

    def _turn_end(
        self, ended_by: str, end: AttemptEnd, busy: int, answer: Answer | None
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


def _snapshot(fields: Mapping[str, Any]) -> bytes:
    """The request's parameters as they were: everything but the conversation."""
    kept = {k: v for k, v in fields.items() if k not in PARAMETERS_LEFT_OUT}
    tools = fields.get("tools")
    if isinstance(tools, list):
        kept["tools"] = [_tool_name(tool) for tool in tools]
    return orjson.dumps(kept)


def _tool_name(tool: Any) -> str | None:
    if not isinstance(tool, dict):
        return None
    function = tool.get("function")
    named = function.get("name") if isinstance(function, dict) else tool.get("name")
    return named if isinstance(named, str) else None


def _embedding_input(settling: Settling) -> str | None:
    given = settling.fields.get("input")
    if isinstance(given, str):
        return given
    if isinstance(given, list) and all(isinstance(entry, str) for entry in given):
        return "\n".join(given)
    return None
