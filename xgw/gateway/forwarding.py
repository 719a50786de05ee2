"""A proxied request on its way in: read, placed in the record, handed to the exchange."""

from __future__ import annotations

import socket
from functools import partial
from hashlib import blake2b
from typing import Any

import orjson

from xgw import clock
from xgw.accounting.tokens import PATIENCE_SECONDS
from xgw.errors import ApiError
from xgw.exchange.attempts import UsageRefusals
from xgw.exchange.calls import Calls
from xgw.exchange.exchange import Exchange
from xgw.exchange.headers import Headers, by_name
from xgw.exchange.means import Means
from xgw.exchange.order import Endpoint, Order
from xgw.exchange.routing import Router
from xgw.frozen import field, frozen
from xgw.gateway.answering import Answering, Reply
from xgw.gateway.conversation import Conversation, read_conversation
from xgw.gateway.doorway import Doorway, Place
from xgw.gateway.identity import Identity, check_spelling, parse_traceparent, read_identity
from xgw.gateway.opening import Settling
from xgw.gateway.placement import Placement
from xgw.gateway.record import Record
from xgw.gateway.resending import Known, Resending, Taken, Taking
from xgw.gateway.sessions import Sessions
from xgw.gateway.state import SessionState
from xgw.providers.dialects.chat_request import (
    ChatRequest,
    parse_object,
    parse_request,
    rewrite,
)
from xgw.providers.transport import Call
from xgw.resent import HASH_BYTES, MARK, Body, Hashes
from xgw.store.payloads import RUNS_FROM

MARKED = orjson.loads(MARK)


@frozen
class Ask:
    """A client's request as the web hands it over; `headers` as they came, names in lower case."""

    endpoint: Endpoint
    body: bytes | Taken
    headers: Headers
    query: str
    url_key: str | None
    project_id: str
    org_id: str | None
    api_key_id: str | None
    client: dict[str, Any]
    sock: socket.socket | None
    arrived: float = field(default_factory=clock.monotonic)

    @property
    def whole(self) -> bytes:
        """The body's bytes in one."""
        return self.body if isinstance(self.body, bytes) else self.body.body.whole


