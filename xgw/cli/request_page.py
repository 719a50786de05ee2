"""What `xgw show` tells about a request log: the exchange as it was on the wire, secrets masked."""

from __future__ import annotations

from xgw import spelling
from xgw.cli.pages import Page
from xgw.cli.run_page import render_error
from xgw.cli.terminal import Role, role_of
from xgw.queries import payloads
from xgw.queries.pages import Row
from xgw.queries.wording import (
    client_words,
    first_token_words,
    joined,
    reads_words,
    state_of_request,
    status_words,
)
from xgw.store.database import Store


def render_request(page: Page, store: Store, log: Row) -> None:
    """A request log with its bodies."""
    page.head(f"request {log['id']}", *_outcome(log))
    page.text(" ".join(filter(None, (log["method"], log["url"]))), most=3)
    _fields(page, log)
    render_error(page, log)
    page.section("Request headers")
    page.pairs(log["request_headers"] or ())
    _body(page, store, "Request body", log["request_payload"])
    page.section("Response headers")
    page.pairs(log["response_headers"] or ())
    _body(page, store, "Response body", log["response_body"], cut=bool(log["truncated"]))
    if log["error_body"]:
        page.section("Error body")
        page.text(log["error_body"])


def _outcome(log: Row) -> tuple[str, Role]:
    return status_words(log), role_of(state_of_request(log))


def _fields(page: Page, log: Row) -> None:
    page.field("model", page.served(log["provider_name"], log["model"]))
    page.field("endpoint", joined(log["endpoint"], "streamed" if log["stream"] else None))
    for name in ("session", "turn", "run", "step"):
        page.field(name, log[f"{name}_id"])
    page.field("started", spelling.moment(log["started_at"]))
    page.field("took", _took(log))
    page.field("stream", reads_words(log))
    page.field("tokens", _tokens(log))
    page.field("bytes", _bytes(log))
    page.field("client", client_words(log["client"]))


def _took(log: Row) -> str:
    return joined(spelling.duration(log["latency_ms"]), first_token_words(log))


def _tokens(log: Row) -> str | None:
    counts = (log["input_tokens"], log["output_tokens"])
    if counts == (None, None):
        return None
    return f"{spelling.count(counts[0])} in → {spelling.count(counts[1])} out"


def _bytes(log: Row) -> str:
    pieces = None if log["chunks"] is None else f"in {log['chunks']} pieces"
    sent, received = spelling.size(log["bytes_sent"]), spelling.size(log["bytes_received"])
    return joined(f"{sent} sent", f"{received} received", pieces)


def _body(page: Page, store: Store, title: str, key: str | None, *, cut: bool = False) -> None:
    """A body as it was, not set out anew."""
    if key is None:
        return
    body = payloads.find_body(store, key)
    if body is None:
        page.section(title, payloads.pruned_words(store, key) or "not in the store any more")
        return
    page.section(title, "cut in the record" if cut else "")
    page.text(body.decode(errors="replace"))
