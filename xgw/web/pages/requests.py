"""Pages: the log of HTTP requests to providers, one of them, and its bodies as they were."""

from __future__ import annotations

from flask import Blueprint, Response

from xgw import errors
from xgw.queries import events, payloads, requests
from xgw.queries.pages import Row
from xgw.queries.snapshot import snapshot
from xgw.web import board, requestrows
from xgw.web.headers import RAW_HEADERS
from xgw.web.pages import frame
from xgw.web.pages.asked import read_asked
from xgw.web.requestrows import RequestRows
from xgw.web.requestview import load_view

routes = Blueprint("requests", __name__)


@routes.get("/ui/requests")
def list_requests() -> Response:
    """GET /ui/requests: the filters of the API's list, `cursor`"""
    services, asked = frame.services(), read_asked("requests", requestrows.FILTERS)
    with snapshot(services.store):
        cursor = events.newest(services.store)
        found = RequestRows([])
        if not asked.mistake:
            found = requestrows.list_requests(services, asked.wanted, asked.page)
    return frame.page(
        "requests/list.html",
        status=asked.status,
        cursor=cursor,
        found=found,
        asked=asked,
        most_rows=board.MOST_ROWS,
        providers=[provider.name for provider in services.config.config.providers],
    )


@routes.get("/ui/requests/<id>")
def show_request(id: str) -> Response:
    """GET /ui/requests/ID"""
    services = frame.services()
    with snapshot(services.store):
        cursor = events.newest(services.store)
        view = load_view(services.store, _find(id))
    return frame.page("requests/show.html", cursor=cursor, view=view)


@routes.get("/ui/requests/<id>/request")
def show_request_body(id: str) -> Response:
    """GET /ui/requests/ID/request: the body that was sent, as it was, as text"""
    return _raw(_find(id)["request_payload"])


@routes.get("/ui/requests/<id>/response")
def show_response_body(id: str) -> Response:
    """GET /ui/requests/ID/response: the body that came back, as it was, as text"""
    log = _find(id)
    if log["response_body"] is None and log["error_body"] is not None:
        return _text(log["error_body"].encode())
    return _raw(log["response_body"])


def _find(id: str) -> Row:
    row = requests.find_request(frame.services().store, id)
    if row is None:
        raise errors.not_found(f"there is no request {id[:256]!r}", code="request_not_found")
    return row


def _raw(key: str | None) -> Response:
    store = frame.services().store
    body = payloads.find_body(store, key) if key else None
    if body is None:
        words = payloads.pruned_words(store, key) or "this body is not in the store"
        raise errors.not_found(words, code="body_not_found")
    return _text(body)


def _text(body: bytes) -> Response:
    """Text that no browser takes for a page or runs anything of."""
    response = Response(body, content_type="text/plain; charset=utf-8")
    response.headers.update(RAW_HEADERS)
    return response