class Gateway:
    """Forwards requests. Two methods for the web: `taking` for a body, and `answer`."""

    def __init__(self, means: Means, router: Router, calls: Calls, sessions: Sessions) -> None:
        self._means = means
        self._router = router
        self._calls = calls
        self._sessions = sessions
        self._placement = Placement(sessions, means.recorder.shelf, means.counter.count_message)
        self._refusals = UsageRefusals()
        self._resending = Resending()
        self._doorway = Doorway()

    def taking(self, project_id: str, headers: Headers) -> Taking:
        """Takes the body of a chat request."""
        return Taking(self._resending, project_id, self._means.for_client(headers).masker)

    def answer(self, ask: Ask) -> Reply:
        """Forward one request. Raises ApiError for a request that xgw refuses itself."""
        means = self._means.for_client(ask.headers)
        place = self._doorway.passing()
        with place:
            request = self._read(ask, means)
            order = self._order(ask, request)
            # The first one for GPT-4 brings its vocabulary: that is no part of its provider's time.
            means.counter.wait(request.model, PATIENCE_SECONDS)
            exchange = Exchange(means, order, self._refusals)
            call = Call(ask.sock)
            record = Record(means, self._placement, self._calls, self._sessions, exchange, call)
            begin = partial(self._begin, ask, request, exchange, record, means, place)
            answering = Answering(means, exchange, record, order, call, ask.arrived, begin)
            if not self._doorway.free:
                # To send is to let others compute: it would take long to get at it again.
                answering.begin()
            return answering.run()

    # -- reading -------------------------------------------------------------------------------

    def _read(self, ask: Ask, means: Means) -> _Request:
        if ask.endpoint != "chat.completions":
            return self._read_embeddings(ask, means)
        taken = ask.body
        if isinstance(taken, bytes):
            taken = self._resending.find(ask.project_id, taken, means.masker)
        if taken.known is not None:
            request = self._read_resent(ask, taken.body, taken.known, means)
            if request is not None:
                return request
        whole = taken.body.whole
        chat = parse_request(whole)
        masked = means.masker.body(whole, chat.fields if chat.strict else None)
        as_sent = masked is whole
        recorded = chat if as_sent else parse_request(masked)
        plain = taken.body if taken.body.run is None else Body.plain(whole)
        plain.has_nothing_for = means.masker if as_sent else None
        is_plain = as_sent and chat.strict
        return self._request(ask, plain, chat, recorded, None, means, is_plain=is_plain)

    def _read_resent(self, ask: Ask, body: Body, known: Known, means: Means) -> _Request | None:
        """The request whose first messages are known; None if it has to be read as a whole."""
        try:
            chat = parse_request(body.folded)
        except ApiError:
            return None
        if not chat.strict or not chat.messages or chat.messages[0] != MARKED:
            return None
        if means.masker.request(body) is not body:
            return None
        del chat.messages[0]
        return self._request(ask, body, chat, chat, known, means, is_plain=True)

    def _request(
        self,
        ask: Ask,
        body: Body,
        chat: ChatRequest,
        recorded: ChatRequest,
        known: Known | None,
        means: Means,
        *,
        is_plain: bool,
    ) -> _Request:
        identity = self._identity(ask, chat.fields, means)
        return _Request(
            identity=identity,
            model=chat.model,
            messages=recorded.messages,
            tools=chat.tools,
            stream=chat.stream,
            wants_usage=chat.include_usage,
            # What a strict reader took is valid: nothing is to be found out by going through it.
            body=body
            if chat.strict and not identity.metadata_keys
            else _without_identifiers(body, identity),
            fields=recorded.fields,
            known=known,
            is_plain=is_plain,
        )

    def _read_embeddings(self, ask: Ask, means: Means) -> _Request:
        sent = parse_object(ask.whole)
        masked = means.masker.body(ask.whole)
        fields = sent if masked is ask.whole else parse_object(masked)
        identity = self._identity(ask, sent, means)
        return _Request(
            identity=identity,
            model=_embedding_model(fields),
            messages=[],
            tools=None,
            stream=False,
            wants_usage=False,
            body=_without_identifiers(Body.plain(ask.whole), identity),
            fields=fields,
        )

    def _identity(self, ask: Ask, fields: dict[str, Any], means: Means) -> Identity:
        named, mask = by_name(ask.headers), means.masker.identifier
        identity = read_identity(means.config.gateway, named, fields, ask.url_key, mask)
        if identity.metadata_keys:
            check_spelling(identity, ask.whole)
        return identity

    def _order(self, ask: Ask, request: _Request) -> Order:
        return Order(
            endpoint=ask.endpoint,
            model=request.model,
            way=self._router.find(request.model, ask.endpoint),
            body=request.body,
            stream=request.stream,
            wants_usage=request.wants_usage,
            headers=ask.headers,
            query=ask.query,
            client=ask.client,
        )

    def _begin(
        self,
        ask: Ask,
        request: _Request,
        exchange: Exchange,
        record: Record,
        means: Means,
        place: Place,
    ) -> None:
        """Begin the record, and give up the place: from here on there is something to wait for.

        The provider has the request by then, as a rule: it need not wait for this.
        """
        with place:
            self._record(ask, request, exchange, record, means)

    def _record(
        self, ask: Ask, request: _Request, exchange: Exchange, record: Record, means: Means
    ) -> None:
        conversation = None
        if ask.endpoint == "chat.completions":
            conversation = _conversation(request, exchange.trial.sent.elements)
        bodies = record.begin(
            Settling(
                project_id=ask.project_id,
                org_id=ask.org_id,
                api_key_id=ask.api_key_id,
                identity=request.identity,
                conversation=conversation,
                endpoint=ask.endpoint,
                stream=request.stream,
                model=request.model,
                tools=request.tools,
                client_body=request.body,
                trace_id=_trace_id(ask),
                fields=request.fields,
            ),
            self._session(ask.project_id, request.identity),
        )
        if conversation is not None and request.is_plain:
            self._resending.remember(
                ask.project_id, means.masker, conversation, request.known, bodies
            )

    def _session(self, project_id: str, identity: Identity) -> SessionState | None:
        if identity.managed:
            return self._sessions.take_new(project_id)
        if identity.session_key is None:
            return None
        return self._sessions.take(project_id, identity.session_key)


@frozen
class _Request:
    """What a client asks for. `messages` are those that are not `known`.

    `is_plain`: nothing of it had to be masked, or read leniently.
    """

    identity: Identity
    model: str
    messages: list[dict[str, Any]]
    tools: list[Any] | None
    stream: bool
    wants_usage: bool
    body: Body
    fields: dict[str, Any]
    known: Known | None = None
    is_plain: bool = False


def _conversation(request: _Request, hashes: Hashes) -> Conversation:
    """The request's conversation; `hashes` are its body's, which has none if it is kept whole."""
    known = request.known
    run, roles = (known.run, known.roles) if known is not None else (None, None)
    before = run.hashes.joined if run is not None else b""
    if len(hashes) != len(before) // HASH_BYTES + len(request.messages):
        hashes = Hashes(before + b"".join(map(_digest, request.messages)))
    # Of shorter bodies nothing is remembered.
    goes_on = request.body.size >= RUNS_FROM
    return read_conversation(request.messages, hashes, run, roles, goes_on=goes_on)


def _without_identifiers(body: Body, identity: Identity) -> Body:
    return body.edited(rewrite(body.folded, metadata_without=identity.metadata_keys))


def _trace_id(ask: Ask) -> str | None:
    given = by_name(ask.headers).get("traceparent")
    return None if given is None else parse_traceparent(given)


def _embedding_model(fields: dict[str, Any]) -> str:
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise ApiError(
            400,
            "invalid_request_error",
            "`model` must be a string that is not empty.",
            param="model",
        )
    return model


def _digest(element: dict[str, Any]) -> bytes:
    return blake2b(orjson.dumps(element), digest_size=16).digest()
