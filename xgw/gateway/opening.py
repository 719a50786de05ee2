"""What begins with a proxied request, in the recorder's words: session, turn, messages, a try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from xgw.exchange.exchange import Exchange
from xgw.exchange.means import Means
from xgw.frozen import frozen
from xgw.gateway.arrival import Arrival, Place
from xgw.gateway.conversation import Conversation
from xgw.gateway.identity import Identity
from xgw.gateway.state import SessionState
from xgw.recording.elements import message_of
from xgw.recording.facts import MessageFacts, SessionFacts, TurnFacts
from xgw.recording.requests import Opening
from xgw.resent import Body

Mark = tuple[int, bytes]

PARAMETERS_LEFT_OUT = frozenset({"messages", "input", "tools", "metadata"})


@frozen
class Settling:
    """What a request brings for its record."""

    project_id: str
    org_id: str | None
    api_key_id: str | None
    identity: Identity
    conversation: Conversation | None
    endpoint: str
    stream: bool
    model: str
    tools: list[Any] | None
    client_body: Body
    trace_id: str | None
    fields: Mapping[str, Any]


class Beginning:
    """Builds the opening of one request; `session` is where it was placed."""

    def __init__(
        self,
        means: Means,
        exchange: Exchange,
        settling: Settling,
        session: SessionState | None,
    ) -> None:
        self._means = means
        self._exchange = exchange
        self._settling = settling
        self._session = session

    def opening(self, arrival: Arrival, place: Place) -> Opening:
        """The unit that begins the record; tells the exchange how its history compares."""
        settling, session = self._settling, self._session
        first = session is not None and not session.exists
        conversation = settling.conversation
        before = session.history if session else None
        history = conversation.compare(before) if conversation else None
        self._exchange.describe(history, self._estimate(), arrival.began_at)
        whole = first or (session is not None and session.is_empty)
        moved = _moved(conversation, place) if conversation and history == "rewritten" else {}
        messages = self._messages(arrival, place, moved, whole=whole)
        identity = settling.identity
        attempt = self._exchange.facts
        return Opening(
            scope=place.turn.scope,
            at=place.turn.not_before(arrival.began_at),
            session=self._session_facts(session) if first and session else None,
            session_changes={"task_id": identity.task_id, "end_user_id": identity.end_user_id},
            closings=tuple(place.closings),
            turn=self._turn_facts(arrival, place) if place.is_new else None,
            reopened=place.reopened,
            resumed=place.resumed,
            results=tuple(place.results),
            dropped_tools=place.dropped_tools,
            messages=tuple(messages),
            attempt=attempt,
            context_tokens=attempt.input_tokens,
            context_window=attempt.context_window,
        )

    def _messages(
        self, arrival: Arrival, place: Place, moved: dict[bytes, set[Mark]], *, whole: bool
    ) -> list[MessageFacts]:
        """The new elements as messages; those that this turn has seen before are only compared.

        `moved` are some that it has seen in other places, by their hashes.
        """
        settling = self._settling
        conversation = settling.conversation
        if conversation is None:
            return []
        before = self._session.history if self._session else None
        shelf, seen = self._means.recorder.shelf, place.turn.seen
        count, model = self._means.counter.count_message, settling.model
        old = conversation.asked_from if whole else 0
        messages: list[MessageFacts] = []
        positions = conversation.new_positions(before, whole=whole)
        last = max((*positions, *place.taken), default=None)
        if last is not None:
            place.turn.last_seen = last, conversation.hashes[last]
        for position in positions:
            digest = conversation.hashes[position]
            mark = (position, digest)
            if position in place.taken or mark in seen:
                continue
            seen.add(mark)
            if digest in moved and digest not in conversation.hashes[: conversation.tail]:
                seen -= moved.pop(digest)
                continue
            element = conversation.elements[position]
            message = message_of(
                element,
                shelf,
                arrival.bodies,
                tokens=count(element, model, digest=digest),
                history=position < old,
            )
            messages.append(message)
        for position in place.taken:
            seen.add((position, conversation.hashes[position]))
        return messages

    def _estimate(self) -> int | None:
        """Input tokens by the published rule; what was sent before is not counted again."""
        settling = self._settling
        conversation = settling.conversation
        if conversation is None:
            return None
        return self._means.counter.estimate_request(
            conversation.elements,
            settling.tools,
            settling.model,
            digests=conversation.hashes,
            known=conversation.elements.known,
        )

    def _session_facts(self, session: SessionState) -> SessionFacts:
        settling = self._settling
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

    def _turn_facts(self, arrival: Arrival, place: Place) -> TurnFacts:
        settling = self._settling
        shelf, masker = self._means.recorder.shelf, self._means.masker
        trial = self._exchange.trial
        # The same bytes are not taken apart twice: with a long history that is most of the work.
        as_sent = settling.client_body is trial.body
        body = trial.sent if as_sent else shelf.request(masker.request(settling.client_body))
        # The fields are those of a masked body: what goes by a credential's name is gone already.
        snapshot = shelf.whole(masker.body(_snapshot(settling.fields), ()))
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
            started_at=arrival.began_at,
            endpoint=settling.endpoint,
            user_input=conversation.user_input() if conversation else _embedding_input(settling),
            input_payload=body.hash,
            turn_key=settling.identity.turn_key,
            parent=settling.identity.parent,
            config_snapshot=snapshot.hash,
            metadata=metadata or None,
            owner=self._means.recorder.owner,
        )


def _moved(conversation: Conversation, place: Place) -> dict[bytes, set[Mark]]:
    """What the turn has seen where something else is now: its client shortened what was before."""
    hashes = conversation.hashes
    moved: dict[bytes, set[Mark]] = {}
    for position, digest in place.turn.seen:
        if position >= len(hashes) or hashes[position] != digest:
            moved.setdefault(digest, set()).add((position, digest))
    return moved


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
