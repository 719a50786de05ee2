"""A proxied request on its way in: read, placed in the record, handed to the exchange."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from xgw import clock
from xgw.errors import ApiError
from xgw.exchange.attempts import UsageRefusals
from xgw.exchange.calls import Calls
from xgw.exchange.exchange import Exchange
from xgw.exchange.headers import Headers
from xgw.exchange.means import Means
from xgw.exchange.order import Endpoint, Order
from xgw.exchange.routing import Router
from xgw.gateway.answering import Answering, Reply
from xgw.gateway.conversation import read_conversation
from xgw.gateway.identity import Identity, parse_traceparent, read_identity
from xgw.gateway.opening import Settling
from xgw.gateway.placement import Placement
from xgw.gateway.record import Record
from xgw.gateway.state import Sessions, SessionState
from xgw.providers.dialects.chat_request import parse_object, parse_request, rewrite
from xgw.providers.transport import Call


@dataclass(frozen=True, slots=True)
class Ask:
    """A client's request as the web hands it over; `headers` as they came, names in lower case."""

    endpoint: Endpoint
    body: bytes
    headers: Headers
    query: str
    url_key: str | None
    project_id: str
    org_id: str | None
    api_key_id: str | None
    client: dict[str, Any]
    sock: socket.socket | None
    arrived: float = field(default_factory=clock.monotonic)


class Gateway:
    """Forwards requests. One method for the web: `answer`."""

    def __init__(self, means: Means, router: Router, calls: Calls, sessions: Sessions) -> None:
        self._means = means
        self._router = router
        self._calls = calls
        self._sessions = sessions
        self._placement = Placement(sessions, means.recorder.shelf, means.counter.count_message)
        self._refusals = UsageRefusals()

    def answer(self, ask: Ask) -> Reply:
        """Forward one request. Raises ApiError for a request that xgw refuses itself."""
        means = self._means.for_client(ask.headers)
        request = self._read(ask, means)
        order = self._order(ask, request)
        exchange = Exchange(means, order, self._refusals)
        call = Call(ask.sock)
        record = self._begin(ask, request, exchange, call, means)
        return Answering(means, exchange, record, order, call, ask.arrived).run()

    # -- reading -------------------------------------------------------------------------------

    def _read(self, ask: Ask, means: Means) -> _Request:
        by_name = {name.lower(): value for name, value in ask.headers}
        masked = means.masker.body(ask.body)
        if ask.endpoint == "chat.completions":
            chat = parse_request(ask.body)
            recorded = chat if masked is ask.body else parse_request(masked)
            fields, model = recorded.fields, chat.model
            messages, tools = recorded.messages, chat.tools
            stream, wants_usage = chat.stream, chat.include_usage
        else:
            fields = parse_object(masked)
            model, messages, tools = _embedding_model(fields), [], None
            stream, wants_usage = False, False
        identity = read_identity(self._means.config.gateway, by_name, fields, ask.url_key)
        body = rewrite(ask.body, metadata_without=identity.metadata_keys)
        trace_id = parse_traceparent(by_name.get("traceparent"))
        return _Request(
            identity, model, messages, tools, stream, wants_usage, body, trace_id, fields
        )

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
        self, ask: Ask, request: _Request, exchange: Exchange, call: Call, means: Means
    ) -> Record:
        conversation = None
        if ask.endpoint == "chat.completions":
            hashes = exchange.trial.sent.elements
            if len(hashes) != len(request.messages):
                hashes = tuple(_digest(m) for m in request.messages)
            conversation = read_conversation(request.messages, hashes)
        record = Record(
            means,
            self._placement,
            self._calls,
            self._sessions,
            exchange,
            call,
        )
        record.begin(
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
                trace_id=request.trace_id,
                fields=request.fields,
            ),
            self._session(ask.project_id, request.identity),
        )
        return record

    def _session(self, project_id: str, identity: Identity) -> SessionState | None:
        if identity.managed:
            return self._sessions.take_new(project_id)
        if identity.session_key is None:
            return None
        return self._sessions.take(project_id, identity.session_key)


@dataclass(frozen=True, slots=True)
class _Request:
    identity: Identity
    model: str
    messages: list[dict[str, Any]]
    tools: list[Any] | None
    stream: bool
    wants_usage: bool
    body: bytes
    trace_id: str | None
    fields: dict[str, Any]


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
