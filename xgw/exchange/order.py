"""What is asked of an upstream: the client's request, and how it goes out to one target."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal
from urllib.parse import parse_qsl, quote

from xgw.config import is_credential_parameter
from xgw.exchange.headers import Headers, by_name, to_upstream
from xgw.exchange.routing import Target, Way
from xgw.frozen import frozen
from xgw.providers.dialects.chat_request import rewrite
from xgw.providers.transport import UpstreamRequest
from xgw.resent import Body

Endpoint = Literal["chat.completions", "embeddings"]

PATHS: dict[str, str] = {"chat.completions": "/chat/completions", "embeddings": "/embeddings"}


@frozen
class Order:
    """One model answer that is asked for.

    `body` is the client's JSON without xgw's own identifiers; `stream` and `wants_usage` are what
    the client asked for. A `purpose` is set of one whose answer nobody waits for to read it:
    nothing of it is sent out as it comes. `parent_step_id` is the step that it is a part of.
    """

    endpoint: Endpoint
    model: str
    way: Way
    body: Body
    stream: bool
    wants_usage: bool
    headers: Headers
    query: str
    client: dict[str, Any]
    purpose: str | None = None
    parent_step_id: str | None = None
    agent_name: str | None = None
    """Who asks, in a task that was handed over."""
    window: int | None = None
    """How many tokens may be sent, where whoever asks says so; else it is the model's."""


def body_for(order: Order, target: Target, *, ask_usage: bool) -> Body:
    """The body for one target: its model name, all else as the client sent it."""
    model = None if target.model == order.model else target.model
    if model is None and not ask_usage:
        return order.body
    edited = rewrite(order.body.folded, model=model, include_usage=ask_usage)
    return order.body.edited(edited)


def build_request(order: Order, target: Target, body: Body) -> UpstreamRequest:
    """The request for one target with its credential."""
    url = f"{target.provider.base_url}{PATHS[order.endpoint]}{forwarded_query(order.query)}"
    headers = to_upstream(order.headers, target.provider)
    direct = target.provider.kind == "demo"  # it lives in this process, behind no proxy
    return UpstreamRequest("POST", url, headers, body.pieces, direct)


def labels_of(order: Order) -> dict[str, Any] | None:
    """What the client says of itself, its own retries; what the call is for; which agent asks."""
    if order.purpose is not None:
        return {"purpose": order.purpose}
    count = by_name(order.headers).get("x-stainless-retry-count", "0")
    retried = {"client_retry_count": count} if count.isdecimal() and count != "0" else {}
    agent = {"agent_name": order.agent_name} if order.agent_name else {}
    return retried | agent or None


def forwarded_query(query: str) -> str:
    """The client's query without credentials, with its question mark; "" if nothing is left."""
    if not query:
        return ""
    if not any(is_credential_parameter(name) for name, _ in parse_qsl(query, True)):
        return f"?{query}"
    kept = [(n, v) for n, v in parse_qsl(query, True) if not is_credential_parameter(n)]
    return f"?{_spelled(kept)}" if kept else ""


def _spelled(pairs: Iterable[tuple[str, str]]) -> str:
    return "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
